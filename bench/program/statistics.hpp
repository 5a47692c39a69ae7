// SPDX-License-Identifier: BSL-1.0
//
// Statistics of measured values.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace program {

/// The value below which a share of the values is, between the two values next to it. @pre sorted, not empty
[[nodiscard]] inline double quantile(const std::vector<double>& sorted, double share) {
  const double position = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (position - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

/// The value in the middle; the mean of two if there is an even number of values. @pre not empty
[[nodiscard]] inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return quantile(values, 0.5);
}

/// 1.4826 times the median distance from the median: the standard deviation, for a normal distribution. @pre not empty
[[nodiscard]] inline double jitter(std::vector<double> values) {
  const double middle = median(values);
  for (double& each : values) {
    each = std::abs(each - middle);
  }
  return 1.4826 * median(std::move(values));
}

}  // namespace program

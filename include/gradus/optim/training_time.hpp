// SPDX-License-Identifier: BSL-1.0
//
// How far a training has come, in whole steps.
#pragma once

#include <cmath>    // std::abs, std::ceil, std::floor, std::round
#include <cstdint>  // std::uint64_t

#include "gradus/core/config.hpp"

namespace gradus::optim {

/// How far a training has come: steps done, and how many of them are a pass over the training set. Steps are whole
/// numbers, so that a boundary that is written as `10.0 / steps_per_epoch`, 0.6 or 1 + 1.0 / 3 is met in its step,
/// where sums of rounded fractions would miss it.
struct training_time {
  std::uint64_t step = 0;             ///< done so far
  std::uint64_t steps_per_epoch = 1;  ///< at least 1

  /// Passes over the training set so far, with their fraction.
  [[nodiscard]] double epoch() const noexcept {
    return static_cast<double>(step) / static_cast<double>(steps_per_epoch);
  }

  /// The steps of a number of epochs: a whole number where it is one but for rounding.
  [[nodiscard]] double steps_of(double epochs) const noexcept {
    return nearly_whole(epochs * static_cast<double>(steps_per_epoch));
  }

  /// Whether a number of epochs is over: true from the first step on that is not before it.
  [[nodiscard]] bool reached(double epochs) const noexcept { return static_cast<double>(step) >= steps_of(epochs); }

  /// How often a number of epochs has passed, rounded down.
  [[nodiscard]] double times(double epochs) const noexcept {
    return whole_times(static_cast<double>(step), steps_of(epochs));
  }

  /// count / every, rounded down: 3 for 0.6 / 0.2, whose quotient in double is below 3.
  [[nodiscard]] static double whole_times(double count, double every) noexcept {
    return std::floor(nearly_whole(count / every));
  }

 private:
  /// The nearest whole number if the rounding of a few operations explains the difference.
  [[nodiscard]] static double nearly_whole(double number) noexcept {
    constexpr double rounding = 1e-14;  // some 50 units in the last place
    const double whole = std::round(number);
    return std::abs(number - whole) <= rounding * std::abs(whole) ? whole : number;
  }
};

}  // namespace gradus::optim

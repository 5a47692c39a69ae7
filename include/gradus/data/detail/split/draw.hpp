// SPDX-License-Identifier: BSL-1.0
//
// The examples of the parts of a data set.
#pragma once

#include <algorithm>  // std::sort
#include <cmath>      // std::abs, std::floor
#include <cstddef>    // std::size_t
#include <cstdint>    // std::int32_t, std::uint64_t
#include <span>       // std::span
#include <utility>    // std::pair, std::swap
#include <vector>     // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/random.hpp"

namespace gradus::data::detail {

/// @throws configuration_error for a number that is not in [0, size)
inline void require_examples(std::span<const index_t> examples, index_t size) {
  for (const index_t example : examples) {
    if (example < 0 || example >= size) {
      raise<configuration_error>("subset", {"examples from 0 to ", size - 1}, {example});
    }
  }
}

/// @throws configuration_error unless there is one label for each example
inline void require_one_label(const image_extents& labels) {
  if (labels.h * labels.w != 1) {
    raise<configuration_error>("random_split", "a data set with a class for each example, for .stratified",
                               labels.h * labels.w > 1 ? "one with a class for each pixel" : "one without classes",
                               "leave out .stratified");
  }
}

inline void require_shares(std::span<const double> shares) {
  double sum = 0;
  for (const double share : shares) {
    if (!(share > 0 && share <= 1)) {
      raise<configuration_error>("random_split", "shares above 0, at most 1", {share});
    }
    sum += share;
  }
  if (!(std::abs(sum - 1) <= 1e-6)) {
    raise<configuration_error>("random_split", "shares with the sum 1", {sum}, "write {0.8, 0.2} for two parts");
  }
}

/// The part, of those that are not `served`, that lacks most of its share of `examples` examples.
[[nodiscard]] inline std::size_t neediest_part(std::span<const std::vector<index_t>> parts,
                                               std::span<const double> shares, std::span<const char> served,
                                               double examples) {
  std::size_t result = parts.size();
  double most = 0;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const double lack = shares[part] * examples - static_cast<double>(parts[part].size());
    if (served[part] == 0 && (result == parts.size() || lack > most + 1e-9)) {
      most = lack;
      result = part;
    }
  }
  return result;
}

/// The parts of random_split, each in rising order. @param labels  of each example, or empty: all of one class
[[nodiscard]] inline std::vector<std::vector<index_t>> draw_parts(index_t size, std::span<const std::int32_t> labels,
                                                                  std::span<const double> shares, std::uint64_t seed) {
  require_shares(shares);
  const auto examples = static_cast<std::size_t>(size);
  std::vector<index_t> order(examples);
  for (std::size_t i = 0; i < examples; ++i) {
    order[i] = static_cast<index_t>(i);
  }
  const random_stream stream{seed, "random_split"};
  for (std::size_t i = examples; i > 1; --i) {  // Fisher and Yates (Durstenfeld 1964)
    const std::size_t other = stream.bits(i) % i;
    std::swap(order[i - 1], order[other]);
  }
  const auto label_of = [&](index_t i) { return labels.empty() ? 0 : labels[static_cast<std::size_t>(i)]; };
  if (!labels.empty()) {
    std::vector<std::pair<std::int32_t, std::size_t>> positions(examples);  // (label, position in the drawn order)
    for (std::size_t i = 0; i < examples; ++i) {
      positions[i] = {label_of(order[i]), i};
    }
    std::sort(positions.begin(), positions.end());
    const std::vector<index_t> drawn = order;
    for (std::size_t i = 0; i < examples; ++i) {
      order[i] = drawn[positions[i].second];
    }
  }

  std::vector<std::vector<index_t>> parts(shares.size());
  std::vector<char> served(parts.size());
  for (std::size_t first = 0; first < examples;) {
    std::size_t end = first;
    while (end < examples && label_of(order[end]) == label_of(order[first])) {
      ++end;
    }
    const auto count = static_cast<double>(end - first);
    for (std::size_t part = 0; part < parts.size(); ++part) {
      // 0.29 * 100 is 28.999999999999996 and means 29.
      const auto own = static_cast<std::size_t>(std::floor(shares[part] * count + 1e-6));
      for (std::size_t i = 0; i < own && first < end; ++i) {
        parts[part].push_back(order[first++]);
      }
    }
    served.assign(parts.size(), 0);
    for (std::size_t rest = 0; first < end; ++rest, ++first) {
      if (rest == parts.size()) {
        served.assign(parts.size(), 0);
        rest = 0;
      }
      const std::size_t part = neediest_part(parts, shares, served, static_cast<double>(end));
      served[part] = 1;
      parts[part].push_back(order[first]);
    }
  }
  for (std::size_t part = 0; part < parts.size(); ++part) {
    if (parts[part].empty()) {
      raise<configuration_error>("random_split", {"examples in each of ", parts.size(), " parts"},
                                 {"none in part ", part, " of ", size, " examples"},
                                 "use larger shares, or a larger set");
    }
    std::sort(parts[part].begin(), parts[part].end());
  }
  return parts;
}

}  // namespace gradus::data::detail

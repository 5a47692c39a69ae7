// SPDX-License-Identifier: BSL-1.0
//
// Curves of images a second over ranks, as SVG.
#pragma once

#include <string>
#include <vector>

namespace driver {

/// A point of a curve with its interval.
struct curve_point {
  int ranks = 0;
  double images_per_second = 0;
  double least = 0;
  double most = 0;
};

/// The points of a strategy, by ascending ranks.
struct curve {
  std::string label;
  std::vector<curve_point> points;
};

/// Curves with their intervals and the ideal line, on logarithmic axes. @pre some point; all rates are above 0
/// @param of_one  images a second of a rank that exchanges nothing
[[nodiscard]] std::string svg_of(const std::string& title, const std::vector<curve>& curves, double of_one);

}  // namespace driver

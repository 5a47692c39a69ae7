// SPDX-License-Identifier: BSL-1.0
//
// The functions that kernels apply to a result before they store it, and their derivatives.
#pragma once

#include <limits>  // std::numeric_limits

#include "gradus/core/config.hpp"

namespace gradus::kernels {

/// A function of the ReLU family: a line with one or two kinks, whose derivative follows from its value.
///
///   f(x) = min(x, cap) where x > 0, slope * x elsewhere; exactly 0 where x < 0 and the slope is 0; NaN for NaN
///
///   f                  | slope | cap
///   identity           | 1     | infinity
///   relu               | 0     | infinity
///   relu6              | 0     | 6
///   leaky_relu(slope)  | slope | infinity
///
/// Kernels of the CPU compute it in the type of their sums: results of 16 bits are rounded once, after the function. On
/// a GPU, cuDNN and cuBLAS round the sums of convolutions and products before.
struct activation {
  double slope = 1;                                      ///< factor of values below 0
  double cap = std::numeric_limits<double>::infinity();  ///< the largest value, above 0; a number of the element type

  static const activation identity;  ///< x
  static const activation relu;      ///< max(x, 0); NaN for NaN
  static const activation relu6;     ///< min(max(x, 0), 6); NaN for NaN

  /// x where x > 0, else slope * x. Only for slope > 0 does the derivative follow from the value: with another slope,
  /// relu_backward reads the input, and no layer fuses the function.
  [[nodiscard]] static constexpr activation leaky_relu(double slope) noexcept {
    return {slope, std::numeric_limits<double>::infinity()};
  }

  /// The same function.
  friend constexpr bool operator==(const activation&, const activation&) noexcept = default;
};

inline constexpr activation activation::identity{};
inline constexpr activation activation::relu{0, std::numeric_limits<double>::infinity()};
inline constexpr activation activation::relu6{0, 6};

}  // namespace gradus::kernels

// SPDX-License-Identifier: BSL-1.0
//
// Initial values of parameters: a function of the seed, the parameter's name and the coordinates only.
#pragma once

#include <cmath>        // std::sqrt
#include <cstdint>      // std::uint64_t
#include <string_view>  // std::string_view

#include "gradus/core/compiled.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/random.hpp"

namespace gradus::nn {

/// The number of inputs and outputs that sets the variance of an initializer.
struct fan {
  double in = 1;   ///< terms of the sum that makes one output: in_channels * kernel area
  double out = 1;  ///< outputs that depend on one input: out_channels * kernel area
};

/// A rule for the initial values of a parameter. The functions below make one.
class initializer {
 public:
  /// The distribution of the values.
  enum class distribution : unsigned char { constant, normal, uniform, truncated_normal };
  /// The variance of the values: absolute, 2 / fan_in (he) or 2 / (fan_in + fan_out) (glorot).
  enum class scaling : unsigned char { absolute, he, glorot };

  /// @param parameter  the value of a constant, otherwise a factor of the standard deviation
  constexpr initializer(distribution kind, scaling scale, double parameter) noexcept
      : distribution_{kind}, scaling_{scale}, parameter_{parameter} {}

  /// The value at `index`, the row-major index of the coordinates (o, i, r, s).
  /// @param stream  random numbers of the parameter
  /// @throws configuration_error when the rule's parameter is not finite, or is a negative deviation
  [[nodiscard]] double operator()(const random_stream& stream, std::uint64_t index, const fan& sizes) const;

 private:
  [[nodiscard]] double scale(const fan& sizes) const;

  distribution distribution_;
  scaling scaling_;
  double parameter_;
};

/// N(0, 2 / fan_in): for layers followed by ReLU (He, Zhang, Ren, Sun 2015, section 2.2).
[[nodiscard]] constexpr initializer he_normal() noexcept {
  return {initializer::distribution::normal, initializer::scaling::he, 1.0};
}
/// Uniform with the variance 2 / fan_in (He et al. 2015).
[[nodiscard]] constexpr initializer he_uniform() noexcept {
  return {initializer::distribution::uniform, initializer::scaling::he, 1.0};
}
/// Variance 2 / fan_in from a normal distribution that is cut at two deviations of the uncut one.
[[nodiscard]] constexpr initializer he_truncated_normal() noexcept {
  return {initializer::distribution::truncated_normal, initializer::scaling::he, 1.0};
}
/// N(0, 2 / (fan_in + fan_out)) (Glorot, Bengio 2010, equation 12).
[[nodiscard]] constexpr initializer glorot_normal() noexcept {
  return {initializer::distribution::normal, initializer::scaling::glorot, 1.0};
}
/// Uniform with the variance 2 / (fan_in + fan_out) (Glorot, Bengio 2010, equation 16).
[[nodiscard]] constexpr initializer glorot_uniform() noexcept {
  return {initializer::distribution::uniform, initializer::scaling::glorot, 1.0};
}
/// N(0, deviation^2).
[[nodiscard]] constexpr initializer normal(double deviation) noexcept {
  return {initializer::distribution::normal, initializer::scaling::absolute, deviation};
}
/// N(0, deviation^2) where values beyond two deviations are drawn again.
[[nodiscard]] constexpr initializer truncated_normal(double deviation) noexcept {
  return {initializer::distribution::truncated_normal, initializer::scaling::absolute, deviation};
}
/// All values are `number`.
[[nodiscard]] constexpr initializer constant(double number) noexcept {
  return {initializer::distribution::constant, initializer::scaling::absolute, number};
}
/// All values are 0.
[[nodiscard]] constexpr initializer zeros() noexcept {
  return constant(0.0);
}
/// All values are 1.
[[nodiscard]] constexpr initializer ones() noexcept {
  return constant(1.0);
}

}  // namespace gradus::nn

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn {

GRADUS_INLINE double initializer::operator()(const random_stream& stream, std::uint64_t index, const fan& sizes) const {
  if (!is_finite(parameter_) || (distribution_ != distribution::constant && parameter_ < 0)) {
    raise<configuration_error>("initializer", "a finite number, not negative for a deviation", {parameter_});
  }
  const double deviation = parameter_ * scale(sizes);
  switch (distribution_) {
    case distribution::constant:
      return parameter_;
    case distribution::normal:
      return deviation * stream.normal(index);
    case distribution::uniform:
      return deviation * std::sqrt(3.0) * (2.0 * stream.uniform(index) - 1.0);
    case distribution::truncated_normal:
      return deviation * stream.truncated_normal(index);
  }
  return 0;
}

GRADUS_INLINE double initializer::scale(const fan& sizes) const {
  switch (scaling_) {
    case scaling::absolute:
      return 1.0;
    case scaling::he:
      return std::sqrt(2.0 / sizes.in);
    case scaling::glorot:
      return std::sqrt(2.0 / (sizes.in + sizes.out));
  }
  return 1.0;
}

}  // namespace gradus::nn
#endif

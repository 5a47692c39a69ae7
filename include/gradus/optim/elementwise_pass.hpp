// SPDX-License-Identifier: BSL-1.0
//
// One pass over memory for any elementwise update rule on the CPU: a rule writes its formula for one element.
#pragma once

#include <algorithm>  // std::fill_n
#include <cmath>      // std::sqrt
#include <concepts>   // std::floating_point
#include <cstddef>    // std::size_t
#include <cstdint>    // std::uint64_t
#include <span>       // std::span

#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/optim/cpu_passes.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/optim/update_step.hpp"
#include "gradus/simd/transform.hpp"

namespace gradus::optim {

/// What an elementwise pass knows of a training step.
struct pass_point {
  double learning_rate = 0;   ///< at least 0
  std::uint64_t updates = 0;  ///< updates made before this one
  double gradient_scale = 1;  ///< a factor of all gradients

  /// The same for a segment with this factor of the learning rate.
  [[nodiscard]] constexpr pass_point of(double learning_rate_factor) const noexcept {
    pass_point result = *this;
    result.learning_rate *= learning_rate_factor;
    return result;
  }
};

/// Arrays of the same length: what a pass writes, or what it only reads.
template <class Element, std::size_t Count>
using pass_arrays = simd::arrays<Element, Count>;

namespace detail {

/// base^exponent by repeated squaring. std::pow differs between the libraries of hosts and devices.
[[nodiscard]] constexpr double power(double base, std::uint64_t exponent) noexcept {
  double result = 1;
  for (; exponent != 0 && result != 0; exponent /= 2) {
    result *= exponent % 2 != 0 ? base : 1.0;
    base *= base;
  }
  return result;
}

// What a formula does with one number; simd::transform has the same functions for vectors.
template <std::floating_point Number>
[[nodiscard]] constexpr Number square_root(Number x) noexcept {
  return std::sqrt(x);
}
/// a > b ? a : b
template <std::floating_point Number>
[[nodiscard]] constexpr Number larger(Number a, Number b) noexcept {
  return a > b ? a : b;
}
/// a < b ? a : b
template <std::floating_point Number>
[[nodiscard]] constexpr Number smaller(Number a, Number b) noexcept {
  return a < b ? a : b;
}

}  // namespace detail

/// Runs one step of an elementwise formula for the parameters of `segments`, in one pass over memory. Segment offsets
/// index all arrays.
/// @param pass  has a type step<Element> without constructors, whose call operator takes references to the written
///              numbers and then the numbers that are only read; a number is an element or those of simd::transform.
///              Its function at<Element>(const pass_point&, bool decays) makes a step. All of it is constexpr and not
///              GRADUS_HOST_DEVICE: so nvcc compiles vectors for the host only.
/// @param step  the learning rate, and the number of updates made before
/// @param scale  the factor by which the gradients have been multiplied
template <class Pass, class Element, std::size_t Outputs, std::size_t Inputs>
void apply_pass(cpu& device, std::span<const segment> segments, const Pass& pass, const update_step& step,
                const loss_scale& scale, const pass_arrays<Element, Outputs>& written,
                const pass_arrays<const Element, Inputs>& read) {
  const pass_point point{step.learning_rate, step.number, 1.0 / scale.factor};
  const auto with_decay = pass.template at<Element>(point, true);
  const auto without_decay = pass.template at<Element>(point, false);
  detail::for_each_range(device, segments, [&](const segment& part, index_t offset, index_t count) {
    auto own = part.decay ? with_decay : without_decay;
    if (part.learning_rate_factor != 1) {
      own = pass.template at<Element>(point.of(part.learning_rate_factor), part.decay);
    }
    simd::transform(count, own, written.from(offset), read.from(offset));
  });
}

/// Sets `count` elements to `value`.
template <class Element>
void fill_elements(cpu& /*device*/, index_t count, Element value, Element* elements) {
  std::fill_n(elements, count, value);
}

}  // namespace gradus::optim

// SPDX-License-Identifier: BSL-1.0
//
// One pass over memory for any elementwise update rule on the CPU: a rule writes its formula for one element.
#pragma once

#include <algorithm>    // std::copy_n, std::fill_n
#include <bit>          // std::bit_cast
#include <cmath>        // std::sqrt
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint64_t
#include <span>         // std::span
#include <type_traits>  // std::is_floating_point_v
#include <utility>      // std::index_sequence, std::make_index_sequence

#if defined(__SSE2__)
#include <emmintrin.h>  // square roots of vectors
#endif

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/optim/cpu_passes.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/optim/update_step.hpp"

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
struct pass_arrays {
  Element* data[Count];  ///< the first elements of the arrays

  /// The arrays from element `offset` on.
  [[nodiscard]] constexpr pass_arrays from(index_t offset) const noexcept {
    pass_arrays result{};
    for (std::size_t i = 0; i < Count; ++i) {
      result.data[i] = data[i] + offset;
    }
    return result;
  }
};

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

/// The square root of an element, or of each element of a packet.
template <class Number>
[[nodiscard]] GRADUS_ALWAYS_INLINE constexpr Number square_root(Number x) noexcept {
  if constexpr (std::is_floating_point_v<Number>) {
    return std::sqrt(x);
  } else {
#if defined(__SSE2__)
    if constexpr (sizeof(x[0]) == 4) {
      return std::bit_cast<Number>(_mm_sqrt_ps(std::bit_cast<__m128>(x)));
    } else {
      return std::bit_cast<Number>(_mm_sqrt_pd(std::bit_cast<__m128d>(x)));
    }
#else
    for (std::size_t i = 0; i < sizeof(x) / sizeof(x[0]); ++i) {
      x[i] = std::sqrt(x[i]);
    }
    return x;
#endif
  }
}

/// Runs step(written..., read...) on the packets at these elements.
template <class Element, std::size_t Outputs, std::size_t Inputs, class Step, std::size_t... Out, std::size_t... In>
GRADUS_ALWAYS_INLINE void step_packet(const Step& step, const pass_arrays<Element, Outputs>& written,
                                      const pass_arrays<const Element, Inputs>& read, index_t offset,
                                      std::index_sequence<Out...> /*written*/, std::index_sequence<In...> /*read*/) {
  using pack = packet<Element>;
  typename pack::type values[] = {pack::load(written.data[Out] + offset)...};
  step(values[Out]..., pack::load(read.data[In] + offset)...);
  (pack::store(written.data[Out] + offset, values[Out]), ...);
}

/// Runs step(written..., read...) for each element, a packet at a time. Elements after the last full packet are
/// processed in a packet that is filled with zeros, so that the result of an element does not depend on its position.
template <class Element, std::size_t Outputs, std::size_t Inputs, class Step>
void step_range(index_t count, const Step& step, const pass_arrays<Element, Outputs>& written,
                const pass_arrays<const Element, Inputs>& read) noexcept {
  constexpr index_t width = packet<Element>::width;
  constexpr std::make_index_sequence<Outputs> outputs{};
  constexpr std::make_index_sequence<Inputs> inputs{};
  index_t i = 0;
  for (; i + width <= count; i += width) {
    step_packet(step, written, read, i, outputs, inputs);
  }
  if (i < count) {
    Element last[Outputs + Inputs][static_cast<std::size_t>(width)] = {};
    pass_arrays<Element, Outputs> last_written{};
    pass_arrays<const Element, Inputs> last_read{};
    for (std::size_t array = 0; array < Outputs; ++array) {
      last_written.data[array] = std::copy_n(written.data[array] + i, count - i, last[array]) - (count - i);
    }
    for (std::size_t array = 0; array < Inputs; ++array) {
      last_read.data[array] = std::copy_n(read.data[array] + i, count - i, last[Outputs + array]) - (count - i);
    }
    step_packet(step, last_written, last_read, 0, outputs, inputs);
    for (std::size_t array = 0; array < Outputs; ++array) {
      std::copy_n(last[array], count - i, written.data[array] + i);
    }
  }
}

}  // namespace detail

/// Runs one step of an elementwise formula for the parameters of `segments`, in one pass over memory. Segment offsets
/// index all arrays.
/// @param pass  has a type step<Element> without constructors, whose call operator takes references to the written
///              numbers and then the numbers that are only read; a number is an element or a packet of elements. Its
///              function at<Element>(const pass_point&, bool decays) makes a step. All of it is constexpr and not
///              GRADUS_HOST_DEVICE: so nvcc compiles packets for the host only.
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
    detail::step_range(count, own, written.from(offset), read.from(offset));
  });
}

/// Sets `count` elements to `value`.
template <class Element>
void fill_elements(cpu& /*device*/, index_t count, Element value, Element* elements) {
  std::fill_n(elements, count, value);
}

}  // namespace gradus::optim

// SPDX-License-Identifier: BSL-1.0
//
// Element-wise kernels on the CPU.
#pragma once

#include <algorithm>  // std::max
#include <cstddef>    // std::size_t
#include <cstdint>    // std::uint8_t
#include <cstring>    // std::memmove

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/elementwise/activation.hpp"
#include "gradus/kernels/cpu/detail/simd/packets.hpp"
#include "gradus/kernels/elementwise.hpp"

#define GRADUS_TARGET_BODY "gradus/kernels/cpu/detail/elementwise/elementwise_body.hpp"
#include "gradus/simd/for_each_target.hpp"

namespace gradus::kernels {

namespace detail {

/// Elements of one task: large compared with the cost of a task, small compared with a cache.
inline constexpr index_t elementwise_grain = index_t{1} << 14U;

/// Calls body(target, begin, end) for all rows of `length` elements, on all threads.
template <class Body>
void for_each_range(cpu& device, index_t rows, const Body& body, index_t length = 1) {
  const index_t grain = std::max(index_t{1}, elementwise_grain / std::max(index_t{1}, length));
  device.parallel_for(
      rows, grain, [&body](index_t begin, index_t end) { on_target([&](auto target) { body(target, begin, end); }); });
}

/// to[i] += from[i]
template <class Element>
void add_elements(index_t count, const Element* from, Element* to) {
  on_target([=](auto target) { add(target, 0, count, to, from, to, held_activation<computed<Element>>{}); });
}

}  // namespace detail

/// Implements has_relu_forward on the CPU.
template <network_element Element>
GRADUS_NEVER_INLINE void relu_forward(cpu& device, index_t count, const Element* x, Element* y,
                                      const activation& function = activation::relu) {
  const detail::held_activation<detail::computed<Element>> act{function};
  detail::for_each_range(device, count,
                         [&](auto target, index_t begin, index_t end) { activate(target, begin, end, x, y, act); });
}

/// Implements has_relu_backward on the CPU.
template <network_element Element>
void relu_backward(cpu& device, index_t count, const Element* dy, const Element* y, Element* dx, bool accumulate,
                   const activation& function = activation::relu) {
  const detail::held_derivative<detail::computed<Element>> derivative{function};
  detail::for_each_range(device, count, [&](auto target, index_t begin, index_t end) {
    activate_backward(target, begin, end, dy, y, dx, accumulate, derivative);
  });
}

/// Implements has_add_forward on the CPU.
template <network_element Element>
void add_forward(cpu& device, index_t count, const Element* a, const Element* b, Element* y,
                 const activation& function) {
  const detail::held_activation<detail::computed<Element>> act{function};
  detail::for_each_range(device, count,
                         [&](auto target, index_t begin, index_t end) { add(target, begin, end, a, b, y, act); });
}

/// Implements has_copy_or_add on the CPU.
template <network_element Element>
void copy_or_add(cpu& device, index_t count, const Element* source, Element* destination, bool accumulate) {
  if (accumulate) {
    add_forward(device, count, destination, source, destination, activation::identity);
    return;
  }
  device.parallel_for(count, detail::elementwise_grain, [=](index_t begin, index_t end) {
    std::memmove(destination + begin, source + begin, static_cast<std::size_t>(end - begin) * sizeof(Element));
  });
}

}  // namespace gradus::kernels

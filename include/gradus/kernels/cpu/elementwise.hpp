// SPDX-License-Identifier: BSL-1.0
//
// Element-wise passes on the CPU.
// Module: kernels. Depends on: tensor.
#pragma once

#include <cstring>  // std::memmove

#include "gradus/core/element.hpp"         // real_element
#include "gradus/core/index.hpp"           // index_t
#include "gradus/device/cpu.hpp"           // cpu
#include "gradus/kernels/conv2d.hpp"       // activation
#include "gradus/kernels/elementwise.hpp"  // the contract

namespace gradus::kernels {

namespace detail {

/// Elements that one task of an element-wise pass handles: large against the price of a task, small against a cache.
inline constexpr index_t elementwise_grain = index_t{1} << 14U;

/// max(x, 0) in which a NaN stays a NaN.
template <class Element>
[[nodiscard]] constexpr Element relu(Element x) noexcept {
  return Element{0} > x ? Element{0} : x;
}

}  // namespace detail

template <real_element Element>
void relu_forward(cpu& device, index_t count, const Element* x, Element* y) {
  device.parallel_for(count, detail::elementwise_grain, [=](index_t begin, index_t end) {
    for (index_t i = begin; i < end; ++i) {
      y[i] = detail::relu(x[i]);
    }
  });
}

template <real_element Element>
void relu_backward(cpu& device, index_t count, const Element* dy, const Element* y, Element* dx, bool accumulate) {
  device.parallel_for(count, detail::elementwise_grain, [=](index_t begin, index_t end) {
    for (index_t i = begin; i < end; ++i) {
      const Element value = y[i] > 0 ? dy[i] : Element{0};
      dx[i] = accumulate ? dx[i] + value : value;
    }
  });
}

template <real_element Element>
void add_forward(cpu& device, index_t count, const Element* a, const Element* b, Element* y, activation act) {
  device.parallel_for(count, detail::elementwise_grain, [=](index_t begin, index_t end) {
    for (index_t i = begin; i < end; ++i) {
      const Element sum = a[i] + b[i];
      y[i] = act == activation::relu ? detail::relu(sum) : sum;
    }
  });
}

template <real_element Element>
void copy_or_add(cpu& device, index_t count, const Element* source, Element* destination, bool accumulate) {
  device.parallel_for(count, detail::elementwise_grain, [=](index_t begin, index_t end) {
    if (!accumulate) {
      std::memmove(destination + begin, source + begin, static_cast<std::size_t>(end - begin) * sizeof(Element));
      return;
    }
    for (index_t i = begin; i < end; ++i) {
      destination[i] += source[i];
    }
  });
}

}  // namespace gradus::kernels

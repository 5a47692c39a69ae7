// SPDX-License-Identifier: BSL-1.0
//
// Element-wise passes that layers need when nothing can carry them for free.
#pragma once

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"

namespace gradus::kernels {

// What the kernels of `has_elementwise` do, for network elements E, over `count` elements in memory order; output and
// inputs may be the same array, which needs no alignment but its elements':
//
//   relu_forward:   y = max(x, 0)
//   relu_backward:  dx (+)= y > 0 ? dy : 0
//   add_forward:    y = act(a + b)
//   copy_or_add:    destination (+)= source
//
// A NaN stays one under max; relu_backward lets nothing through where y is NaN.

template <class Device, class Element>
concept has_relu_forward = requires(Device& device, index_t count, const Element* x, Element* y) {
  relu_forward(device, count, x, y);
};

template <class Device, class Element>
concept has_relu_backward = requires(Device& device, index_t count, const Element* dy, const Element* y, Element* dx,
                                     bool accumulate) {
  relu_backward(device, count, dy, y, dx, accumulate);
};

template <class Device, class Element>
concept has_add_forward = requires(Device& device, index_t count, const Element* a, const Element* b, Element* y,
                                   activation act) {
  add_forward(device, count, a, b, y, act);
};

template <class Device, class Element>
concept has_copy_or_add = requires(Device& device, index_t count, const Element* source, Element* destination,
                                   bool accumulate) {
  copy_or_add(device, count, source, destination, accumulate);
};

/// A device with the passes of this file: for every network.
template <class Device, class Element>
concept has_elementwise = has_relu_forward<Device, Element> && has_relu_backward<Device, Element> &&
    has_add_forward<Device, Element> && has_copy_or_add<Device, Element>;

/// Says which overload of `has_elementwise` the device misses. Always true when it compiles.
template <class Device, class Element>
consteval bool explain_elementwise() {
  static_assert(has_relu_forward<Device, Element>,
                "gradus: the device lacks a kernel of the network: overload void relu_forward(Device&, index_t count, "
                "const Element* x, Element* y); for gradus::cuda include gradus/kernels/cuda.cuh");
  static_assert(
      has_relu_backward<Device, Element>,
      "gradus: the device lacks a kernel of the network: overload void relu_backward(Device&, index_t count, const "
      "Element* dy, const Element* y, Element* dx, bool accumulate); for gradus::cuda include gradus/kernels/cuda.cuh");
  static_assert(
      has_add_forward<Device, Element>,
      "gradus: the device lacks a kernel of the network: overload void add_forward(Device&, index_t count, const "
      "Element* a, const Element* b, Element* y, activation); for gradus::cuda include gradus/kernels/cuda.cuh");
  static_assert(
      has_copy_or_add<Device, Element>,
      "gradus: the device lacks a kernel of the network: overload void copy_or_add(Device&, index_t count, const "
      "Element* source, Element* destination, bool accumulate); for gradus::cuda include gradus/kernels/cuda.cuh");
  return true;
}

}  // namespace gradus::kernels

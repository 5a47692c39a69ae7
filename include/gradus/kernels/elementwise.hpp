// SPDX-License-Identifier: BSL-1.0
//
// The contract of element-wise kernels, for layers whose operation is not fused into another one.
#pragma once

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"

namespace gradus::kernels {

/// A requirement of `has_elementwise`: relu_forward computes y = function(x); NaN for NaN.
template <class Device, class Element>
concept has_relu_forward = requires(Device& device, index_t count, const Element* x, Element* y,
                                    const activation& function) {
  relu_forward(device, count, x, y, function);
};

/// A requirement of `has_elementwise`: relu_backward computes dx (+)= dy times the derivative of the function, which
/// is not the identity, from the output y of forward, or its input: 0 at or above the cap, else dy where y > 0, else
/// slope * dy. Where the derivative is 0, the term is 0 for any dy.
template <class Device, class Element>
concept has_relu_backward = requires(Device& device, index_t count, const Element* dy, const Element* y, Element* dx,
                                     bool accumulate, const activation& function) {
  relu_backward(device, count, dy, y, dx, accumulate, function);
};

/// A requirement of `has_elementwise`: add_forward computes y = act(a + b).
template <class Device, class Element>
concept has_add_forward = requires(Device& device, index_t count, const Element* a, const Element* b, Element* y,
                                   const activation& act) {
  add_forward(device, count, a, b, y, act);
};

/// A requirement of `has_elementwise`: copy_or_add computes destination (+)= source.
template <class Device, class Element>
concept has_copy_or_add = requires(Device& device, index_t count, const Element* source, Element* destination,
                                   bool accumulate) {
  copy_or_add(device, count, source, destination, accumulate);
};

/// A device with these kernels; every network asks for it.
///
/// They compute `count` elements in memory order; all arrays have this length. (+)= is += if `accumulate`, else =. The
/// output may be one of the inputs; arrays need only the alignment of their elements.
template <class Device, class Element>
concept has_elementwise = has_relu_forward<Device, Element> && has_relu_backward<Device, Element> &&
    has_add_forward<Device, Element> && has_copy_or_add<Device, Element>;

/// Says which overload of `has_elementwise` the device misses. Always true when it compiles.
template <class Device, class Element>
consteval bool explain_elementwise() {
  static_assert(has_relu_forward<Device, Element>,
                "gradus: the device lacks a kernel of the network: overload void relu_forward(Device&, index_t count, "
                "const Element* x, Element* y, const activation&); for gradus::cuda include gradus/kernels/cuda.cuh");
  static_assert(
      has_relu_backward<Device, Element>,
      "gradus: the device lacks a kernel of the network: overload void relu_backward(Device&, index_t count, const "
      "Element* dy, const Element* y, Element* dx, bool accumulate, const activation&); for gradus::cuda include "
      "gradus/kernels/cuda.cuh");
  static_assert(
      has_add_forward<Device, Element>,
      "gradus: the device lacks a kernel of the network: overload void add_forward(Device&, index_t count, const "
      "Element* a, const Element* b, Element* y, const activation&); for gradus::cuda include gradus/kernels/cuda.cuh");
  static_assert(
      has_copy_or_add<Device, Element>,
      "gradus: the device lacks a kernel of the network: overload void copy_or_add(Device&, index_t count, const "
      "Element* source, Element* destination, bool accumulate); for gradus::cuda include gradus/kernels/cuda.cuh");
  return true;
}

}  // namespace gradus::kernels

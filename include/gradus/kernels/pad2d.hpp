// SPDX-License-Identifier: BSL-1.0
//
// The contract of kernels that pad images: the functions that a device overloads.
#pragma once

#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/pad2d/padded_images.hpp"
#include "gradus/kernels/pad2d_geometry.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

/// A device that pads images; nn::pad2d asks for it, and nn::conv2d with a padding_mode other than zeros.
///
///   pad2d_forward overwrites y, of geometry.output(n), with the padded x, of geometry.input(n).
///   pad2d_backward computes dx, the gradient of x: the sum of dy over all copies of an element, in a fixed order. It
///   applies the epilogue.
///
/// x and y do not overlap, nor do dx and dy. Results are bitwise the same for any number of threads.
template <class Device, class Element, class Layout>
concept has_pad2d = requires(Device& device, const pad2d_geometry& geometry,
                             image_view<const Element, Layout, Device> from, image_view<Element, Layout, Device> to,
                             const backward_epilogue<Element>& epilogue) {
  pad2d_forward(device, geometry, from, to);
  pad2d_backward(device, geometry, from, to, epilogue);
};

/// Says which overload of `has_pad2d` the device misses. Always true when it compiles.
template <class Device, class Element, class Layout>
consteval bool explain_pad2d() {
  static_assert(has_pad2d<Device, Element, Layout>,
                "gradus: the device lacks kernels of the network: overload void pad2d_forward(Device&, const "
                "pad2d_geometry&, x, y) and void pad2d_backward(Device&, const pad2d_geometry&, dy, dx, const "
                "backward_epilogue<Element>&); for gradus::cuda include gradus/kernels/cuda.cuh");
  return true;
}

}  // namespace gradus::kernels

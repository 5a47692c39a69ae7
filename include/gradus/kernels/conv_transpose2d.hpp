// SPDX-License-Identifier: BSL-1.0
//
// The contract of transposed 2-D convolution kernels.
#pragma once

#include <concepts>  // std::same_as
#include <cstddef>   // std::byte, std::size_t
#include <span>      // std::span

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

/// A device that computes transposed convolutions; nn::conv_transpose2d asks for it.
///
/// A transposed convolution is the gradient of a convolution with respect to its input, as a layer. `geometry`
/// describes that convolution: x and dx have the shape geometry.output(n), y and dy have geometry.input(n), and the
/// weights have geometry.weights(), which is (in_channels, out_channels / groups, r, s) of the layer:
///
///   y(n, i, h, w) = bias(i) + the sum of x(n, o, p, q) * w(o, i, r, s) over all o, p, q, r, s with
///                   h = p * stride_height - pad_top + r * dilation_height and w likewise
///
///   conv_transpose2d_forward overwrites y and applies the epilogue; it has the terms of conv2d_backward_data.
///   conv_transpose2d_backward_data computes dx from dy and the weights; it has the terms of conv2d_forward.
///   conv_transpose2d_backward_weights overwrites dw and, unless it is null, dbias with sums over the batch.
///   conv_transpose2d_workspace_bytes returns the bytes of workspace of one pass for `batch` images or fewer.
///
/// Types, layouts, workspace and what may overlap are as in has_conv2d.
template <class Device, class Element, class Layout>
concept has_conv_transpose2d = requires(Device& device, const conv2d_geometry& geometry, index_t batch, pass which,
                                        image_view<const Element, Layout, Device> in,
                                        image_view<Element, Layout, Device> out,
                                        image_view<const parameter_element_t<Element>, Layout, Device> w,
                                        image_view<parameter_element_t<Element>, Layout, Device> dw,
                                        parameter_element_t<Element>* dbias, const forward_epilogue<Element>& forward,
                                        const backward_epilogue<Element>& backward, std::span<std::byte> workspace) {
  { conv_transpose2d_workspace_bytes<Element, Layout>(device, geometry, batch, which) } -> std::same_as<std::size_t>;
  conv_transpose2d_forward(device, geometry, in, w, out, forward, workspace);
  conv_transpose2d_backward_data(device, geometry, in, w, out, backward, workspace);
  conv_transpose2d_backward_weights(device, geometry, in, in, dw, dbias, workspace);
};

/// Says which kernels the device misses. Always true when it compiles.
template <class Device, class Element, class Layout>
consteval bool explain_conv_transpose2d() {
  static_assert(has_conv_transpose2d<Device, Element, Layout>,
                "gradus: the device lacks kernels of nn::conv_transpose2d: overload conv_transpose2d_workspace_bytes, "
                "conv_transpose2d_forward, conv_transpose2d_backward_data and conv_transpose2d_backward_weights "
                "(gradus/kernels/conv_transpose2d.hpp); for gradus::cuda include gradus/kernels/cuda.cuh");
  return true;
}

}  // namespace gradus::kernels

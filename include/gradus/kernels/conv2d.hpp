// SPDX-License-Identifier: BSL-1.0
//
// The contract of 2-D convolution kernels: epilogues and the functions that every device overloads.
#pragma once

#include <concepts>  // std::same_as
#include <cstddef>   // std::byte, std::size_t
#include <span>      // std::span

#include "gradus/core/element.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/activation.hpp"
#include "gradus/kernels/conv2d_geometry.hpp"
#include "gradus/kernels/cpu/detail/conv2d/dilated.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

/// What a forward pass applies to y before it stores it: y = act(y + bias + residual). Null pointers add nothing.
template <class Element>
struct forward_epilogue {
  const parameter_element_t<Element>* bias = nullptr;  ///< one value for each channel (or column of a matrix product)
  const Element* residual = nullptr;                   ///< of the shape and layout of y
  activation act = activation::identity;               ///< the last step, after bias and residual
};

/// What a backward pass applies to dx before it stores it: dx = mask * (dx + (accumulate ? old dx : 0)), where the mask
/// is the derivative of an activation.
template <class Element>
struct backward_epilogue {
  bool accumulate = false;  ///< adds to dx what it contains; otherwise dx is only written
  /// The stored output of `mask`, of the shape and layout of dx. For ReLU, dx becomes 0 where it is not above 0. Null:
  /// no mask.
  const Element* relu_output = nullptr;
  /// An activation, not the identity. dx becomes 0 where relu_output is at or above the cap, and slope * dx where it is
  /// not above 0. Kernels of pooling, resizing and local response normalization take only ReLU.
  activation mask = activation::relu;
};

/// A requirement of `has_conv2d`: conv2d_workspace_bytes returns the bytes of workspace that one pass needs for `batch`
/// images or fewer.
template <class Device, class Element, class Layout>
concept has_conv2d_workspace_bytes = requires(Device& device, const conv2d_geometry& geometry, index_t batch,
                                              pass which) {
  { conv2d_workspace_bytes<Element, Layout>(device, geometry, batch, which) } -> std::same_as<std::size_t>;
};

/// A requirement of `has_conv2d`: conv2d_forward overwrites y (N, O, P, Q) with the convolution of x (N, C, H, W) and
/// w (O, C / groups, R, S), and applies the epilogue.
template <class Device, class Element, class Layout>
concept has_conv2d_forward = requires(Device& device, const conv2d_geometry& geometry,
                                      image_view<const Element, Layout, Device> x,
                                      image_view<const parameter_element_t<Element>, Layout, Device> w,
                                      image_view<Element, Layout, Device> y, const forward_epilogue<Element>& epilogue,
                                      std::span<std::byte> workspace) {
  conv2d_forward(device, geometry, x, w, y, epilogue, workspace);
};

/// A requirement of `has_conv2d`: conv2d_backward_data computes dx (N, C, H, W), the gradient of x, from dy (N, O, P,
/// Q) and w (O, C / groups, R, S), and applies the epilogue. It overwrites dx unless `epilogue.accumulate`.
template <class Device, class Element, class Layout>
concept has_conv2d_backward_data = requires(Device& device, const conv2d_geometry& geometry,
                                            image_view<const Element, Layout, Device> dy,
                                            image_view<const parameter_element_t<Element>, Layout, Device> w,
                                            image_view<Element, Layout, Device> dx,
                                            const backward_epilogue<Element>& epilogue,
                                            std::span<std::byte> workspace) {
  conv2d_backward_data(device, geometry, dy, w, dx, epilogue, workspace);
};

/// A requirement of `has_conv2d`: conv2d_backward_weights overwrites dw (O, C / groups, R, S) and, unless it is null,
/// dbias (O) with their gradients, sums over the batch, from x (N, C, H, W) and dy (N, O, P, Q).
template <class Device, class Element, class Layout>
concept has_conv2d_backward_weights = requires(Device& device, const conv2d_geometry& geometry,
                                               image_view<const Element, Layout, Device> x,
                                               image_view<const Element, Layout, Device> dy,
                                               image_view<parameter_element_t<Element>, Layout, Device> dw,
                                               parameter_element_t<Element>* dbias, std::span<std::byte> workspace) {
  conv2d_backward_weights(device, geometry, x, dy, dw, dbias, workspace);
};

/// A device that computes convolutions; nn::conv2d asks for it.
///
/// Weights and their gradients are of type parameter_element_t<Element>. Weights are stored in the layout of the
/// images. The batch N is that of x or dy, and at most the batch of the workspace. The workspace has
/// conv2d_workspace_bytes of the pass, is aligned to 64 bytes and need not be kept between calls. y must not overlap x
/// or w, dx must not overlap dy or w, and dw must not overlap x or dy. Results are bitwise the same for any number of
/// threads.
template <class Device, class Element, class Layout>
concept has_conv2d =
    has_conv2d_workspace_bytes<Device, Element, Layout> && has_conv2d_forward<Device, Element, Layout> &&
    has_conv2d_backward_data<Device, Element, Layout> && has_conv2d_backward_weights<Device, Element, Layout>;

/// A device that can keep weights in the form in which its forward pass reads them, for networks that are compiled for
/// inference; optional. `prepared` is aligned to 64 bytes.
///
///   conv2d_prepared_bytes            bytes of `prepared`; 0: conv2d_forward reads the weights of this geometry
///   directly conv2d_prepared_workspace_bytes  bytes of workspace of the next two for `batch` images or fewer
///   conv2d_prepare                   writes `prepared` from w (O, C / groups, R, S)
///   conv2d_forward_prepared          the same as conv2d_forward, to the bit
///
/// What one call has prepared holds for all batches, and for devices of the same type with any number of threads.
/// Several threads may read it at the same time.
template <class Device, class Element, class Layout>
concept has_prepared_conv2d = requires(Device& device, const conv2d_geometry& geometry, index_t batch,
                                       image_view<const Element, Layout, Device> x,
                                       image_view<const parameter_element_t<Element>, Layout, Device> w,
                                       image_view<Element, Layout, Device> y, const forward_epilogue<Element>& epilogue,
                                       std::span<std::byte> bytes, std::span<const std::byte> prepared) {
  { conv2d_prepared_bytes<Element, Layout>(device, geometry) } -> std::same_as<std::size_t>;
  { conv2d_prepared_workspace_bytes<Element, Layout>(device, geometry, batch) } -> std::same_as<std::size_t>;
  conv2d_prepare<Element>(device, geometry, w, bytes, bytes);
  conv2d_forward_prepared(device, geometry, x, prepared, y, epilogue, bytes);
};

/// Says which overload of `has_conv2d` the device misses. Always true when it compiles.
template <class Device, class Element, class Layout>
consteval bool explain_conv2d() {
  static_assert(has_conv2d_workspace_bytes<Device, Element, Layout>,
                "gradus: the device lacks a kernel of the network: overload template <class Element, class Layout> "
                "std::size_t conv2d_workspace_bytes(Device&, const conv2d_geometry&, index_t batch, pass); for "
                "gradus::cuda include gradus/kernels/cuda.cuh");
  static_assert(has_conv2d_forward<Device, Element, Layout>,
                "gradus: the device lacks a kernel of the network: overload void conv2d_forward(Device&, const "
                "conv2d_geometry&, x, w, y, const forward_epilogue<Element>&, std::span<std::byte> workspace); for "
                "gradus::cuda include gradus/kernels/cuda.cuh");
  static_assert(has_conv2d_backward_data<Device, Element, Layout>,
                "gradus: the device lacks a kernel of the network: overload void conv2d_backward_data(Device&, const "
                "conv2d_geometry&, dy, w, dx, const backward_epilogue<Element>&, std::span<std::byte> workspace); for "
                "gradus::cuda include gradus/kernels/cuda.cuh");
  static_assert(has_conv2d_backward_weights<Device, Element, Layout>,
                "gradus: the device lacks a kernel of the network: overload void conv2d_backward_weights(Device&, "
                "const conv2d_geometry&, x, dy, dw, parameter_element_t<Element>* dbias, std::span<std::byte> "
                "workspace); for gradus::cuda include gradus/kernels/cuda.cuh");
  return true;
}

}  // namespace gradus::kernels

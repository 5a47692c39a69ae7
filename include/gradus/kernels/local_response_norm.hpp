// SPDX-License-Identifier: BSL-1.0
//
// The contract of local response normalization kernels: its parameters and the functions that every device overloads.
#pragma once

#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

/// The parameters of local response normalization (Krizhevsky, Sutskever, Hinton 2012, section 3.3):
///
///   y(c) = x(c) / d(c)^beta,   d(c) = k + alpha * sum of x(j)^2 over |j - c| <= radius, 0 <= j < C
///
/// at every pixel. The paper uses radius 2, alpha 1e-4, beta 0.75, k 2. `alpha` is that of TensorFlow; the alpha of
/// PyTorch and Caffe is (2 * radius + 1) times this one.
struct local_response_norm_parameters {
  index_t radius = 2;   ///< channels on each side in the sum; at least 0
  double alpha = 1e-4;  ///< factor of the sum of squares, not divided by the number of channels in it
  double beta = 0.75;   ///< exponent
  double k = 2;         ///< constant term of the denominator d(c); above 0
};

/// A requirement of `has_local_response_norm`: local_response_norm_forward overwrites y with the normalized x.
template <class Device, class Element, class Layout>
concept has_local_response_norm_forward = requires(Device& device, image_view<const Element, Layout, Device> x,
                                                   image_view<Element, Layout, Device> y,
                                                   const local_response_norm_parameters& parameters) {
  local_response_norm_forward(device, x, y, parameters);
};

/// A requirement of `has_local_response_norm`: local_response_norm_backward computes the gradient of x,
///
///   dx(j) = dy(j) * d(j)^-beta
///           - 2 * alpha * beta * x(j) * sum of dy(c) * x(c) * d(c)^(-beta - 1) over |j - c| <= radius
///
/// and overwrites dx unless `epilogue.accumulate`.
template <class Device, class Element, class Layout>
concept has_local_response_norm_backward = requires(Device& device, image_view<const Element, Layout, Device> x,
                                                    image_view<const Element, Layout, Device> dy,
                                                    image_view<Element, Layout, Device> dx,
                                                    const local_response_norm_parameters& parameters,
                                                    const backward_epilogue<Element>& epilogue) {
  local_response_norm_backward(device, x, dy, dx, parameters, epilogue);
};

/// A device that normalizes across channels; nn::local_response_norm asks for it.
///
/// Images x, y, dy and dx have the shape (N, C, H, W). Outputs must not overlap inputs. Results are bitwise the same
/// for any number of threads.
template <class Device, class Element, class Layout>
concept has_local_response_norm = has_local_response_norm_forward<Device, Element, Layout> &&
    has_local_response_norm_backward<Device, Element, Layout>;

/// Says which overload of `has_local_response_norm` the device misses. Always true when it compiles.
template <class Device, class Element, class Layout>
consteval bool explain_local_response_norm() {
  static_assert(has_local_response_norm_forward<Device, Element, Layout>,
                "gradus: the device lacks a kernel of the network: overload void local_response_norm_forward(Device&, "
                "x, y, const local_response_norm_parameters&); for gradus::cuda include gradus/kernels/cuda.cuh");
  static_assert(has_local_response_norm_backward<Device, Element, Layout>,
                "gradus: the device lacks a kernel of the network: overload void local_response_norm_backward(Device&, "
                "x, dy, dx, const local_response_norm_parameters&, const backward_epilogue<Element>&); for "
                "gradus::cuda include gradus/kernels/cuda.cuh");
  return true;
}

}  // namespace gradus::kernels

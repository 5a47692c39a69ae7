// SPDX-License-Identifier: BSL-1.0
//
// The contract of 2-D convolution kernels: geometry, epilogues and the functions that every device overloads.
#pragma once

#include <concepts>  // std::same_as
#include <cstddef>   // std::byte, std::size_t
#include <span>      // std::span

#include "gradus/core/element.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/activation.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

/// How a convolution is computed. The choice depends on the shape and on nothing else, so that all ranks compute alike.
enum class convolution_algorithm : unsigned char {
  /// The fastest algorithm of the device for the shape.
  ///
  /// The CPU runs convolutions of float by Winograd's algorithm for kernels of 3x3, 5x5, 1x3, 3x1, 1x7 and 7x1 with
  /// stride 1, on at least 32 channels in multiples of 16. It needs 2 to 6 times fewer multiplications. An infinity in
  /// x makes results near it NaN. Root mean square errors relative to `direct`, as the median (maximum) over some
  /// hundred shapes:
  ///
  ///   kernel size                    3x3        5x5       1x3 and 3x1  1x7 and 7x1
  ///   results and gradients of x     1.9 (2.6)  5 (8.4)   1.4 (1.6)    5 (6.6)
  ///   gradients of weights           1.9 (3.4)  8.6 (20)  1.2 (1.6)    6.6 (10.3)
  ///
  /// Errors of weight gradients are largest where they sum few pixels. CUDA runs the fastest algorithm of cuDNN
  /// (cuda_options::benchmark).
  automatic,
  direct  ///< adds up the terms of every result: neither Winograd nor a Fourier transform
};

/// The geometry of a 2-D convolution (cross-correlation, as in all frameworks) of one image:
///
///   y(n, o, p, q) = bias(o) + sum over i, r, s of
///                   x(n, i, p * stride_height - pad_top + r * dilation_height,
///                           q * stride_width - pad_left + s * dilation_width) * w(o, i, r, s)
///
/// with zeros outside x. Padding at the bottom and on the right follows from the output extents. Padding may exceed the
/// kernel. All sizes are in elements.
struct conv2d_geometry {
  index_t in_channels = 0;    ///< channels of x, of all groups together
  index_t in_height = 0;      ///< rows of an image of x, without padding
  index_t in_width = 0;       ///< columns of an image of x, without padding
  index_t out_channels = 0;   ///< channels of y, of all groups together
  index_t out_height = 0;     ///< rows of an image of y
  index_t out_width = 0;      ///< columns of an image of y
  index_t kernel_height = 1;  ///< rows of the weights of one pair of channels
  index_t kernel_width = 1;   ///< columns of the weights of one pair of channels
  index_t stride_height = 1;  ///< rows of x from one row of y to the next; at least 1
  index_t stride_width = 1;   ///< columns of x from one column of y to the next; at least 1
  index_t pad_top = 0;        ///< rows of zeros above x; at least 0
  index_t pad_left = 0;       ///< columns of zeros to the left of x; at least 0
  index_t groups = 1;  ///< divides in_channels and out_channels; weights are (out_channels, in_channels / groups, r, s)
  index_t dilation_height = 1;  ///< rows of x from one row of the weights to the next; at least 1
  index_t dilation_width = 1;   ///< columns of x from one column of the weights to the next; at least 1
  /// The algorithm of all three passes.
  convolution_algorithm algorithm = convolution_algorithm::automatic;

  /// Rows of x from the first to the last row of the weights, both included.
  [[nodiscard]] constexpr index_t reach_height() const noexcept { return (kernel_height - 1) * dilation_height + 1; }
  /// Columns of x from the first to the last column of the weights, both included.
  [[nodiscard]] constexpr index_t reach_width() const noexcept { return (kernel_width - 1) * dilation_width + 1; }

  /// The shape of x: (n, in_channels, in_height, in_width).
  [[nodiscard]] constexpr image_extents input(index_t n) const noexcept {
    return {n, in_channels, in_height, in_width};
  }
  /// The shape of y: (n, out_channels, out_height, out_width).
  [[nodiscard]] constexpr image_extents output(index_t n) const noexcept {
    return {n, out_channels, out_height, out_width};
  }
  /// The shape of the weights: (out_channels, in_channels / groups, kernel_height, kernel_width).
  [[nodiscard]] constexpr image_extents weights() const noexcept {
    return {out_channels, in_channels / groups, kernel_height, kernel_width};
  }
  /// Multiply-adds of one pass over one image, including those with padding.
  [[nodiscard]] constexpr index_t multiply_adds() const noexcept {
    return out_channels * out_height * out_width * (in_channels / groups) * kernel_height * kernel_width;
  }

  /// Equal in all fields.
  friend constexpr bool operator==(const conv2d_geometry&, const conv2d_geometry&) noexcept = default;
};

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

/// The passes of a layer with weights.
enum class pass : unsigned char {
  forward,          ///< computes y from x and the weights
  backward_data,    ///< computes dx, the gradient of x, from dy and the weights
  backward_weights  ///< computes the gradients of weights and bias from x and dy
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

// SPDX-License-Identifier: BSL-1.0
//
// The contract of 2-D convolution kernels: geometry, epilogues and the functions that every device overloads.
#pragma once

#include "gradus/core/element.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"

namespace gradus::kernels {

/// The function that is applied to a result before it is stored.
enum class activation : unsigned char { identity, relu };

/// The geometry of a 2-D convolution (cross-correlation, as in all frameworks) of one image:
///
///   y(n, o, p, q) = bias(o) + sum over i, r, s of
///                   x(n, i, p * stride_height - pad_top + r, q * stride_width - pad_left + s) * w(o, i, r, s)
///
/// with zeros outside x. Padding at the bottom and on the right follows from the output extents. Padding may exceed the
/// kernel. All sizes are in elements.
struct conv2d_geometry {
  index_t in_channels = 0;
  index_t in_height = 0;
  index_t in_width = 0;
  index_t out_channels = 0;
  index_t out_height = 0;
  index_t out_width = 0;
  index_t kernel_height = 1;
  index_t kernel_width = 1;
  index_t stride_height = 1;
  index_t stride_width = 1;
  index_t pad_top = 0;
  index_t pad_left = 0;
  index_t groups = 1;  ///< divides in_channels and out_channels; weights are (out_channels, in_channels / groups, r, s)

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
  activation act = activation::identity;
};

/// What a backward pass applies to dx before it stores it: dx = mask * (dx + (accumulate ? old dx : 0)).
template <class Element>
struct backward_epilogue {
  bool accumulate = false;
  /// The stored output of a ReLU, of the shape and layout of dx: dx becomes 0 where it is not above 0. Null: no mask.
  const Element* relu_output = nullptr;
};

/// The passes of a layer with weights.
enum class pass : unsigned char { forward, backward_data, backward_weights };

// Every device D in the library overloads, for network elements E, P = parameter_element_t<E>, and layouts L (views are
// image_view<E, L, D>):
//
//   std::size_t conv2d_workspace_bytes<E, L>(D&, const conv2d_geometry&, index_t batch, pass);
//   void conv2d_forward(D&, const conv2d_geometry&, x, w, y, const forward_epilogue<E>&,
//                       std::span<std::byte> workspace);
//   void conv2d_backward_data(D&, const conv2d_geometry&, dy, w, dx, const backward_epilogue<E>&, workspace);
//   void conv2d_backward_weights(D&, const conv2d_geometry&, x, dy, dw, P* dbias, workspace);
//
// Weights are image_view<const P, L, D> of (O, I / groups, R, S) in the layout of the images. backward_weights
// overwrites dw and, unless it is null, dbias (O). The batch is that of x or dy, and at most the batch of the
// workspace. The workspace is aligned to 64 bytes and need not be kept between calls. Results are bitwise the same for
// any number of threads.

}  // namespace gradus::kernels

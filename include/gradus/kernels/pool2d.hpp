// SPDX-License-Identifier: BSL-1.0
//
// The contract of 2-D pooling kernels: geometry and the functions that every device overloads.
#pragma once

#include <cstdint>  // std::uint8_t

#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

/// The geometry of a 2-D pooling of one image. Output (n, c, p, q) covers rows p * stride_height - pad_top + r *
/// dilation_height for 0 <= r < kernel_height, and columns likewise, as far as they are inside the image. All sizes are
/// in elements.
///
/// An adaptive pooling has windows of different extents: output (n, c, p, q) covers rows floor(p * in_height /
/// out_height) to ceil((p + 1) * in_height / out_height) - 1, and columns likewise. Its kernel is the largest window,
/// its stride ceil(in / out), and it has neither padding nor dilation.
struct pool2d_geometry {
  index_t channels = 0;       ///< channels of x and y
  index_t in_height = 0;      ///< rows of an image of x, without padding
  index_t in_width = 0;       ///< columns of an image of x, without padding
  index_t out_height = 0;     ///< rows of an image of y
  index_t out_width = 0;      ///< columns of an image of y
  index_t kernel_height = 1;  ///< rows of x that one row of y covers
  index_t kernel_width = 1;   ///< columns of x that one column of y covers
  index_t stride_height = 1;  ///< rows of x from one row of y to the next; at least 1
  index_t stride_width = 1;   ///< columns of x from one column of y to the next; at least 1
  index_t pad_top = 0;        ///< rows above x that the kernel may cover; at least 0
  index_t pad_left = 0;       ///< columns to the left of x that the kernel may cover; at least 0
  /// Means that count padding: rows of x and of the padding above and below it, which end what counts of a window; 0 if
  /// every window counts as a whole.
  index_t padded_height = 0;
  index_t padded_width = 0;     ///< as padded_height, for columns
  index_t dilation_height = 1;  ///< of maxima: rows of x from one row of the kernel to the next; at least 1
  index_t dilation_width = 1;   ///< of maxima: columns of x from one column of the kernel to the next; at least 1
  bool adaptive = false;        ///< windows of different extents

  /// The shape of x: (n, channels, in_height, in_width).
  [[nodiscard]] constexpr image_extents input(index_t n) const noexcept { return {n, channels, in_height, in_width}; }
  /// The shape of y: (n, channels, out_height, out_width).
  [[nodiscard]] constexpr image_extents output(index_t n) const noexcept {
    return {n, channels, out_height, out_width};
  }

  /// Equal in all fields.
  friend constexpr bool operator==(const pool2d_geometry&, const pool2d_geometry&) noexcept = default;
};

/// A requirement of `has_max_pool2d`: max_pool2d_forward overwrites y with the largest entries of x under the kernel
/// and, unless it is null, choice (N * C * P * Q) with their positions.
template <class Device, class Element, class Layout>
concept has_max_pool2d_forward = requires(Device& device, const pool2d_geometry& geometry,
                                          image_view<const Element, Layout, Device> x,
                                          image_view<Element, Layout, Device> y, std::uint8_t* choice) {
  max_pool2d_forward(device, geometry, x, y, choice);
};

/// A requirement of `has_max_pool2d`: max_pool2d_backward computes dx, where each dy is added to the entry that forward
/// chose, and overwrites dx unless `epilogue.accumulate`.
template <class Device, class Element, class Layout>
concept has_max_pool2d_backward = requires(Device& device, const pool2d_geometry& geometry,
                                           image_view<const Element, Layout, Device> dy, const std::uint8_t* choice,
                                           image_view<Element, Layout, Device> dx,
                                           const backward_epilogue<Element>& epilogue) {
  max_pool2d_backward(device, geometry, dy, choice, dx, epilogue);
};

/// A requirement of `has_average_pool2d`: average_pool2d_forward overwrites y with the means of the entries of x under
/// the kernel.
template <class Device, class Element, class Layout>
concept has_average_pool2d_forward = requires(Device& device, const pool2d_geometry& geometry,
                                              image_view<const Element, Layout, Device> x,
                                              image_view<Element, Layout, Device> y, bool count_padding) {
  average_pool2d_forward(device, geometry, x, y, count_padding);
};

/// A requirement of `has_average_pool2d`: average_pool2d_backward computes dx, where each dy is divided as in forward
/// and added to the entries under the kernel, and overwrites dx unless `epilogue.accumulate`.
template <class Device, class Element, class Layout>
concept has_average_pool2d_backward = requires(Device& device, const pool2d_geometry& geometry,
                                               image_view<const Element, Layout, Device> dy,
                                               image_view<Element, Layout, Device> dx, bool count_padding,
                                               const backward_epilogue<Element>& epilogue) {
  average_pool2d_backward(device, geometry, dy, dx, count_padding, epilogue);
};

/// A device that takes maxima under a kernel; nn::max_pool2d and nn::adaptive_max_pool2d ask for it.
///
/// x and dx have the shape (N, C, H, W), y and dy (N, C, P, Q). Kernels have at most 256 entries. `choice` has
/// r * kernel_width + s for every element of y, in memory order of y. (r, s) is the position under the kernel of the
/// entry that equals y and receives the gradient. The choice is the first largest entry inside the image in the order
/// (r, s); 0 and -0 are equal. If entries are NaN, y is NaN and the choice is the first NaN. (PyTorch's y is the same,
/// and its choice is the last NaN.) Padding is never chosen.
///
/// Every kernel position covers at least one entry of the image. Outputs must not overlap inputs; arrays need only the
/// alignment of their elements. Results are bitwise the same for any number of threads and in any layout.
template <class Device, class Element, class Layout>
concept has_max_pool2d =
    has_max_pool2d_forward<Device, Element, Layout> && has_max_pool2d_backward<Device, Element, Layout>;

/// A device that takes means under a kernel; nn::average_pool2d, nn::global_average_pool2d and
/// nn::adaptive_average_pool2d ask for it.
///
/// x and dx have the shape (N, C, H, W), y and dy (N, C, P, Q). The divisor is the number of entries inside the image,
/// or with count_padding the kernel area as far as it is inside padded_height and padded_width.
///
/// Every kernel position covers at least one entry of the image. Outputs must not overlap inputs; arrays need only the
/// alignment of their elements. Results are bitwise the same for any number of threads.
template <class Device, class Element, class Layout>
concept has_average_pool2d =
    has_average_pool2d_forward<Device, Element, Layout> && has_average_pool2d_backward<Device, Element, Layout>;

/// Says which overload of `has_max_pool2d` the device misses. Always true when it compiles.
template <class Device, class Element, class Layout>
consteval bool explain_max_pool2d() {
  static_assert(has_max_pool2d_forward<Device, Element, Layout>,
                "gradus: the device lacks a kernel of the network: overload void max_pool2d_forward(Device&, const "
                "pool2d_geometry&, x, y, std::uint8_t* choice); for gradus::cuda include gradus/kernels/cuda.cuh");
  static_assert(has_max_pool2d_backward<Device, Element, Layout>,
                "gradus: the device lacks a kernel of the network: overload void max_pool2d_backward(Device&, const "
                "pool2d_geometry&, dy, const std::uint8_t* choice, dx, const backward_epilogue<Element>&); for "
                "gradus::cuda include gradus/kernels/cuda.cuh");
  return true;
}

/// Says which overload of `has_average_pool2d` the device misses. Always true when it compiles.
template <class Device, class Element, class Layout>
consteval bool explain_average_pool2d() {
  static_assert(has_average_pool2d_forward<Device, Element, Layout>,
                "gradus: the device lacks a kernel of the network: overload void average_pool2d_forward(Device&, const "
                "pool2d_geometry&, x, y, bool count_padding); for gradus::cuda include gradus/kernels/cuda.cuh");
  static_assert(has_average_pool2d_backward<Device, Element, Layout>,
                "gradus: the device lacks a kernel of the network: overload void average_pool2d_backward(Device&, "
                "const pool2d_geometry&, dy, dx, bool count_padding, const backward_epilogue<Element>&); for "
                "gradus::cuda include gradus/kernels/cuda.cuh");
  return true;
}

}  // namespace gradus::kernels

// SPDX-License-Identifier: BSL-1.0
//
// The contract of 2-D pooling kernels: geometry and the functions that every device overloads.
#pragma once

#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"

namespace gradus::kernels {

/// The geometry of a 2-D pooling of one image. Output (n, c, p, q) covers rows p * stride_height - pad_top + [0,
/// kernel_height), and columns likewise, as far as they are inside the image. All sizes are in elements.
struct pool2d_geometry {
  index_t channels = 0;
  index_t in_height = 0;
  index_t in_width = 0;
  index_t out_height = 0;
  index_t out_width = 0;
  index_t kernel_height = 1;
  index_t kernel_width = 1;
  index_t stride_height = 1;
  index_t stride_width = 1;
  index_t pad_top = 0;
  index_t pad_left = 0;

  /// The shape of x: (n, channels, in_height, in_width).
  [[nodiscard]] constexpr image_extents input(index_t n) const noexcept { return {n, channels, in_height, in_width}; }
  /// The shape of y: (n, channels, out_height, out_width).
  [[nodiscard]] constexpr image_extents output(index_t n) const noexcept {
    return {n, channels, out_height, out_width};
  }

  /// Equal in all fields.
  friend constexpr bool operator==(const pool2d_geometry&, const pool2d_geometry&) noexcept = default;
};

// Every device D in the library overloads, for network elements E and layouts L:
//
//   void max_pool2d_forward(D&, const pool2d_geometry&, x, y, std::uint8_t* choice);
//   void max_pool2d_backward(D&, const pool2d_geometry&, dy, const std::uint8_t* choice, dx,
//                            const backward_epilogue<E>&);
//   void average_pool2d_forward(D&, const pool2d_geometry&, x, y, bool count_padding);
//   void average_pool2d_backward(D&, const pool2d_geometry&, dy, dx, bool count_padding, const backward_epilogue<E>&);
//
// `choice` (null: not needed) receives r * kernel_width + s for every element of y, in memory order of y. (r, s) is the
// position under the kernel of the entry that equals y and receives the gradient. Kernels have at most 256 entries. The
// choice is the first largest entry inside the image in the order (r, s); 0 and -0 are equal. If entries are NaN, y is
// NaN and the choice is the first NaN. (PyTorch's y is the same, and its choice is the last NaN.) Padding is never
// chosen.
//
// Average pooling divides by the number of entries inside the image, or with count_padding by the kernel area. Every
// kernel position covers at least one entry of the image. Outputs must not overlap inputs; arrays need only the
// alignment of their elements. Results are bitwise the same for any number of threads, and for max pooling in any
// layout.

}  // namespace gradus::kernels

// SPDX-License-Identifier: BSL-1.0
//
// The shape of a 2-D pooling; every device overloads the passes on it.
#pragma once

#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"

namespace gradus::kernels {

/// The windows of a 2-D pooling of one image: y(n, c, p, q) is taken over the rows p*stride_height - pad_top + [0,
/// kernel_height) and columns likewise, as far as they lie inside the image. All in elements.
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

  /// (n, channels, in_height, in_width)
  [[nodiscard]] constexpr image_extents input(index_t n) const noexcept { return {n, channels, in_height, in_width}; }
  /// (n, channels, out_height, out_width)
  [[nodiscard]] constexpr image_extents output(index_t n) const noexcept {
    return {n, channels, out_height, out_width};
  }

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
// `choice` (null: not wanted) holds for every element of y, in its memory order, r * kernel_width + s of the entry of
// its window that y is and that gets the gradient; kernels have at most 256 entries. It is the first largest one in the
// order (r, s) of those inside the image: of equal entries the first, and 0 and -0 are equal. Where entries are NaN, y
// is NaN and the entry the first that is. (PyTorch's y is the same, and its entry the last NaN.) Padding is never an
// entry.
//
// Average pooling divides by the entries inside the image, or with count_padding by the whole kernel. Every window has
// at least one entry inside the image. Outputs do not overlap inputs; arrays need no alignment but their elements'. The
// same bits for any number of threads, and for maximum pooling in any layout.

}  // namespace gradus::kernels

// SPDX-License-Identifier: BSL-1.0
//
// The shape of a convolution of a batch, with the padding on all sides.
#pragma once

#include <ostream>

#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"

namespace conv {

using gradus::image_extents;
using gradus::index_t;
using gradus::kernels::conv2d_geometry;

/// A convolution of a batch.
struct shape {
  index_t batch = 1;
  index_t in = 1;
  index_t height = 1;
  index_t width = 1;
  index_t out = 1;
  index_t kernel_height = 1;
  index_t kernel_width = 1;
  index_t stride_height = 1;
  index_t stride_width = 1;
  index_t pad_top = 0;
  index_t pad_left = 0;
  index_t pad_bottom = 0;
  index_t pad_right = 0;
  index_t groups = 1;

  friend bool operator==(const shape&, const shape&) = default;

  [[nodiscard]] conv2d_geometry geometry() const {
    return {.in_channels = in,
            .in_height = height,
            .in_width = width,
            .out_channels = out,
            .out_height = (height + pad_top + pad_bottom - kernel_height) / stride_height + 1,
            .out_width = (width + pad_left + pad_right - kernel_width) / stride_width + 1,
            .kernel_height = kernel_height,
            .kernel_width = kernel_width,
            .stride_height = stride_height,
            .stride_width = stride_width,
            .pad_top = pad_top,
            .pad_left = pad_left,
            .groups = groups};
  }
};

inline std::ostream& operator<<(std::ostream& stream, const shape& s) {
  return stream << s.batch << " images " << s.in << "x" << s.height << "x" << s.width << " -> " << s.out << ", kernel "
                << s.kernel_height << "x" << s.kernel_width << ", stride " << s.stride_height << "x" << s.stride_width
                << ", padding " << s.pad_top << " " << s.pad_left << " " << s.pad_bottom << " " << s.pad_right
                << ", groups " << s.groups;
}

}  // namespace conv

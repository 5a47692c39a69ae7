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
  index_t dilation_height = 1;
  index_t dilation_width = 1;

  friend bool operator==(const shape&, const shape&) = default;

  [[nodiscard]] index_t reach_height() const { return (kernel_height - 1) * dilation_height + 1; }
  [[nodiscard]] index_t reach_width() const { return (kernel_width - 1) * dilation_width + 1; }

  [[nodiscard]] conv2d_geometry geometry() const {
    return {.in_channels = in,
            .in_height = height,
            .in_width = width,
            .out_channels = out,
            .out_height = (height + pad_top + pad_bottom - reach_height()) / stride_height + 1,
            .out_width = (width + pad_left + pad_right - reach_width()) / stride_width + 1,
            .kernel_height = kernel_height,
            .kernel_width = kernel_width,
            .stride_height = stride_height,
            .stride_width = stride_width,
            .pad_top = pad_top,
            .pad_left = pad_left,
            .groups = groups,
            .dilation_height = dilation_height,
            .dilation_width = dilation_width};
  }
};

inline std::ostream& operator<<(std::ostream& stream, const shape& s) {
  return stream << s.batch << " images " << s.in << "x" << s.height << "x" << s.width << " -> " << s.out << ", kernel "
                << s.kernel_height << "x" << s.kernel_width << ", stride " << s.stride_height << "x" << s.stride_width
                << ", padding " << s.pad_top << " " << s.pad_left << " " << s.pad_bottom << " " << s.pad_right
                << ", groups " << s.groups << ", dilation " << s.dilation_height << "x" << s.dilation_width;
}

}  // namespace conv

// SPDX-License-Identifier: BSL-1.0
//
// The padding of images by a mode: its extents and what a mode can do.
#pragma once

#include <algorithm>    // std::max
#include <string_view>  // std::string_view

#include "gradus/core/compiled.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/pad2d.hpp"
#include "gradus/nn/layers/padding.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::nn::detail {

/// Throws unless a mode can pad an axis of `extent` elements by `amount` elements on one side.
void require_padding(std::string_view operation, kernels::padding_mode mode, index_t extent, index_t amount);

/// The padding of an image on all sides for a kernel that slides over it.
/// @throws configuration_error for a negative padding
/// @throws shape_error when the mode needs a larger image
kernels::pad2d_geometry pad_around(std::string_view operation, const value_shape& in, size2d kernel, size2d stride,
                                   const padding& pad, kernels::chosen_padding_mode mode);

}  // namespace gradus::nn::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn::detail {

GRADUS_INLINE void require_padding(std::string_view operation, kernels::padding_mode mode, index_t extent,
                                   index_t amount) {
  if (amount < 0) {
    raise<configuration_error>(operation, "padding of at least 0", {amount});
  }
  if (mode == kernels::padding_mode::reflect && amount >= extent) {
    raise<shape_error>(operation, {"padding of less than ", extent, " (the extent), as the mode is reflect"}, {amount},
                       "pad less, or use padding_mode::replicate");
  }
  if (mode == kernels::padding_mode::circular && amount > extent) {
    raise<shape_error>(operation, {"padding of at most ", extent, " (the extent), as the mode is circular"}, {amount},
                       "pad less, or pad several times");
  }
}

GRADUS_INLINE kernels::pad2d_geometry pad_around(std::string_view operation, const value_shape& in, size2d kernel,
                                                 size2d stride, const padding& pad, kernels::chosen_padding_mode mode) {
  kernels::pad2d_geometry g{.channels = in.channels,
                            .height = in.height,
                            .width = in.width,
                            .top = pad.top(),
                            .bottom = pad.bottom(),
                            .left = pad.left(),
                            .right = pad.right(),
                            .mode = mode};
  if (pad.rule() == padding::kind::same) {
    const auto total = [](index_t input, index_t taps, index_t step) {
      return std::max<index_t>(0, ((input + step - 1) / step - 1) * step + taps - input);
    };
    const index_t rows = total(in.height, kernel.height, stride.height);
    const index_t columns = total(in.width, kernel.width, stride.width);
    g.top = rows / 2;
    g.bottom = rows - g.top;
    g.left = columns / 2;
    g.right = columns - g.left;
  }
  require_few_steps(operation, "padding", std::max(g.top, g.bottom), std::max(g.left, g.right));
  for (const index_t amount : {g.top, g.bottom}) {
    require_padding(operation, mode, in.height, amount);
  }
  for (const index_t amount : {g.left, g.right}) {
    require_padding(operation, mode, in.width, amount);
  }
  return g;
}

}  // namespace gradus::nn::detail
#endif

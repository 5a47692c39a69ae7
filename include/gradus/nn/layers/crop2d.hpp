// SPDX-License-Identifier: BSL-1.0
//
// The layers crop2d and slice: parts of images.
#pragma once

#include <algorithm>    // std::max
#include <array>        // std::array
#include <limits>       // std::numeric_limits
#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/nn/detail/shaping/memory_order.hpp"
#include "gradus/nn/detail/shaping/strided_layer.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/layers/padding.hpp"

namespace gradus::nn {

namespace detail {
class crop2d_base;
class slice_base;
}  // namespace detail

/// Options of a crop: the rows [top, top + height) and columns [left, left + width) of an image. With a second input
/// the crop has its height and width and is centered, as in a U-Net (Ronneberger et al. 2015): an odd pixel more is
/// left at the bottom and to the right.
///
///   symbol | meaning                            | shape
///   x      | input                              | (N, C, H, W)
///   s      | optional second input: only a size | (N, D, height, width)
///   y      | output                             | (N, C, height, width)
///
/// Gradients for g = dL/dy: dL/dx is g in the crop and 0 around it; dL/ds = 0. Overwritten or accumulated.
///
/// @throws configuration_error (network::add) when size, or with a second input also an option, is not possible
/// @throws shape_error (network::add) for a flattened image, or when the crop is larger than the image
struct crop2d {
  index_t top = 0;    ///< rows above the crop
  index_t left = 0;   ///< columns to the left of the crop
  size2d size{0, 0};  ///< of the crop; not with a second input

  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  using layer = detail::layer_in_order<crop2d, detail::strided_layer<Element, Device, detail::crop2d_base>, Layout>;
};

/// The indices [begin, end) of one axis. `end` is at most the extent.
struct index_range {
  index_t begin = 0;  ///< the first index
  index_t end = -1;   ///< one behind the last index; -1: to the end of the axis
};

/// Options of a slice: a range of channels, rows and columns of an image, each the whole axis unless it is given.
///
///   symbol | meaning | shape
///   x      | input   | (N, C, H, W)
///   y      | output  | (N, channels, rows, columns) of the ranges
///
/// Gradients for g = dL/dy: dL/dx is g in the ranges, else 0   (N, C, H, W)   overwritten or accumulated
///
/// @throws configuration_error (network::add) when a range is empty or not within its axis
/// @throws shape_error (network::add) for a flattened image
struct slice {
  index_range channels{};  ///< which channels
  index_range rows{};      ///< which rows
  index_range columns{};   ///< which columns

  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  using layer = detail::layer_in_order<slice, detail::strided_layer<Element, Device, detail::slice_base>, Layout>;
};

namespace detail {

/// A layer whose output is a part of its input.
class region_base : public strided_base {
 public:
  using strided_base::strided_base;

  void attributes(attribute_visitor& visit) const override {
    visit.operation("slice");
    visit.integers("begin", std::array{first_.channels, first_.height, first_.width});
  }

 protected:
  using strided_base::move;

  [[nodiscard]] strided_move move(index_t batch, const axis_strides& from, const axis_strides& to) const override {
    strided_move result;
    result.shape.axes[0] = {batch, from[0], to[0]};
    result.shape.axes[1] = {part_.channels, from[1], to[1]};
    result.shape.axes[2] = {part_.height, from[2], to[2]};
    result.shape.axes[3] = {part_.width, from[3], to[3]};
    result.from = first_.channels * from[1] + first_.height * from[2] + first_.width * from[3];
    return result;
  }

  value_shape part_;            // extents of the output; infer sets it
  value_shape first_{0, 0, 0};  // coordinates of its first element in the input
};

/// The part of the layer that does not depend on element type, layout and device.
class crop2d_base : public region_base {
 public:
  crop2d_base(const crop2d& options, const axis_order& order)
      : region_base{order}, top_{options.top}, left_{options.left}, size_{options.size} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "crop2d"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    if (inputs.empty() || inputs.size() > 2) {
      raise<configuration_error>(kind(), "1 input value, or 2: the second gives the size", {inputs.size()});
    }
    const value_shape& in = inputs[0];
    require_image(kind(), in, "crop before nn::flatten");
    part_ = in;
    if (inputs.size() == 2) {
      require_image(kind(), inputs[1], "give the size of an image");
      if (top_ != 0 || left_ != 0 || size_ != size2d{0, 0}) {
        raise<configuration_error>(kind(), "no top, left and size with a second input", "an option",
                                   "the crop has the size of the second input and is centered");
      }
      part_.height = inputs[1].height;
      part_.width = inputs[1].width;
      first_.height = std::max(index_t{0}, in.height - part_.height) / 2;
      first_.width = std::max(index_t{0}, in.width - part_.width) / 2;
    } else {
      require_at_least(kind(), "top", 0, top_);
      require_at_least(kind(), "left", 0, left_);
      constexpr std::string_view hint =
          "give .size, or a second input whose size the crop has: net.add(\"skip\", nn::crop2d{}, {larger, smaller})";
      require_at_least(kind(), "size.height", 1, size_.height, hint);
      require_at_least(kind(), "size.width", 1, size_.width, hint);
      part_.height = size_.height;
      part_.width = size_.width;
      first_.height = top_;
      first_.width = left_;
    }
    const index_t rows = end_of(first_.height, part_.height);
    const index_t columns = end_of(first_.width, part_.width);
    if (rows > in.height || columns > in.width) {
      raise<shape_error>(kind(), {"an image of at least ", rows, " x ", columns, " pixels"}, describe(in),
                         inputs.size() == 2
                             ? "the first input is cropped to the size of the second: write {larger, smaller}"
                             : "take a smaller size, top or left");
    }
    return part_;
  }

 private:
  /// first + extent, or the largest number where they do not fit.
  [[nodiscard]] static index_t end_of(index_t first, index_t extent) noexcept {
    constexpr index_t most = std::numeric_limits<index_t>::max();
    return first > most - extent ? most : first + extent;
  }

  index_t top_;
  index_t left_;
  size2d size_;
};

/// The part of the layer that does not depend on element type, layout and device.
class slice_base : public region_base {
 public:
  slice_base(const slice& options, const axis_order& order)
      : region_base{order}, channels_{options.channels}, rows_{options.rows}, columns_{options.columns} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "slice"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    require_inputs(kind(), 1, inputs.size());
    require_image(kind(), inputs[0], "slice before nn::flatten");
    part_ = inputs[0];
    take("channels", channels_, first_.channels, part_.channels);
    take("rows", rows_, first_.height, part_.height);
    take("columns", columns_, first_.width, part_.width);
    return part_;
  }

 private:
  void take(std::string_view name, const index_range& range, index_t& first, index_t& extent) const {
    const index_t end = range.end == -1 ? extent : range.end;
    if (range.begin < 0 || range.begin >= end || end > extent) {
      raise<configuration_error>(kind(), {name, " within [0, ", extent, ")"}, {"[", range.begin, ", ", end, ")"});
    }
    first = range.begin;
    extent = end - range.begin;
  }

  index_range channels_;
  index_range rows_;
  index_range columns_;
};

}  // namespace detail
}  // namespace gradus::nn

GRADUS_COMPILED_LAYER(::gradus::nn::crop2d)
GRADUS_COMPILED_LAYER(::gradus::nn::slice)

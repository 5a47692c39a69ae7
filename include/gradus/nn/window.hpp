// SPDX-License-Identifier: BSL-1.0
//
// Sliding windows of convolutions and poolings: sizes, padding, and the extents that follow.
#pragma once

#include <algorithm>    // std::max
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"

namespace gradus::nn {

/// A height and a width, in elements.
struct size2d {
  index_t height = 1;
  index_t width = 1;

  friend constexpr bool operator==(const size2d&, const size2d&) noexcept = default;
};

/// How an image is continued beyond its border, before a window slides over it.
///
///   same()          as many outputs as ceil(input / stride); the odd element goes below and to the right (TensorFlow)
///   valid()         nothing is added
///   explicit_padding(p), explicit_padding(top, bottom, left, right)
class padding {
 public:
  enum class kind : unsigned char { same, valid, explicit_amount };

  [[nodiscard]] static constexpr padding same() noexcept { return padding{kind::same}; }
  [[nodiscard]] static constexpr padding valid() noexcept { return padding{kind::valid}; }
  [[nodiscard]] static constexpr padding explicit_padding(index_t all) noexcept {
    return explicit_padding(all, all, all, all);
  }
  [[nodiscard]] static constexpr padding explicit_padding(index_t top, index_t bottom, index_t left,
                                                          index_t right) noexcept {
    padding result{kind::explicit_amount};
    result.top_ = top;
    result.bottom_ = bottom;
    result.left_ = left;
    result.right_ = right;
    return result;
  }

  [[nodiscard]] constexpr kind rule() const noexcept { return rule_; }
  [[nodiscard]] constexpr index_t top() const noexcept { return top_; }
  [[nodiscard]] constexpr index_t bottom() const noexcept { return bottom_; }
  [[nodiscard]] constexpr index_t left() const noexcept { return left_; }
  [[nodiscard]] constexpr index_t right() const noexcept { return right_; }

 private:
  explicit constexpr padding(kind rule) noexcept : rule_{rule} {}

  kind rule_;
  index_t top_ = 0;
  index_t bottom_ = 0;
  index_t left_ = 0;
  index_t right_ = 0;
};

namespace detail {

/// The outputs along one axis and the padding before the first element.
struct window_axis {
  index_t outputs = 0;
  index_t before = 0;
};

GRADUS_COLD inline window_axis slide(std::string_view operation, index_t input, index_t kernel, index_t stride,
                                     padding::kind rule, index_t before, index_t after) {
  if (rule == padding::kind::same) {
    const index_t outputs = (input + stride - 1) / stride;
    return {outputs, std::max<index_t>(0, (outputs - 1) * stride + kernel - input) / 2};
  }
  if (before < 0 || after < 0) {
    raise<configuration_error>(operation, "padding of at least 0", {std::min(before, after)});
  }
  const index_t room = input + before + after - kernel;
  if (room < 0) {
    raise<shape_error>(operation, {"a padded input of at least ", kernel, " (the kernel's extent)"},
                       {input + before + after},
                       "use padding::same(), a smaller kernel, or fewer poolings before this layer");
  }
  return {room / stride + 1, before};
}

/// The extents and padding of the windows over an image.
struct window_extents {
  index_t out_height = 0;
  index_t out_width = 0;
  index_t pad_top = 0;
  index_t pad_left = 0;
};

/// @throws configuration_error for kernels, strides or padding that make no sense
/// @throws shape_error when the kernel does not fit the padded image
GRADUS_COLD inline window_extents slide(std::string_view operation, size2d input, size2d kernel, size2d stride,
                                        padding pad) {
  if (kernel.height < 1 || kernel.width < 1) {
    raise<configuration_error>(operation, "a kernel of at least 1 x 1", {kernel.height, " x ", kernel.width});
  }
  if (stride.height < 1 || stride.width < 1) {
    raise<configuration_error>(operation, "a stride of at least 1 x 1", {stride.height, " x ", stride.width});
  }
  const window_axis rows =
      slide(operation, input.height, kernel.height, stride.height, pad.rule(), pad.top(), pad.bottom());
  const window_axis columns =
      slide(operation, input.width, kernel.width, stride.width, pad.rule(), pad.left(), pad.right());
  return {rows.outputs, columns.outputs, rows.before, columns.before};
}

}  // namespace detail
}  // namespace gradus::nn

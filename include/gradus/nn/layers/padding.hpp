// SPDX-License-Identifier: BSL-1.0
//
// Kernel sizes, strides and padding of convolutions and poolings, and the output extents that follow.
#pragma once

#include <algorithm>    // std::max, std::min
#include <concepts>     // std::integral
#include <limits>       // std::numeric_limits
#include <string_view>  // std::string_view

#include "gradus/core/compiled.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"

namespace gradus::nn {

struct size2d;

/// The distances of the taps of a convolution's kernel, in elements: 2 reads every second row and column. It converts
/// from and to a size2d. A program that sets one compiles the code for dilated convolutions.
struct dilation2d {
  kernels::dilation height = {};  ///< rows from one row of the kernel to the next
  kernels::dilation width = {};   ///< columns from one column of the kernel to the next

  /// Adjacent taps.
  constexpr dilation2d() noexcept = default;
  /// One number for both directions: `.dilation = 2`.
  template <std::integral Integer>
  constexpr dilation2d(Integer both) noexcept : height{static_cast<index_t>(both)}, width{static_cast<index_t>(both)} {}
  /// Rows and columns: `.dilation = {2, 1}`.
  constexpr dilation2d(kernels::dilation rows, kernels::dilation columns) noexcept : height{rows}, width{columns} {}

  /// Both distances as numbers.
  constexpr operator size2d() const noexcept;
};

/// A height and a width, in elements.
struct size2d {
  index_t height = 1;  ///< vertical extent: rows
  index_t width = 1;   ///< horizontal extent: columns

  /// 1 x 1.
  constexpr size2d() noexcept = default;
  /// One number for both extents: `.kernel = 3`.
  template <std::integral Integer>
  constexpr size2d(Integer both) noexcept : height{static_cast<index_t>(both)}, width{static_cast<index_t>(both)} {}
  /// Rows and columns: `.kernel = {3, 5}`.
  constexpr size2d(index_t rows, index_t columns) noexcept : height{rows}, width{columns} {}

  /// The distances of the taps of a kernel.
  constexpr operator dilation2d() const noexcept { return {height, width}; }

  /// True if both extents are equal.
  friend constexpr bool operator==(const size2d&, const size2d&) noexcept = default;
};

constexpr dilation2d::operator size2d() const noexcept {
  return {height, width};
}

/// As the stride of a pooling: the kernel's extents, as in PyTorch and ONNX.
inline constexpr size2d stride_of_kernel = std::numeric_limits<index_t>::min();

/// How many zeros surround an image before a kernel slides over it.
///
///   same()                   the output extent is ceil(input / stride); an odd element is added below and to the right
///                            (as in TensorFlow)
///   valid()                  no padding
///   p                        p elements on every side, as a number is in PyTorch: .padding = 1
///   {p, q}                   p rows above and below, q columns to the left and to the right
///   explicit_padding(p)      p elements on every side
///   explicit_padding(top, bottom, left, right)
class padding {
 public:
  /// The rule that sets the padding.
  enum class kind : unsigned char { same, valid, explicit_amount };

  /// `all` elements on every side.
  template <std::integral Integer>
  constexpr padding(Integer all) noexcept : padding{static_cast<index_t>(all), static_cast<index_t>(all)} {}
  /// `rows` above and below, `columns` to the left and to the right.
  constexpr padding(index_t rows, index_t columns) noexcept
      : rule_{kind::explicit_amount}, top_{rows}, bottom_{rows}, left_{columns}, right_{columns} {}

  /// The output extent is ceil(input / stride).
  [[nodiscard]] static constexpr padding same() noexcept { return padding{kind::same}; }
  /// No padding.
  [[nodiscard]] static constexpr padding valid() noexcept { return padding{kind::valid}; }
  /// `all` elements on every side.
  [[nodiscard]] static constexpr padding explicit_padding(index_t all) noexcept { return all; }
  /// The given number of elements on each side.
  [[nodiscard]] static constexpr padding explicit_padding(index_t top, index_t bottom, index_t left,
                                                          index_t right) noexcept {
    padding result{kind::explicit_amount};
    result.top_ = top;
    result.bottom_ = bottom;
    result.left_ = left;
    result.right_ = right;
    return result;
  }

  /// The rule; the four extents below are 0 unless it is explicit_amount.
  [[nodiscard]] constexpr kind rule() const noexcept { return rule_; }
  /// Elements added above the image.
  [[nodiscard]] constexpr index_t top() const noexcept { return top_; }
  /// Elements added below the image.
  [[nodiscard]] constexpr index_t bottom() const noexcept { return bottom_; }
  /// Elements added to the left of the image.
  [[nodiscard]] constexpr index_t left() const noexcept { return left_; }
  /// Elements added to the right of the image.
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

/// The largest kernel extent, dilation, stride and padding. Products of two, and of such a product with an extent, fit
/// index_t.
inline constexpr index_t most_steps = index_t{1} << 20U;

/// @throws configuration_error when an extent of an option is above most_steps
inline void require_few_steps(std::string_view operation, std::string_view option, index_t height, index_t width) {
  if (height > most_steps || width > most_steps) {
    raise<configuration_error>(operation, {"a ", option, " of at most ", most_steps, " elements"},
                               {std::max(height, width)});
  }
}

/// @throws configuration_error when the kernel moves by so many elements that planning its passes, which takes a part
/// for each position within a stride, would not end
void require_planned_strides(std::string_view operation, size2d stride);

/// The output extent along one axis, and the padding before the first element.
struct sliding_axis {
  index_t outputs = 0;
  index_t before = 0;
};

sliding_axis slide(std::string_view operation, index_t input, index_t kernel, index_t stride, padding::kind rule,
                   index_t before, index_t after);

/// Throws unless a dilation is at least 1 x 1, and returns the extents of a kernel with it.
size2d dilated_kernel(std::string_view operation, size2d kernel, size2d dilation);

/// The output extents of a kernel that slides over an image, and the padding before the first row and column.
struct sliding_extents {
  index_t out_height = 0;
  index_t out_width = 0;
  index_t pad_top = 0;
  index_t pad_left = 0;
};

/// Output extents and padding for an input image.
/// @throws configuration_error for a kernel, stride or padding that is not possible
/// @throws shape_error when the kernel does not fit the padded image
sliding_extents slide(std::string_view operation, size2d input, size2d kernel, size2d stride, padding pad);

/// @param image   the side with as many pixels as the kernel reads, all steps together
/// @param steps   positions of the kernel
/// @param kernel  its extents, with dilation
/// @throws shape_error when what the kernel slides over, with padding on all sides, has so many elements that sizes of
///         workspaces do not fit index_t
void require_few_positions(std::string_view operation, index_t channels, size2d image, size2d steps, size2d stride,
                           size2d kernel);

}  // namespace detail
}  // namespace gradus::nn

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn::detail {

GRADUS_INLINE void require_planned_strides(std::string_view operation, size2d stride) {
  require_few_steps(operation, "stride", stride.height, stride.width);
  constexpr index_t most_parts = index_t{1} << 16U;
  if (stride.height * stride.width > most_parts) {
    raise<configuration_error>(operation, {"a stride of at most ", most_parts, " rows times columns"},
                               {stride.height, " x ", stride.width});
  }
}

GRADUS_INLINE sliding_axis slide(std::string_view operation, index_t input, index_t kernel, index_t stride,
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

GRADUS_INLINE size2d dilated_kernel(std::string_view operation, size2d kernel, size2d dilation) {
  if (dilation.height < 1 || dilation.width < 1) {
    raise<configuration_error>(operation, "a dilation of at least 1 x 1", {dilation.height, " x ", dilation.width});
  }
  require_few_steps(operation, "kernel", kernel.height, kernel.width);
  require_few_steps(operation, "dilation", dilation.height, dilation.width);
  const auto reach = [](index_t taps, index_t step) { return taps < 1 ? taps : (taps - 1) * step + 1; };
  return {reach(kernel.height, dilation.height), reach(kernel.width, dilation.width)};
}

GRADUS_INLINE sliding_extents slide(std::string_view operation, size2d input, size2d kernel, size2d stride,
                                    padding pad) {
  if (kernel.height < 1 || kernel.width < 1) {
    raise<configuration_error>(operation, "a kernel of at least 1 x 1", {kernel.height, " x ", kernel.width});
  }
  if (stride.height < 1 || stride.width < 1) {
    raise<configuration_error>(operation, "a stride of at least 1 x 1", {stride.height, " x ", stride.width});
  }
  require_few_steps(operation, "stride", stride.height, stride.width);
  require_few_steps(operation, "padding", std::max(pad.top(), pad.bottom()), std::max(pad.left(), pad.right()));
  const sliding_axis rows =
      slide(operation, input.height, kernel.height, stride.height, pad.rule(), pad.top(), pad.bottom());
  const sliding_axis columns =
      slide(operation, input.width, kernel.width, stride.width, pad.rule(), pad.left(), pad.right());
  return {rows.outputs, columns.outputs, rows.before, columns.before};
}

GRADUS_INLINE void require_few_positions(std::string_view operation, index_t channels, size2d image, size2d steps,
                                         size2d stride, size2d kernel) {
  constexpr double most = 0x1p52;
  const auto along = [](index_t pixels, index_t count, index_t step, index_t taps) {
    return static_cast<double>(pixels) + static_cast<double>(count) * static_cast<double>(step) +
           static_cast<double>(taps);
  };
  const double rows = along(image.height, steps.height, stride.height, kernel.height);
  const double columns = along(image.width, steps.width, stride.width, kernel.width);
  if (!(static_cast<double>(channels) * rows * columns <= most)) {
    raise<shape_error>(operation, {"an image with padding and steps of at most 2^52 elements"},
                       {channels, " x ", rows, " x ", columns},
                       "use fewer channels, a smaller kernel or a smaller stride");
  }
}

}  // namespace gradus::nn::detail
#endif

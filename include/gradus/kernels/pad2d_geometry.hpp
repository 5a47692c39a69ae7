// SPDX-License-Identifier: BSL-1.0
//
// The modes and the geometry of padding around images. Include gradus/kernels/pad2d.hpp, which has the code that a
// chosen mode refers to.
#pragma once

#include <array>        // std::array
#include <concepts>     // std::integral, std::same_as
#include <cstddef>      // std::size_t
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/activation.hpp"

namespace gradus {
class cpu;
}

namespace gradus::kernels {

/// What the elements around an image are, for the row a b c d with padding of 2 on both sides. Modes of
/// torch.nn.functional.pad.
enum class padding_mode : unsigned char {
  zeros,      ///< 0 0 a b c d 0 0; pad2d_geometry::value instead of 0
  reflect,    ///< c b a b c d c b; padding is less than the extent
  replicate,  ///< a a a b c d d d
  circular    ///< c d a b c d a b: a periodic domain; padding is at most the extent
};

/// The name of a mode: "reflect".
[[nodiscard]] constexpr std::string_view name_of(padding_mode mode) noexcept {
  constexpr std::array<std::string_view, 4> names{"zeros", "reflect", "replicate", "circular"};
  return names[static_cast<std::size_t>(mode)];
}

struct pad2d_geometry;

namespace detail {

/// A batch of images, without the type of its elements.
struct erased_images {
  index_t images;
  bool channels_last;     ///< nhwc
  index_t element_bytes;  ///< of an element
};

/// The sums of copies, of one element type. Null pointers: no mask.
struct fold_call;
using fold_function = void(const fold_call& call);

/// How the CPU pads images, for all element types and layouts.
struct padding_passes {
  /// @param value  the element around x with padding_mode::zeros
  void (*forward)(cpu& device, const pad2d_geometry& g, const erased_images& batch, const void* value, const void* x,
                  void* y);
  /// @param fold  of the element type
  void (*backward)(cpu& device, const pad2d_geometry& g, const erased_images& batch, fold_function* fold,
                   const void* dy, void* dx, bool accumulate, const void* relu_output, const activation& mask);

  /// Defined in kernels/cpu/detail/pad2d/padded_images.hpp.
  static const padding_passes on_cpu;
};

}  // namespace detail

/// A padding_mode that was chosen. It converts from and to a padding_mode. A program that chooses one compiles the code
/// for padding; other programs do not.
class chosen_padding_mode {
 public:
  /// Zeros, where no kernel has to pad: a convolution does it by itself.
  constexpr chosen_padding_mode() noexcept = default;
  /// `mode`, for kernels that pad.
  constexpr chosen_padding_mode(padding_mode mode) noexcept : mode_{mode}, passes_{&detail::padding_passes::on_cpu} {}
  /// The mode.
  [[nodiscard]] constexpr operator padding_mode() const noexcept { return mode_; }
  /// The number of the mode.
  template <std::integral Number>
  requires(!std::same_as<Number, bool>) [[nodiscard]] explicit constexpr operator Number() const noexcept {
    return static_cast<Number>(mode_);
  }

  /// How the CPU pads; null if no mode was chosen.
  [[nodiscard]] constexpr const detail::padding_passes* passes() const noexcept { return passes_; }

 private:
  padding_mode mode_ = padding_mode::zeros;
  const detail::padding_passes* passes_ = nullptr;
};

/// The padding of a batch of images x (N, C, H, W) to y (N, C, top + H + bottom, left + W + right). Sizes in elements.
struct pad2d_geometry {
  index_t channels = 0;                            ///< C
  index_t height = 0;                              ///< H
  index_t width = 0;                               ///< W
  index_t top = 0;                                 ///< rows above x; at least 0
  index_t bottom = 0;                              ///< rows below x
  index_t left = 0;                                ///< columns to the left of x
  index_t right = 0;                               ///< columns to the right of x
  chosen_padding_mode mode = padding_mode::zeros;  ///< what the elements around x are
  double value = 0;                                ///< of the elements around x, with padding_mode::zeros

  /// The shape of x.
  [[nodiscard]] constexpr image_extents input(index_t n) const noexcept { return {n, channels, height, width}; }
  /// The shape of y.
  [[nodiscard]] constexpr image_extents output(index_t n) const noexcept {
    return {n, channels, top + height + bottom, left + width + right};
  }
  /// Equal in all fields.
  friend constexpr bool operator==(const pad2d_geometry&, const pad2d_geometry&) noexcept = default;
};

namespace detail {

/// One axis of padded images.
struct padded_axis {
  index_t size;    ///< positions of x
  index_t before;  ///< positions of y before those of x
  index_t after;   ///< positions of y after those of x
  padding_mode mode;

  /// The position of x that a position of y copies; -1 for a constant.
  [[nodiscard]] GRADUS_HOST_DEVICE constexpr index_t source(index_t position) const noexcept {
    const index_t at = position - before;
    if (at >= 0 && at < size) {
      return at;
    }
    switch (mode) {
      case padding_mode::reflect:
        return at < 0 ? -at : 2 * (size - 1) - at;
      case padding_mode::replicate:
        return at < 0 ? 0 : size - 1;
      case padding_mode::circular:
        return at < 0 ? at + size : at - size;
      default:
        return -1;
    }
  }

  /// The positions of y that copy a position of x, in ascending order: [low, low_end), own and [high, high_end).
  struct copies {
    index_t low;
    index_t low_end;
    index_t own;
    index_t high;
    index_t high_end;
    /// The number of copies.
    [[nodiscard]] GRADUS_HOST_DEVICE constexpr index_t count() const noexcept {
      return low_end - low + 1 + high_end - high;
    }
    /// The position of copy k, for k from 0 on.
    [[nodiscard]] GRADUS_HOST_DEVICE constexpr index_t at(index_t k) const noexcept {
      const index_t lower = low_end - low;
      return k < lower ? low + k : k == lower ? own : high + (k - lower - 1);
    }
    /// True if only one position of y is a copy.
    [[nodiscard]] GRADUS_HOST_DEVICE constexpr bool single() const noexcept {
      return low == low_end && high == high_end;
    }
  };
  [[nodiscard]] GRADUS_HOST_DEVICE constexpr copies copies_of(index_t at) const noexcept {
    copies all{0, 0, before + at, 0, 0};
    const index_t begin = before + size;  // of the positions after x
    if (mode == padding_mode::replicate) {
      all.low_end = at == 0 ? before : 0;
      all.high = begin;
      all.high_end = at == size - 1 ? begin + after : begin;
    } else if (mode != padding_mode::zeros) {
      const bool mirrored = mode == padding_mode::reflect;
      const index_t low = mirrored ? before - at : before + at - size;
      const index_t high = mirrored ? before + 2 * (size - 1) - at : before + at + size;
      if (low >= 0 && low < before) {
        all.low = low;
        all.low_end = low + 1;
      }
      if (high >= begin && high < begin + after) {
        all.high = high;
        all.high_end = high + 1;
      }
    }
    return all;
  }
};

[[nodiscard]] constexpr padded_axis padded_rows(const pad2d_geometry& g) noexcept {
  return {g.height, g.top, g.bottom, g.mode};
}
[[nodiscard]] constexpr padded_axis padded_columns_of(const pad2d_geometry& g) noexcept {
  return {g.width, g.left, g.right, g.mode};
}

}  // namespace detail

}  // namespace gradus::kernels

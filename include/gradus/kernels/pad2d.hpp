// SPDX-License-Identifier: BSL-1.0
//
// The contract of kernels that pad images: modes, geometry and the functions that a device overloads.
#pragma once

#include "gradus/core/config.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

/// What the elements around an image are, for the row a b c d with padding of 2 on both sides. Modes of
/// torch.nn.functional.pad.
enum class padding_mode : unsigned char {
  zeros,      ///< 0 0 a b c d 0 0; pad2d_geometry::value instead of 0
  reflect,    ///< c b a b c d c b; padding is less than the extent
  replicate,  ///< a a a b c d d d
  circular    ///< c d a b c d a b: a periodic domain; padding is at most the extent
};

/// The padding of a batch of images x (N, C, H, W) to y (N, C, top + H + bottom, left + W + right). Sizes in elements.
struct pad2d_geometry {
  index_t channels = 0;                     ///< C
  index_t height = 0;                       ///< H
  index_t width = 0;                        ///< W
  index_t top = 0;                          ///< rows above x; at least 0
  index_t bottom = 0;                       ///< rows below x
  index_t left = 0;                         ///< columns to the left of x
  index_t right = 0;                        ///< columns to the right of x
  padding_mode mode = padding_mode::zeros;  ///< what the elements around x are
  double value = 0;                         ///< of the elements around x, with padding_mode::zeros

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
      const index_t before = low_end - low;
      return k < before ? low + k : k == before ? own : high + (k - before - 1);
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

/// A device that pads images; nn::pad2d asks for it, and nn::conv2d with a padding_mode other than zeros.
///
///   pad2d_forward overwrites y, of geometry.output(n), with the padded x, of geometry.input(n).
///   pad2d_backward computes dx, the gradient of x: the sum of dy over all copies of an element, in a fixed order. It
///   applies the epilogue.
///
/// x and y do not overlap, nor do dx and dy. Results are bitwise the same for any number of threads.
template <class Device, class Element, class Layout>
concept has_pad2d = requires(Device& device, const pad2d_geometry& geometry,
                             image_view<const Element, Layout, Device> from, image_view<Element, Layout, Device> to,
                             const backward_epilogue<Element>& epilogue) {
  pad2d_forward(device, geometry, from, to);
  pad2d_backward(device, geometry, from, to, epilogue);
};

/// Says which overload of `has_pad2d` the device misses. Always true when it compiles.
template <class Device, class Element, class Layout>
consteval bool explain_pad2d() {
  static_assert(has_pad2d<Device, Element, Layout>,
                "gradus: the device lacks kernels of the network: overload void pad2d_forward(Device&, const "
                "pad2d_geometry&, x, y) and void pad2d_backward(Device&, const pad2d_geometry&, dy, dx, const "
                "backward_epilogue<Element>&); for gradus::cuda include gradus/kernels/cuda.cuh");
  return true;
}

}  // namespace gradus::kernels

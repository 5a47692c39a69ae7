// SPDX-License-Identifier: BSL-1.0
//
// The factors of weights' gradients for tiles of lines: both in pairs of adjacent pixels.
#pragma once

#include <algorithm>  // std::clamp, std::fill_n, std::max, std::min
#include <array>      // std::array
#include <cstddef>    // std::size_t
#include <cstring>    // std::memcpy

#include "gradus/core/index.hpp"
#include "gradus/kernels/cpu/detail/conv2d/correlation.hpp"
#include "gradus/kernels/cpu/detail/simd/panels.hpp"

namespace gradus::kernels::detail {

/// A piece of a batch: some rows of results of some images. Results are adjacent, row after row, with zeros in dy where
/// a row of the strip is longer. Each channel of x is a line. The pixels that a tap reads are adjacent in it, in the
/// order of the results: rows and columns are sorted by their phase of the strides, and padding is zeros. A second copy
/// of the lines, one pixel later, is for taps at odd pixels: its pairs begin there.
template <class Element>
class pixel_pairs {
 public:
  /// @param images, rows  largest number in a piece
  pixel_pairs(const correlation& c, channel_order order, index_t images, index_t rows) noexcept
      : c_{c},
        order_{order},
        row_phases_{std::max<index_t>(1, c.row_step())},
        column_phases_{std::clamp<index_t>(c.taps_width, 1, c.step_width)},
        rows_{rows + (c.taps_height - 1) / row_phases_},
        columns_{round_up(c.columns + (c.taps_width - 1) / c.step_width, 2)},
        image_{row_phases_ * column_phases_ * rows_ * columns_ / 2},
        rest_{ceil_div(rows * columns_ / 2, most_depth)},
        line_{round_up(images * image_ + rest_ + 1, 16)} {
    line_ += line_ / 16 % 2 == 0 ? 16 : 0;  // lines of a tile are in different sets of the cache
  }

  /// Pairs from one line to the next.
  [[nodiscard]] index_t line() const noexcept { return line_; }
  /// Pairs from one image to the next.
  [[nodiscard]] index_t image() const noexcept { return image_; }
  /// Pairs of the lines of x.
  /// @param spare  lines behind them that tiles read
  [[nodiscard]] index_t size(index_t channels, index_t spare) const noexcept {
    return (copies() * channels + 1 + spare) * line_;
  }
  /// Pairs of results of an image: full products of registers. The last ones are zeros.
  [[nodiscard]] index_t terms(index_t rows) const noexcept {
    const index_t pairs = ceil_div((rows - 1) * columns_ + c_.columns, 2);
    return round_up(pairs, ceil_div(pairs, most_depth));
  }
  /// Where the pixels begin that a tap reads of the first channel.
  [[nodiscard]] index_t offset(index_t channels, index_t r, index_t s) const noexcept {
    const index_t phase = r % row_phases_ * column_phases_ + s % c_.step_width;
    const index_t pixel = (phase * rows_ + r / row_phases_) * columns_ + s / c_.step_width;
    return pixel / 2 + (pixel % 2 == 0 ? 0 : (channels + 1) * line_);
  }

  /// Writes the lines of some images: those of the channels, then one of ones, then the second copy of the channels.
  /// @param x  the first channel of the first image
  void copy(const tile_kernels<float>& kernels, const Element* x, index_t channels, index_t images, index_t row,
            float* to) const {
    const index_t all_channels = c_.groups * c_.terms;
    for (index_t i = 0; i < images; ++i) {
      const Element* const from = x + i * all_channels * c_.source_height * c_.source_width;
      float* place = to + i * image_;
      for (index_t h = 0; h < row_phases_; ++h) {
        for (index_t w = 0; w < column_phases_; ++w) {
          for (index_t q = 0; q < rows_; ++q, place += columns_ / 2) {
            copy_row(kernels, from, channels, c_.origin_height + (row + q) * c_.step_height + h, w, place);
          }
        }
      }
    }
    for (index_t i = 0; i < channels; ++i) {
      std::fill_n(to + i * line_ + images * image_, rest_ + 1, 0.0F);
    }
    const Element one{1.0F};
    interleave(&one, &one, 1, to + channels * line_);
    std::fill_n(to + channels * line_ + 1, line_ - 1, to[channels * line_]);
    if (copies() > 1) {
      for (index_t i = 0; i < channels; ++i) {
        auto* const later = reinterpret_cast<std::byte*>(to + (channels + 1 + i) * line_);
        const auto bytes = static_cast<std::size_t>(images * image_ + rest_) * sizeof(float);
        std::memcpy(later, reinterpret_cast<const std::byte*>(to + i * line_) + sizeof(Element), bytes);
      }
    }
  }

  /// Packs channels of dy, from the first image and row on, as a panel of terms(rows) pairs for each image.
  void pack(const tile_kernels<float>& kernels, const Element* dy, index_t columns, index_t width, index_t images,
            index_t rows, float* to) const {
    const index_t plane = c_.destination_height * c_.destination_width;
    const index_t all_channels = c_.groups * c_.results;
    const bool last = order_ == channel_order::last;
    const index_t pairs = ceil_div(c_.columns, 2);
    for (index_t i = 0; i < images; ++i) {
      for (index_t t = 0; t < rows; ++t) {
        const Element* const from = dy + i * plane * all_channels + t * c_.columns * (last ? all_channels : 1);
        pack_panel(kernels, from, last ? 1 : plane, last ? all_channels : 1, columns, c_.columns, width, to);
        to += pairs * width;
        const index_t behind = (t + 1 < rows ? columns_ / 2 : terms(rows) - t * columns_ / 2) - pairs;
        std::fill_n(to, behind * width, 0.0F);
        to += behind * width;
      }
    }
  }

 private:
  static constexpr index_t most_depth = 16;  // pairs of a product

  [[nodiscard]] index_t copies() const noexcept { return c_.taps_width > c_.step_width ? 2 : 1; }

  /// Copies the pixels of one phase of a row of the source.
  void copy_row(const tile_kernels<float>& kernels, const Element* x, index_t channels, index_t h, index_t phase,
                float* to) const {
    const index_t first = c_.origin_width + phase;  // column of the source at position 0
    const index_t step = c_.step_width;
    const index_t width = std::min(c_.source_width, c_.origin_width + c_.source_columns()) - first;
    const bool outside =
        h < 0 || h >= c_.source_height || h >= c_.origin_height + (c_.rows - 1) * c_.step_height + c_.taps_height;
    const index_t begin = std::min(first < 0 ? ceil_div(-first, step) : 0, columns_);
    const index_t end = outside || width <= 0 ? begin : std::clamp(ceil_div(width, step), begin, columns_);
    const bool last = order_ == channel_order::last;
    const index_t channel_step = last ? 1 : c_.source_height * c_.source_width;
    const index_t pixel_step = last ? c_.groups * c_.terms : 1;
    const Element* const row = x + (h * c_.source_width + first) * pixel_step;
    if (begin >= end) {
      for (index_t i = 0; i < channels; ++i) {
        std::fill_n(to + i * line_, columns_ / 2, 0.0F);
      }
    } else if (last) {
      copy_pixels(kernels, row, step * pixel_step, channels, begin, end, to);
    } else {
      for (index_t i = 0; i < channels; ++i) {
        const Element* const from = row + i * channel_step;
        const auto pixel = [&](index_t j) { return j >= begin && j < end ? from[j * step] : Element{}; };
        for (index_t j = 0; j < columns_; j += 2) {
          const Element two[2] = {pixel(j), pixel(j + 1)};
          std::memcpy(to + i * line_ + j / 2, two, sizeof(two));
        }
      }
    }
  }

  /// Transposes pixels with adjacent channels.
  void copy_pixels(const tile_kernels<float>& kernels, const Element* row, index_t step, index_t channels,
                   index_t begin, index_t end, float* to) const {
    constexpr index_t height = 16;
    constexpr index_t length = 64;
    static constexpr std::array<Element, static_cast<std::size_t>(length)> zeros{};
    alignas(64) std::array<float, static_cast<std::size_t>(height * length)> rows;
    for (index_t pair = 0; pair < columns_ / 2; pair += height) {
      const index_t some = std::min(height, columns_ / 2 - pair);
      for (index_t i = 0; i < channels; i += length) {
        const index_t run = std::min(length, channels - i);
        for (index_t j = 0; j < some; ++j) {
          const auto pixel = [&](index_t k) { return k >= begin && k < end ? row + k * step + i : zeros.data(); };
          interleave(pixel(2 * (pair + j)), pixel(2 * (pair + j) + 1), run, rows.data() + j * length);
        }
        kernels.transpose(rows.data(), length, some, run, line_, to + i * line_ + pair);
      }
    }
  }

  const correlation& c_;
  channel_order order_;
  index_t row_phases_;
  index_t column_phases_;
  index_t rows_;     // of a phase
  index_t columns_;  // of a phase, even
  index_t image_;    // pairs of an image
  index_t rest_;     // pairs of zeros behind the images
  index_t line_;     // pairs of a line
};

}  // namespace gradus::kernels::detail

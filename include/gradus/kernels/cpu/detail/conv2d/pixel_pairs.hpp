// SPDX-License-Identifier: BSL-1.0
//
// The factors of weights' gradients for tiles of pairs: both in pairs of adjacent pixels.
#pragma once

#include <algorithm>  // std::clamp, std::fill_n, std::max, std::min
#include <array>      // std::array
#include <cstddef>    // std::size_t
#include <cstring>    // std::memcpy, std::memset

#include "gradus/core/index.hpp"
#include "gradus/kernels/cpu/detail/conv2d/correlation.hpp"
#include "gradus/kernels/cpu/detail/conv2d/pixel_terms.hpp"
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
  pixel_pairs(const tile_kernels<float>& kernels, const correlation& c, channel_order order, index_t images,
              index_t rows) noexcept
      : kernels_{kernels},
        c_{c},
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

  // As in pixel_terms. An element is a pair.
  [[nodiscard]] index_t channel_step() const noexcept { return line_; }
  [[nodiscard]] index_t size(index_t channels) const noexcept {
    return (copies() * channels + 1 + kernels_.spare_lines()) * line_;
  }
  [[nodiscard]] index_t terms(index_t images, index_t rows) const noexcept { return images * segment_length(rows); }
  [[nodiscard]] index_t step(index_t /*channels*/) const noexcept { return 1; }
  index_t list_segments(index_t /*channels*/, index_t images, index_t /*rows*/, index_t* to) const noexcept {
    for (index_t i = 0; i < images; ++i) {
      to[i] = i * image_;
    }
    return images;
  }
  /// Pairs of results of an image: full products of registers. The last ones are zeros.
  [[nodiscard]] index_t segment_length(index_t rows) const noexcept {
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
  void copy(const weight_block& b, const result_block& piece, const Element* x, float* to) const {
    const index_t all_channels = c_.groups * c_.terms;
    const index_t plane = c_.source_height * c_.source_width;
    const index_t first = (b.group * c_.terms + b.begin) * (order_ == channel_order::last ? 1 : plane);
    const index_t channels = b.channels;
    const index_t images = piece.images;
    for (index_t i = 0; i < images; ++i) {
      const Element* const from = x + (piece.image + i) * all_channels * plane + first;
      float* target = to + i * image_;
      for (index_t h = 0; h < row_phases_; ++h) {
        for (index_t w = 0; w < column_phases_; ++w) {
          for (index_t q = 0; q < rows_; ++q, target += columns_ / 2) {
            copy_row(from, channels, c_.origin_height + (piece.row + q) * c_.step_height + h, w, target);
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

  [[nodiscard]] const float* gradient_in_place(const Element* /*dy*/, index_t /*channel*/,
                                               const result_block& /*piece*/) const noexcept {
    return nullptr;
  }
  void pack(const Element* dy, index_t channel, index_t columns, index_t width, const result_block& piece,
            float* to) const {
    const index_t plane = c_.destination_height * c_.destination_width;
    const index_t all_channels = c_.groups * c_.results;
    const bool last = order_ == channel_order::last;
    const index_t rows = piece.rows;
    const index_t pairs = ceil_div(c_.columns, 2);
    for (index_t i = 0; i < piece.images; ++i) {
      for (index_t t = 0; t < rows; ++t) {
        const Element* const from = dy + (piece.image + i) * plane * all_channels + channel * (last ? 1 : plane) +
                                    (piece.row + t) * c_.columns * (last ? all_channels : 1);
        pack_panel(kernels_, from, last ? 1 : plane, last ? all_channels : 1, columns, c_.columns, width, to);
        to += pairs * width;
        const index_t behind = (t + 1 < rows ? columns_ / 2 : segment_length(rows) - t * columns_ / 2) - pairs;
        std::fill_n(to, behind * width, 0.0F);
        to += behind * width;
      }
    }
  }

 private:
  static constexpr index_t most_depth = 16;  // pairs of a product

  [[nodiscard]] index_t copies() const noexcept { return c_.taps_width > c_.step_width ? 2 : 1; }

  /// Copies the pixels of one phase of a row of the source.
  void copy_row(const Element* x, index_t channels, index_t h, index_t phase, float* to) const {
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
      copy_pixels(row, step * pixel_step, channels, begin, end, to);
    } else {
      for (index_t i = 0; i < channels; ++i) {
        const Element* const from = row + i * channel_step;
        if (step == 1) {
          auto* const line = reinterpret_cast<std::byte*>(to + i * line_);
          const auto bytes = [](index_t count) { return static_cast<std::size_t>(count) * sizeof(Element); };
          std::memset(line, 0, bytes(begin));
          std::memcpy(line + bytes(begin), from + begin, bytes(end - begin));
          std::memset(line + bytes(end), 0, bytes(columns_ - end));
          continue;
        }
        const auto pixel = [&](index_t j) { return j >= begin && j < end ? from[j * step] : Element{}; };
        for (index_t j = 0; j < columns_; j += 2) {
          const Element two[2] = {pixel(j), pixel(j + 1)};
          std::memcpy(to + i * line_ + j / 2, two, sizeof(two));
        }
      }
    }
  }

  /// Transposes pixels with adjacent channels.
  void copy_pixels(const Element* row, index_t step, index_t channels, index_t begin, index_t end, float* to) const {
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
        kernels_.transpose(rows.data(), length, some, run, line_, to + i * line_ + pair);
      }
    }
  }

  const tile_kernels<float>& kernels_;
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

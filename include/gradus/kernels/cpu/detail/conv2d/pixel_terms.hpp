// SPDX-License-Identifier: BSL-1.0
//
// The factors of weights' gradients for tiles of single terms: strips of pixels and panels of dy.
#pragma once

#include <algorithm>    // std::clamp, std::fill_n
#include <type_traits>  // std::is_same_v

#include "gradus/core/index.hpp"
#include "gradus/kernels/cpu/detail/conv2d/correlation.hpp"
#include "gradus/kernels/cpu/detail/conv2d/strip.hpp"
#include "gradus/kernels/cpu/detail/simd/panels.hpp"

namespace gradus::kernels::detail {

/// The channels of x and dy that one task multiplies.
struct weight_block {
  index_t group = 0;
  index_t begin = 0;  ///< input channels [begin, begin + channels) of the group
  index_t channels = 0;
};

/// The factors for a piece of a batch: some rows of results of some images. x is a strip (image, row, column, channel)
/// with explicit padding and one more channel of ones, whose gradient is that of the bias. dy is packed in panels.
/// Works for any shape: row t of results and row r of taps read row t * row_step() + r of the strip, column u and tap s
/// read column u * step_width + s. The strip ends with the last of them.
template <class Element>
class pixel_terms {
  using real = computed<Element>;

 public:
  /// @param images, rows  largest number in a piece
  pixel_terms(const tile_kernels<real>& kernels, const correlation& c, channel_order order, index_t images,
              index_t rows) noexcept
      : kernels_{kernels}, c_{c}, order_{order}, images_{images}, rows_{rows} {}

  /// Elements of the strip.
  [[nodiscard]] index_t size(index_t channels) const noexcept {
    return images_ * c_.source_rows(rows_) * row(channels);
  }
  /// Terms of a panel.
  [[nodiscard]] index_t terms(index_t images, index_t rows) const noexcept { return images * rows * c_.columns; }
  /// Where the pixels begin that a tap reads of the first channel.
  [[nodiscard]] index_t offset(index_t channels, index_t r, index_t s) const noexcept {
    return r * row(channels) + s * (channels + 1);
  }
  [[nodiscard]] index_t channel_step() const noexcept { return 1; }
  /// From a term to the next.
  [[nodiscard]] index_t step(index_t channels) const noexcept { return c_.step_width * (channels + 1); }
  /// Lists where the adjacent terms begin, segment_length() each. @return their number
  index_t list_segments(index_t channels, index_t images, index_t rows, index_t* to) const noexcept {
    for (index_t i = 0; i < images; ++i) {
      for (index_t t = 0; t < rows; ++t) {
        *to++ = (i * c_.source_rows(rows) + t * c_.row_step()) * row(channels);
      }
    }
    return images * rows;
  }
  [[nodiscard]] index_t segment_length(index_t /*rows*/) const noexcept { return c_.columns; }

  /// Writes the strip of a piece.
  void copy(const weight_block& b, const result_block& piece, const Element* x, real* to) const {
    for (index_t i = 0; i < piece.images; ++i) {
      copy_image(b.group, b.begin, b.begin + b.channels, piece.image + i, piece.row, piece.rows, x,
                 to + i * c_.source_rows(piece.rows) * row(b.channels));
    }
  }

  /// dy from a channel and the first pixel of a piece on, if tiles can read a panel of it in place: pixels are few
  /// cache lines apart, so most of each fetched line is used. Otherwise null. Panels are then full, and the pixels of a
  /// piece are adjacent: a piece has several images only if it has all of their rows.
  [[nodiscard]] const real* gradient_in_place([[maybe_unused]] const Element* dy, [[maybe_unused]] index_t channel,
                                              [[maybe_unused]] const result_block& piece) const {
    constexpr index_t most_bytes = 512;  // of a pixel
    if constexpr (std::is_same_v<Element, real>) {
      const index_t channels = c_.groups * c_.results;
      if (order_ == channel_order::last && c_.results % kernels_.width == 0 &&
          channels * static_cast<index_t>(sizeof(real)) <= most_bytes) {
        return dy + (piece.image * c_.destination_height + piece.row) * c_.destination_width * channels + channel;
      }
    }
    return nullptr;
  }

  /// Packs some channels of dy, from a channel of all groups on, as a panel of terms().
  void pack(const Element* dy, index_t channel, index_t columns, index_t width, const result_block& piece,
            real* to) const {
    const index_t plane = c_.destination_height * c_.destination_width;
    const index_t all_channels = c_.groups * c_.results;
    const index_t pixel = piece.row * c_.destination_width;
    const index_t pixels = piece.rows * c_.destination_width;
    const bool last = order_ == channel_order::last;
    for (index_t i = piece.image; i < piece.image + piece.images; ++i, to += pixels * width) {
      const Element* const from =
          dy + i * all_channels * plane + (last ? pixel * all_channels + channel : channel * plane + pixel);
      pack_panel(kernels_, from, last ? 1 : plane, last ? all_channels : 1, columns, pixels, width, to);
    }
  }

 private:
  /// Elements of a row of the strip.
  [[nodiscard]] index_t row(index_t channels) const noexcept { return c_.source_columns() * (channels + 1); }

  /// Copies the inputs of some rows of results, for channels [begin, end) of a group, and adds a channel of ones.
  void copy_image(index_t group, index_t begin, index_t end, index_t image, index_t row, index_t rows, const Element* x,
                  real* strip) const {
    const index_t width = c_.source_columns();
    const index_t channels = end - begin;
    const index_t pitch = channels + 1;
    const index_t left = std::clamp<index_t>(-c_.origin_width, 0, width);
    const index_t right = std::clamp<index_t>(c_.source_width - c_.origin_width, left, width);
    const index_t all_channels = c_.groups * c_.terms;
    const index_t first = group * c_.terms + begin;
    const index_t plane = c_.source_height * c_.source_width;
    constexpr index_t few_channels = 4;
    const bool planes = order_ == channel_order::first;
    const index_t channel_step = planes ? plane : 1;
    const index_t pixel_step = planes ? 1 : all_channels;
    if (planes && c_.whole_rows(row, rows)) {
      const index_t pixels = c_.source_rows(rows) * width;
      const index_t h = c_.origin_height + row * c_.step_height;
      const Element* const source = x + (image * all_channels + first) * plane + h * c_.source_width;
      if (channels <= few_channels) {
        copy_pixels_and_ones(source, channel_step, pixel_step, channels, pixels, strip);
      } else {
        read_transposed(kernels_, source, plane, channels, pixels, pitch, strip);
        write_ones(pixels, channels, strip);
      }
      return;
    }
    for (index_t i = 0; i < c_.source_rows(rows); ++i, strip += width * pitch) {
      const index_t h = c_.origin_height + (row + i / c_.row_step()) * c_.step_height + i % c_.row_step();
      const bool outside = h < 0 || h >= c_.source_height;
      const index_t from = outside ? width : left;
      const index_t to = outside ? width : right;
      std::fill_n(strip, from * pitch, real{});
      std::fill_n(strip + to * pitch, (width - to) * pitch, real{});
      if (from < to) {
        const index_t pixel = h * c_.source_width + c_.origin_width + from;
        const Element* source = x + image * all_channels * plane + first * channel_step + pixel * pixel_step;
        if (channels <= few_channels) {
          copy_pixels_and_ones(source, channel_step, pixel_step, channels, to - from, strip + from * pitch);
        } else if (planes) {
          read_transposed(kernels_, source, plane, channels, to - from, pitch, strip + from * pitch);
        } else {
          for (index_t j = from; j < to; ++j, source += all_channels) {
            read_run(kernels_, source, channels, strip + j * pitch);
          }
        }
      }
      if (channels <= few_channels) {
        write_ones(from, channels, strip);
        write_ones(width - to, channels, strip + to * pitch);
      } else {
        write_ones(width, channels, strip);
      }
    }
  }
  static void write_ones(index_t pixels, index_t channels, real* strip) {
    for (index_t j = 0; j < pixels; ++j) {
      strip[j * (channels + 1) + channels] = real{1};
    }
  }

  const tile_kernels<real>& kernels_;
  const correlation& c_;
  channel_order order_;
  index_t images_;
  index_t rows_;
};

}  // namespace gradus::kernels::detail

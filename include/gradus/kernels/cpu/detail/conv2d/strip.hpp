// SPDX-License-Identifier: BSL-1.0
//
// Strips of planes in nchw: rows of the source with explicit padding, in which tiles read adjacent pixels.
#pragma once

#include <algorithm>    // std::clamp, std::fill_n, std::max, std::min
#include <type_traits>  // std::is_same_v

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/cpu/detail/conv2d/correlation.hpp"
#include "gradus/kernels/cpu/detail/simd/panels.hpp"
#include "gradus/kernels/cpu/detail/simd/storage.hpp"

namespace gradus::kernels::detail {

/// Copies `columns` pixels of row h of a plane, starting at column `origin`, with the step of the results; zeros for
/// the padding. Reads only inside the row: the first pixel is at origin + left * step >= 0, the last one at
/// origin + (right - 1) * step < source_width.
template <class Element>
void copy_strip_row(const correlation& c, const Element* plane, index_t h, index_t origin, index_t columns,
                    computed<Element>* to) {
  using real = computed<Element>;
  if (h < 0 || h >= c.source_height) {
    std::fill_n(to, columns, real{});
    return;
  }
  const index_t step = c.step_width;
  const index_t left = origin >= 0 ? 0 : std::min(ceil_div(-origin, step), columns);
  const index_t right =
      origin >= c.source_width ? left : std::clamp<index_t>(ceil_div(c.source_width - origin, step), left, columns);
  const Element* const source = plane + h * c.source_width + origin;
  std::fill_n(to, left, real{});
  if (step == 1) {
    read_run(source + left, right - left, to + left);
  } else {
    read_every(source + left * step, step, right - left, to + left);
  }
  std::fill_n(to + right, columns - right, real{});
}

/// Writes pixels with few channels one after another, each followed by a one: to[j * (channels + 1) + i] =
/// from[j * pixel_step + i * channel_step]. Uses vectors for the one or three channels of images.
template <class Element>
void copy_pixels_and_ones(const Element* from, index_t channel_step, index_t pixel_step, index_t channels,
                          index_t pixels, computed<Element>* to) {
  index_t j = 0;
  if constexpr (std::is_same_v<Element, float>) {
    typedef float four __attribute__((vector_size(16), aligned(sizeof(float)), may_alias));
    const four ones{1.0F, 1.0F, 1.0F, 1.0F};
    const auto read = [&](index_t i) -> four { return *reinterpret_cast<const four*>(from + i); };
    const auto write = [&](index_t i, const four& value) { *reinterpret_cast<four*>(to + i) = value; };
    if (channels == 1 && pixel_step == 1) {
      for (; j + 4 <= pixels; j += 4) {
        write(2 * j, GRADUS_SHUFFLE(read(j), ones, 0, 4, 1, 5));
        write(2 * j + 4, GRADUS_SHUFFLE(read(j), ones, 2, 6, 3, 7));
      }
    } else if (channels == 3 && pixel_step == 1) {
      for (; j + 4 <= pixels; j += 4) {
        const four first = read(j);
        const four second = read(channel_step + j);
        const four third = read(2 * channel_step + j);
        const four low = GRADUS_SHUFFLE(first, second, 0, 4, 1, 5);
        const four high = GRADUS_SHUFFLE(first, second, 2, 6, 3, 7);
        const four low_ones = GRADUS_SHUFFLE(third, ones, 0, 4, 1, 5);
        const four high_ones = GRADUS_SHUFFLE(third, ones, 2, 6, 3, 7);
        write(4 * j, GRADUS_SHUFFLE(low, low_ones, 0, 1, 4, 5));
        write(4 * j + 4, GRADUS_SHUFFLE(low, low_ones, 2, 3, 6, 7));
        write(4 * j + 8, GRADUS_SHUFFLE(high, high_ones, 0, 1, 4, 5));
        write(4 * j + 12, GRADUS_SHUFFLE(high, high_ones, 2, 3, 6, 7));
      }
    } else if (channels == 3 && channel_step == 1 && pixel_step == 3) {
      for (; j + 2 <= pixels; ++j) {  // also reads the first channel of the next pixel
        write(4 * j, GRADUS_SHUFFLE(read(3 * j), ones, 0, 1, 2, 4));
      }
    }
  }
  for (; j < pixels; ++j) {
    for (index_t i = 0; i < channels; ++i) {
      to[j * (channels + 1) + i] = static_cast<computed<Element>>(from[j * pixel_step + i * channel_step]);
    }
    to[j * (channels + 1) + channels] = computed<Element>{1};
  }
}

/// A strip in which rows of results are joined. For every column of taps, the pixels that it reads are adjacent, row
/// after row (sorted by the phase of the stride), so a tap reads the pixels of all rows in one run. Row t and tap r
/// read row q = t + r / row_step() of phase r % row_step(). That is row first + q * step_height + r % row_step() of the
/// source, which equals first + t * step_height + r, because row_step() is the step, or larger than r. q is below
/// rows_.
class spread_strip {
 public:
  /// @param rows  number of rows of results
  spread_strip(const correlation& c, index_t rows) noexcept
      : c_{c},
        rows_{rows + (c.taps_height - 1) / std::max<index_t>(1, c.row_step())},
        phase_{rows_ * c.columns},
        tap_{c.row_step() * phase_},
        plane_{c.taps_width * tap_} {}

  /// Elements for one channel.
  [[nodiscard]] index_t plane() const noexcept { return plane_; }
  /// The offset of the pixels that a tap reads.
  [[nodiscard]] index_t offset(index_t channel, index_t r, index_t s) const noexcept {
    return channel * plane_ + s * tap_ + r % c_.row_step() * phase_ + r / c_.row_step() * c_.columns;
  }

  /// @param x    channels of an image
  /// @param row  first row of results
  template <class Element>
  void copy(const Element* x, index_t channels, index_t row, computed<Element>* to) const {
    const index_t first_row = c_.origin_height + row * c_.step_height;
    for (index_t i = 0; i < channels; ++i, x += c_.source_height * c_.source_width) {
      for (index_t s = 0; s < c_.taps_width; ++s) {
        for (index_t phase = 0; phase < c_.row_step(); ++phase) {
          for (index_t q = 0; q < rows_; ++q, to += c_.columns) {
            copy_strip_row(c_, x, first_row + q * c_.step_height + phase, c_.origin_width + s, c_.columns, to);
          }
        }
      }
    }
  }

 private:
  const correlation& c_;
  index_t rows_;   // of a phase
  index_t phase_;  // elements of a phase
  index_t tap_;    // elements of a column of taps
  index_t plane_;  // elements of a channel
};

}  // namespace gradus::kernels::detail

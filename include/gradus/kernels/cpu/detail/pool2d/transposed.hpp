// SPDX-License-Identifier: BSL-1.0
//
// Transposes pixels of a few channels, so that the channels are adjacent, and transposes them back.
#pragma once

#include <algorithm>  // std::min
#include <array>      // std::array
#include <cstddef>    // std::byte, std::size_t

#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/copy/move.hpp"
#include "gradus/kernels/cpu/detail/pool2d/plan.hpp"
#include "gradus/kernels/cpu/detail/simd/packets.hpp"

namespace gradus::kernels::detail {

/// The number of channels that are transposed together.
inline constexpr index_t transposed_lanes = 16;

/// Rows of pixels of at most transposed_lanes channels of a tensor.
template <class Element>
struct pixel_rows {
  pixel_rows(Element* data, index_t some, index_t step_of_channels, index_t height, index_t step_of_rows, index_t width,
             index_t step_of_columns) noexcept
      : first{data},
        channels{some},
        channel_step{step_of_channels},
        rows{height},
        row_step{step_of_rows},
        columns{width},
        column_step{step_of_columns} {
    if (row_step == columns * column_step) {  // adjacent rows are one long row
      columns *= rows;
      rows = 1;
    }
  }

  Element* first;
  index_t channels;
  index_t channel_step;
  index_t rows;
  index_t row_step;
  index_t columns;
  index_t column_step;
};

/// 0, step, 2 * step, ...
template <index_t Count>
[[nodiscard]] constexpr std::array<index_t, std::size_t{Count}> multiples_of(index_t step) noexcept {
  std::array<index_t, std::size_t{Count}> result{};
  for (std::size_t i = 1; i < result.size(); ++i) {
    result[i] = result[i - 1] + step;
  }
  return result;
}

/// The number of pixels of a row that are transposed at a time.
inline constexpr index_t transposed_pixels = 64;
/// Where they are in a buffer of transposed channels.
inline constexpr auto offsets_of_pixels = multiples_of<transposed_pixels>(transposed_lanes);

/// Calls body(offset from rows.first, offset in a buffer of transposed channels, count) for adjacent pixels.
template <class Element, class Body>
void for_each_part(const pixel_rows<Element>& p, const Body& body) {
  for (index_t r = 0; r < p.rows; ++r) {
    for (index_t w = 0; w < p.columns; w += transposed_pixels) {
      body(r * p.row_step + w * p.column_step, (r * p.columns + w) * transposed_lanes,
           std::min(transposed_pixels, p.columns - w));
    }
  }
}

/// to[(r * columns + w) * transposed_lanes + c] = channel c of pixel w of row r.
template <class Element>
void turn(const pixel_rows<const Element>& from, Element* to) noexcept {
  const auto channels = multiples_of<transposed_lanes>(from.channel_step);
  for_each_part(from, [&](index_t offset, index_t transposed, index_t pixels) {
    const Element* const source = from.first + offset;
    Element* const target = to + transposed;
    if (from.column_step == 1) {
      transpose_elements<sizeof(Element)>(pixels, from.channels, reinterpret_cast<const std::byte*>(source),
                                          channels.data(), reinterpret_cast<std::byte*>(target),
                                          offsets_of_pixels.data());
      return;
    }
    for (index_t w = 0; w < pixels; ++w) {
      for (index_t c = 0; c < from.channels; ++c) {
        target[w * transposed_lanes + c] = source[c * from.channel_step + w * from.column_step];
      }
    }
  });
}

/// Transposes back.
template <class Element>
void turn_back(const Element* from, const pixel_rows<Element>& to) noexcept {
  const auto channels = multiples_of<transposed_lanes>(to.channel_step);
  for_each_part(to, [&](index_t offset, index_t transposed, index_t pixels) {
    const Element* const source = from + transposed;
    Element* const target = to.first + offset;
    if (to.column_step == 1) {
      transpose_elements<sizeof(Element)>(to.channels, pixels, reinterpret_cast<const std::byte*>(source),
                                          offsets_of_pixels.data(), reinterpret_cast<std::byte*>(target),
                                          channels.data());
      return;
    }
    for (index_t w = 0; w < pixels; ++w) {
      for (index_t c = 0; c < to.channels; ++c) {
        target[c * to.channel_step + w * to.column_step] = source[w * transposed_lanes + c];
      }
    }
  });
}

/// Transposes sums back and stores them as gradients with their epilogue; epilogue.relu_output has the same origin as
/// `to`.
template <class Element>
void turn_back_gradients(const computed<Element>* from, const pixel_rows<Element>& to,
                         const backward_epilogue<Element>& epilogue) {
  using real = computed<Element>;
  constexpr auto offsets = multiples_of<transposed_lanes>(transposed_pixels);
  std::array<real, std::size_t{transposed_lanes * transposed_pixels}> planes;
  for_each_part(to, [&](index_t offset, index_t transposed, index_t pixels) {
    transpose_elements<sizeof(real)>(to.channels, pixels, reinterpret_cast<const std::byte*>(from + transposed),
                                     offsets_of_pixels.data(), reinterpret_cast<std::byte*>(planes.data()),
                                     offsets.data());
    on_target([&](auto target) {
      for (index_t c = 0; c < to.channels; ++c) {
        store_gradients(target, pixels, planes.data() + c * transposed_pixels, to.first, to.column_step, epilogue,
                        offset + c * to.channel_step);
      }
    });
  });
}

}  // namespace gradus::kernels::detail

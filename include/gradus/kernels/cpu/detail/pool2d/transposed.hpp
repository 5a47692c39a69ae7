// SPDX-License-Identifier: BSL-1.0
//
// Transposes pixels of a few channels, so that the channels are adjacent, and transposes them back.
#pragma once

#include <type_traits>  // std::remove_const_t

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/cpu/detail/elementwise/packet.hpp"
#include "gradus/kernels/cpu/detail/pool2d/runs.hpp"

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

/// True if packets have four SIMD lanes.
template <class Element>
inline constexpr bool turns_squares = sizeof(Element) == 4 || storage_element<Element>;

/// A square of 4 x 4 elements.
template <class Element>
struct square {
  using packet = full_packet<Element>;

  template <class Source>
  void load(const Source* from, index_t step) noexcept {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      rows[j] = packet::load(from + j * step);
    }
  }
  void transpose() noexcept {
    const typename packet::type a = GRADUS_SHUFFLE(rows[0], rows[1], 0, 4, 1, 5);
    const typename packet::type b = GRADUS_SHUFFLE(rows[2], rows[3], 0, 4, 1, 5);
    const typename packet::type c = GRADUS_SHUFFLE(rows[0], rows[1], 2, 6, 3, 7);
    const typename packet::type d = GRADUS_SHUFFLE(rows[2], rows[3], 2, 6, 3, 7);
    rows[0] = GRADUS_SHUFFLE(a, b, 0, 1, 4, 5);
    rows[1] = GRADUS_SHUFFLE(a, b, 2, 3, 6, 7);
    rows[2] = GRADUS_SHUFFLE(c, d, 0, 1, 4, 5);
    rows[3] = GRADUS_SHUFFLE(c, d, 2, 3, 6, 7);
  }

  typename packet::type rows[4];
};

/// Calls four(offset, transposed) for squares of 4 channels and 4 pixels, and one(offset, transposed) for the remaining
/// elements. `offset` counts elements from rows.first, `transposed` from the beginning of the buffer.
template <class Element, class Four, class One>
GRADUS_ALWAYS_INLINE void for_each_square(const pixel_rows<Element>& p, const Four& four, const One& one) noexcept {
  const bool squares = turns_squares<std::remove_const_t<Element>> && p.column_step == 1;
  const index_t whole_channels = squares ? p.channels / 4 * 4 : 0;
  const index_t whole_columns = p.columns / 4 * 4;
  for (index_t r = 0; r < p.rows; ++r) {
    const index_t row = r * p.columns * transposed_lanes;
    for (index_t c = 0; c < whole_channels; c += 4) {
      for (index_t w = 0; w < whole_columns; w += 4) {
        four(r * p.row_step + c * p.channel_step + w, row + w * transposed_lanes + c);
      }
    }
    for (index_t c = 0; c < p.channels; ++c) {
      for (index_t w = c < whole_channels ? whole_columns : 0; w < p.columns; ++w) {
        one(r * p.row_step + c * p.channel_step + w * p.column_step, row + w * transposed_lanes + c);
      }
    }
  }
}

/// to[(r * columns + w) * transposed_lanes + c] = channel c of pixel w of row r.
template <class Element>
void turn(const pixel_rows<const Element>& from, Element* to) noexcept {
  for_each_square(
      from,
      [&](index_t place, index_t transposed) {
        if constexpr (turns_squares<Element>) {
          square<Element> some;
          some.load(from.first + place, from.channel_step);
          some.transpose();
#pragma GCC unroll 4
          for (int j = 0; j < 4; ++j) {
            full_packet<Element>::store(to + transposed + j * transposed_lanes, some.rows[j]);
          }
        }
      },
      [&](index_t place, index_t transposed) { to[transposed] = from.first[place]; });
}

/// Transposes back and stores a gradient with its epilogue; epilogue.relu_output has the same origin as `to`. `from`
/// holds elements, or values of the type in which they are computed.
template <class Source, class Element>
void turn_back(const Source* from, const pixel_rows<Element>& to, const backward_epilogue<Element>& epilogue) noexcept {
  for_each_square(
      to,
      [&](index_t place, index_t transposed) {
        if constexpr (turns_squares<Element>) {
          square<Element> some;
          some.load(from + transposed, transposed_lanes);
          some.transpose();
#pragma GCC unroll 4
          for (int j = 0; j < 4; ++j) {
            store_gradient<full_packet<Element>>(to.first, some.rows[j], epilogue, place + j * to.channel_step);
          }
        }
      },
      [&](index_t place, index_t transposed) {
        if constexpr (sizeof(Element) == 1) {
          to.first[place] = from[transposed];
        } else {
          using packet = lone_packet<Element>;
          store_gradient<packet>(to.first, packet::load(from + transposed), epilogue, place);
        }
      });
}

}  // namespace gradus::kernels::detail

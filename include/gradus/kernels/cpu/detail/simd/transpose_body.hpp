// SPDX-License-Identifier: BSL-1.0
//
// Transpositions for one instruction set. Part of tile_body.hpp, and like it included several times.

// No `#pragma once`: GRADUS_TARGET and GRADUS_TARGET_BYTES say what to compile.
#if defined(GRADUS_TARGET)

namespace gradus::kernels::detail::GRADUS_TARGET {

/// Vectors of the instruction set.
template <class Element>
struct vector_of {
  typedef Element type __attribute__((vector_size(GRADUS_TARGET_BYTES)));
  /// The same, at any address that is aligned for an element.
  typedef Element stored __attribute__((vector_size(GRADUS_TARGET_BYTES), aligned(sizeof(Element)), may_alias));
  static constexpr index_t lanes = GRADUS_TARGET_BYTES / static_cast<index_t>(sizeof(Element));
};

/// Vectors of 16 bytes.
template <class Element>
struct quarter_of {
  typedef Element type __attribute__((vector_size(16), aligned(sizeof(Element)), may_alias));
  static constexpr index_t lanes = 16 / static_cast<index_t>(sizeof(Element));
};

/// Transposes a square: to[i * width + j] = from[j * step + i] for i and j below its side.
template <class Element>
struct square {
  using quarter = typename quarter_of<Element>::type;
  static constexpr index_t side = quarter_of<Element>::lanes;

  static void turn(const Element* from, index_t step, index_t width, Element* to) {
    const auto row = [&](index_t i) -> quarter { return *reinterpret_cast<const quarter*>(from + i * step); };
    const auto store = [&](index_t i, quarter value) { *reinterpret_cast<quarter*>(to + i * width) = value; };
    if constexpr (side == 4) {
      const quarter low01 = GRADUS_SHUFFLE(row(0), row(1), 0, 4, 1, 5);
      const quarter high01 = GRADUS_SHUFFLE(row(0), row(1), 2, 6, 3, 7);
      const quarter low23 = GRADUS_SHUFFLE(row(2), row(3), 0, 4, 1, 5);
      const quarter high23 = GRADUS_SHUFFLE(row(2), row(3), 2, 6, 3, 7);
      store(0, GRADUS_SHUFFLE(low01, low23, 0, 1, 4, 5));
      store(1, GRADUS_SHUFFLE(low01, low23, 2, 3, 6, 7));
      store(2, GRADUS_SHUFFLE(high01, high23, 0, 1, 4, 5));
      store(3, GRADUS_SHUFFLE(high01, high23, 2, 3, 6, 7));
    } else {
      store(0, GRADUS_SHUFFLE(row(0), row(1), 0, 2));
      store(1, GRADUS_SHUFFLE(row(0), row(1), 1, 3));
    }
  }
};

#if GRADUS_TARGET_BYTES >= 32
/// The same for eight floats. Prefetches rows some squares ahead: there are more than the hardware prefetcher follows.
struct square_of_eight {
  typedef float eight __attribute__((vector_size(32), aligned(sizeof(float)), may_alias));
  static constexpr index_t side = 8;

  static void turn(const float* from, index_t step, index_t width, float* to) {
    eight rows[8];
#pragma GCC unroll 8
    for (index_t i = 0; i < 8; ++i) {
      rows[i] = *reinterpret_cast<const eight*>(from + i * step);
      __builtin_prefetch(from + i * step + 4 * side);
      __builtin_prefetch(to + i * width + 4 * side, 1);
    }
    eight twos[8];  // interleaved elements of two rows
#pragma GCC unroll 4
    for (index_t i = 0; i < 8; i += 2) {
      twos[i] = GRADUS_SHUFFLE(rows[i], rows[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
      twos[i + 1] = GRADUS_SHUFFLE(rows[i], rows[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    eight fours[8];
#pragma GCC unroll 2
    for (index_t i = 0; i < 8; i += 4) {
      fours[i] = GRADUS_SHUFFLE(twos[i], twos[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      fours[i + 1] = GRADUS_SHUFFLE(twos[i], twos[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
      fours[i + 2] = GRADUS_SHUFFLE(twos[i + 1], twos[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
      fours[i + 3] = GRADUS_SHUFFLE(twos[i + 1], twos[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
    }
#pragma GCC unroll 4
    for (index_t i = 0; i < 4; ++i) {
      const eight low = GRADUS_SHUFFLE(fours[i], fours[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
      const eight high = GRADUS_SHUFFLE(fours[i], fours[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
      *reinterpret_cast<eight*>(to + i * width) = low;
      *reinterpret_cast<eight*>(to + (i + 4) * width) = high;
    }
  }
};
#endif

/// Transposes square by square; the last ones of a row or column overlap those before.
/// @pre side <= columns, side <= count
template <class Square, class Element>
void transpose_squares(const Element* from, index_t step, index_t columns, index_t count, index_t width, Element* to) {
  constexpr index_t side = Square::side;
  for (index_t k = 0; k < count; k += side) {
    const index_t term = k + side <= count ? k : count - side;
    for (index_t j = 0; j < columns; j += side) {
      const index_t column = j + side <= columns ? j : columns - side;
      Square::turn(from + column * step + term, step, width, to + term * width + column);
    }
  }
}

/// to[k * width + j] = from[j * step + k] for k < count, j < columns
template <class Element>
void transpose(const Element* from, index_t step, index_t columns, index_t count, index_t width, Element* to) {
#if GRADUS_TARGET_BYTES >= 32
  if constexpr (sizeof(Element) == 4) {
    if (columns >= 8 && count >= 8) {
      transpose_squares<square_of_eight>(from, step, columns, count, width, to);
      return;
    }
  }
#endif
  if (columns >= square<Element>::side && count >= square<Element>::side) {
    transpose_squares<square<Element>>(from, step, columns, count, width, to);
    return;
  }
  for (index_t k = 0; k < count; ++k) {
    for (index_t j = 0; j < columns; ++j) {
      to[k * width + j] = from[j * step + k];
    }
  }
}

}  // namespace gradus::kernels::detail::GRADUS_TARGET

#endif

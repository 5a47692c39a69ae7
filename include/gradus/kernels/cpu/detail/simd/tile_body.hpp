// SPDX-License-Identifier: BSL-1.0
//
// The code of tile.hpp for one instruction set. The file is included several times, each time into another namespace.

// No `#pragma once`: for_each_target.hpp says what to compile. Only code for the same instruction set is included here.
#if defined(GRADUS_TARGET)

// The rows and vectors of the largest tile. Few heights: a tile of 4 rows uses the multipliers as well as a higher one,
// a lower tile takes as long as one of 4 rows, and every user compiles every height.
#if GRADUS_TARGET_BYTES == 64
#define GRADUS_TILE_ROWS 14
#define GRADUS_TILE_HEIGHTS 4, 8, 14
#define GRADUS_TILE_VECTORS 2
#elif GRADUS_TARGET_BYTES == 32
#define GRADUS_TILE_ROWS 6
#define GRADUS_TILE_HEIGHTS 4, 6
#define GRADUS_TILE_VECTORS 2
#elif defined(__aarch64__)
#define GRADUS_TILE_ROWS 6
#define GRADUS_TILE_HEIGHTS 4, 6
#define GRADUS_TILE_VECTORS 4
#else  // processors before 2013: one height suffices
#define GRADUS_TILE_ROWS 4
#define GRADUS_TILE_HEIGHTS 4
#define GRADUS_TILE_VECTORS 2
#endif

#include "gradus/kernels/cpu/detail/simd/transpose_body.hpp"

#include "gradus/kernels/cpu/detail/simd/finish_body.hpp"

#include "gradus/kernels/cpu/detail/simd/small_groups_body.hpp"

namespace gradus::kernels::detail::GRADUS_TARGET {

/// The number of elements in a cache line.
template <class Element>
constexpr index_t line_of = 64 / static_cast<index_t>(sizeof(Element));

template <class Element, int Rows, int Vectors>
void multiply_tile(const tile_call<Element>& call) {
  using vector = typename vector_of<Element>::type;
  using stored = typename vector_of<Element>::stored;
  constexpr index_t lanes = vector_of<Element>::lanes;
  const Element* a[std::size_t{Rows}];
#pragma GCC unroll 16
  for (int m = 0; m < Rows; ++m) {
    a[m] = call.a + call.a_row[m];
  }
  const Element* b = call.b;
  const Element* ahead = call.ahead;
  for (index_t column = 0; column != call.panels * Vectors * lanes; column += Vectors * lanes) {
    vector sum[std::size_t{Rows}][std::size_t{Vectors}];
    if (const Element* const initial = call.initial; initial != nullptr) {
#pragma GCC unroll 16
      for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) {
          sum[m][v] = *reinterpret_cast<const stored*>(initial + m * call.sums_step + column + v * lanes);
        }
      }
    } else {
#pragma GCC unroll 16
      for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) {
          sum[m][v] = vector{};
        }
      }
    }
    if (call.partial == nullptr) {
#pragma GCC unroll 16
      for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 4
        for (index_t j = 0; j < Vectors * lanes; j += line_of<Element>) {
          __builtin_prefetch(call.output.c + call.c_row[m] + column + j, 1);
        }
      }
    }
    const index_t step = call.a_step;
    const index_t b_step = call.b_step;
    const index_t* segment = call.segments;
    for (const index_t* const end = segment + call.segment_count; segment != end; ++segment) {
      index_t at = *segment;
      index_t some = 0;
      for (index_t k = call.segment_length; k > 0; --k) {
        if (--some < 0) {
          some = tile_call<Element>::ahead_terms - 1;
          for (index_t i = call.ahead_lines; i > 0; --i) {
            __builtin_prefetch(ahead);
            ahead += line_of<Element>;
          }
        }
        vector columns[std::size_t{Vectors}];
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) {
          columns[v] = *reinterpret_cast<const stored*>(b + v * lanes);
        }
#pragma GCC unroll 16
        for (int m = 0; m < Rows; ++m) {
          const vector row = a[m][at] - vector{};
#pragma GCC unroll 4
          for (int v = 0; v < Vectors; ++v) {
            sum[m][v] += row * columns[v];
          }
        }
        at += step;
        b += b_step;
      }
    }
    b += call.b_skip;
    if (Element* const partial = call.partial; partial != nullptr) {
#pragma GCC unroll 16
      for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) {
          *reinterpret_cast<stored*>(partial + m * call.sums_step + column + v * lanes) = sum[m][v];
        }
      }
      continue;
    }
    if (const Element* const bias = call.output.bias; bias != nullptr) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        const vector of_columns = *reinterpret_cast<const stored*>(bias + column + v * lanes);
#pragma GCC unroll 16
        for (int m = 0; m < Rows; ++m) {
          sum[m][v] += of_columns;
        }
      }
    }
    if (call.output.act.relu) {
#pragma GCC unroll 16
      for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) {
          sum[m][v] = vector{} > sum[m][v] ? vector{} : sum[m][v];  // keeps a NaN
        }
      }
    }
    Element* const c = call.output.c + column;
    const index_t* const offset = call.c_row;
#pragma GCC unroll 16
    for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        *reinterpret_cast<stored*>(c + offset[m] + v * lanes) = sum[m][v];
      }
    }
  }
}

/// A tile of one vector. Tiles of many rows are split in two: the registers cannot hold the addresses of all rows, and
/// one vector leaves no time to load them.
template <class Element, int Rows>
void multiply_narrow_tile(const tile_call<Element>& call) {
  if constexpr (Rows <= 8) {
    multiply_tile<Element, Rows, 1>(call);
  } else {
    constexpr int half = Rows / 2;
    static_assert(Rows == 2 * half);
    multiply_tile<Element, half, 1>(call);
    tile_call<Element> second = call;
    second.a_row += half;
    if (call.initial != nullptr) {
      second.initial += half * call.sums_step;
    }
    if (call.partial != nullptr) {
      second.partial += half * call.sums_step;
    } else {
      second.c_row += half;
    }
    multiply_tile<Element, half, 1>(second);
  }
}

template <class Element>
void add(const Element* from, index_t count, Element* to) {
  using stored = typename vector_of<Element>::stored;
  constexpr index_t lanes = vector_of<Element>::lanes;
  index_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    *reinterpret_cast<stored*>(to + i) += *reinterpret_cast<const stored*>(from + i);
  }
  for (; i < count; ++i) {
    to[i] += from[i];
  }
}

template <class Element>
void dot_rows(const Element* x, const Element* rows, index_t step, index_t count, index_t terms, Element* to) {
  using vector = typename vector_of<Element>::type;
  using stored = typename vector_of<Element>::stored;
  constexpr index_t lanes = vector_of<Element>::lanes;
  constexpr int height = 4;
  constexpr int vectors = 2;  // enough chains of sums to keep the multipliers busy
  for (index_t i = 0; i < count; i += height) {
    const Element* row[height];
    vector sum[height][vectors] = {};
    for (int m = 0; m < height; ++m) {
      row[m] = rows + (i + m < count ? i + m : count - 1) * step;  // repeats the last row, which is not stored
    }
    index_t k = 0;
    for (; k + vectors * lanes <= terms; k += vectors * lanes) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        const vector factor = *reinterpret_cast<const stored*>(x + k + v * lanes);
#pragma GCC unroll 4
        for (int m = 0; m < height; ++m) {
          sum[m][v] += factor * *reinterpret_cast<const stored*>(row[m] + k + v * lanes);
        }
      }
    }
    for (int m = 0; m < height && i + m < count; ++m) {
      const vector both = sum[m][0] + sum[m][1];
      Element total{};
      for (index_t l = 0; l < lanes; ++l) {
        total += both[l];
      }
      for (index_t rest = k; rest < terms; ++rest) {
        total += x[rest] * row[m][rest];
      }
      to[i + m] = total;
    }
  }
}

/// Adds rows to `Vectors` vectors at a time. @return the first column that is left
template <class Element, int Vectors>
index_t add_vectors_of_rows(const Element* x, const Element* rows, index_t step, index_t terms, index_t j,
                            index_t count, Element* to) {
  using vector = typename vector_of<Element>::type;
  using stored = typename vector_of<Element>::stored;
  constexpr index_t lanes = vector_of<Element>::lanes;
  for (; j + Vectors * lanes <= count; j += Vectors * lanes) {
    vector sum[std::size_t{Vectors}];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      sum[v] = *reinterpret_cast<const stored*>(to + j + v * lanes);
    }
    const Element* row = rows + j;
    for (index_t k = 0; k < terms; ++k, row += step) {
      const vector factor = x[k] - vector{};
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        sum[v] += factor * *reinterpret_cast<const stored*>(row + v * lanes);
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      *reinterpret_cast<stored*>(to + j + v * lanes) = sum[v];
    }
  }
  return j;
}

template <class Element>
void add_rows(const Element* x, const Element* rows, index_t step, index_t terms, index_t count, Element* to) {
  index_t j = add_vectors_of_rows<Element, 4>(x, rows, step, terms, 0, count, to);
  j = add_vectors_of_rows<Element, 1>(x, rows, step, terms, j, count, to);
  for (; j < count; ++j) {
    for (index_t k = 0; k < terms; ++k) {
      to[j] += x[k] * rows[k * step + j];
    }
  }
}

template <class Element>
void copy_rows(const Element* from, index_t step, index_t count, index_t width, Element* to) {
  using stored = typename vector_of<Element>::stored;
  using quarter = typename quarter_of<Element>::type;
  constexpr index_t lanes = vector_of<Element>::lanes;
  constexpr index_t few = quarter_of<Element>::lanes;
  for (index_t k = 0; k < count; ++k) {
    __builtin_prefetch(from + 12 * step);  // rows are too far apart for the hardware prefetcher
    index_t j = 0;
    for (; j + lanes <= width; j += lanes) {
      *reinterpret_cast<stored*>(to + j) = *reinterpret_cast<const stored*>(from + j);
    }
    for (; j + few <= width; j += few) {
      *reinterpret_cast<quarter*>(to + j) = *reinterpret_cast<const quarter*>(from + j);
    }
    for (; j < width; ++j) {
      to[j] = from[j];
    }
    from += step;
    to += width;
  }
}

template <class Element, int Rows>
void multiply_planes(const plane_call<Element>& call) {
  using vector = typename vector_of<Element>::type;
  using stored = typename vector_of<Element>::stored;
  constexpr int vectors = GRADUS_TILE_VECTORS;
  constexpr index_t lanes = vector_of<Element>::lanes;
  constexpr index_t width = vectors * lanes;
  for (index_t begin = 0; begin < call.columns; begin += width) {
    const index_t column = begin + width <= call.columns ? begin : call.columns - width;
#pragma GCC unroll 16
    for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 4
      for (index_t j = 0; j < width; j += line_of<Element>) {
        __builtin_prefetch(call.c + m * call.c_step + column + j, 1);
      }
    }
    vector sum[std::size_t{Rows}][std::size_t{vectors}];
#pragma GCC unroll 16
    for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        sum[m][v] = vector{};
      }
    }
    const Element* a = call.a;
    const Element* const b = call.b + column;
    const index_t* offset = call.offsets;
    index_t ahead = begin;
    index_t rows_ahead = call.ahead_rows;
    index_t some = 0;
    for (const index_t* const end = offset + call.terms; offset != end; ++offset) {
      if (rows_ahead > 0 && --some < 0) {
        some = call.ahead_terms - 1;
        --rows_ahead;
#pragma GCC unroll 4
        for (index_t j = 0; j < width; j += line_of<Element>) {
          __builtin_prefetch(call.ahead + ahead + j);
        }
        ahead += call.ahead_step;
      }
      vector columns[vectors];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        columns[v] = *reinterpret_cast<const stored*>(b + *offset + v * lanes);
      }
#pragma GCC unroll 16
      for (int m = 0; m < Rows; ++m) {
        const vector row = a[m] - vector{};
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) {
          sum[m][v] += row * columns[v];
        }
      }
      a += Rows;
    }
    if (const Element* const bias = call.bias; bias != nullptr) {
#pragma GCC unroll 16
      for (int m = 0; m < Rows; ++m) {
        const vector row = bias[m] - vector{};
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) {
          sum[m][v] += row;
        }
      }
    }
    if (call.relu) {
#pragma GCC unroll 16
      for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) {
          sum[m][v] = vector{} > sum[m][v] ? vector{} : sum[m][v];  // keeps a NaN
        }
      }
    }
    Element* c = call.c + column;
#pragma GCC unroll 16
    for (int m = 0; m < Rows; ++m, c += call.c_step) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        *reinterpret_cast<stored*>(c + v * lanes) = sum[m][v];
      }
    }
  }
}

template <class Element, int... Rows>
constexpr tile_table<Element> wide_tiles() {
  tile_table<Element> by_rows{};
  ((by_rows[Rows] = &multiply_tile<Element, Rows, GRADUS_TILE_VECTORS>), ...);
  return by_rows;
}

template <class Element, int Rows>
constexpr tile_table<Element> narrow_tiles() {
  tile_table<Element> by_rows{};
  by_rows[Rows] = &multiply_narrow_tile<Element, Rows>;
  return by_rows;
}

template <class Element, int... Rows>
constexpr plane_tiles<Element> plane_tiles_by_rows() {
  plane_tiles<Element> by_rows{};
  ((by_rows[Rows] = &multiply_planes<Element, Rows>), ...);
  return by_rows;
}

template <class Element>
inline constexpr plane_tiles<Element> plane_tiles_of = plane_tiles_by_rows<Element, GRADUS_TILE_HEIGHTS>();

template <class Element>
inline constexpr tile_kernels<Element> tile_kernels_of{.set = instruction_set::GRADUS_TARGET,
                                                       .lanes = vector_of<Element>::lanes,
                                                       .rows = GRADUS_TILE_ROWS,
                                                       .width = GRADUS_TILE_VECTORS* vector_of<Element>::lanes,
                                                       .wide = wide_tiles<Element, GRADUS_TILE_HEIGHTS>(),
                                                       .narrow = narrow_tiles<Element, GRADUS_TILE_ROWS>(),
                                                       .finish = &finish<Element, Element>,
                                                       .add = &add<Element>,
                                                       .dot_rows = &dot_rows<Element>,
                                                       .add_rows = &add_rows<Element>,
                                                       .multiply_taps = &multiply_taps<Element>,
                                                       .add_products = &add_products<Element>,
                                                       .add_tap_products = &add_tap_products<Element>,
                                                       .expand_groups = &expand_groups<Element>,
                                                       .copy_rows = &copy_rows<Element>,
                                                       .transpose = &transpose<Element>};

/// The same, with the conversions of bfloat16.
template <class Element>
inline constexpr tile_kernels<Element> bfloat16_kernels_of = [] {
  tile_kernels<Element> kernels = tile_kernels_of<Element>;
  kernels.finish_bfloat16 = &finish<Element, bfloat16>;
  kernels.widen = &widen_run<Element>;
  return kernels;
}();

}  // namespace gradus::kernels::detail::GRADUS_TARGET

#undef GRADUS_TILE_ROWS
#undef GRADUS_TILE_HEIGHTS
#undef GRADUS_TILE_VECTORS
#endif

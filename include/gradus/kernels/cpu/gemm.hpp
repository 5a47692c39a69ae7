// SPDX-License-Identifier: BSL-1.0
//
// The blocked matrix product behind the heavy kernels: packed panels and a register-blocked inner loop.
// Module: kernels. Depends on: tensor.
#pragma once

#include <algorithm>    // std::min, std::max
#include <cstddef>      // std::size_t
#include <cstring>      // std::memcpy
#include <type_traits>  // std::is_same_v

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>  // AVX2, in functions that run only where it exists
#endif

#include "gradus/core/config.hpp"  // GRADUS_RESTRICT
#include "gradus/core/index.hpp"   // index_t

namespace gradus::kernels::detail {

/// A matrix in memory with any strides, in elements.
template <class Element>
struct strided_matrix {
  const Element* data;
  index_t row_stride;
  index_t column_stride;
};

inline constexpr index_t gemm_rows = 6;         // of a tile
inline constexpr index_t gemm_depth = 256;      // of a block of panels
inline constexpr index_t gemm_block_rows = 96;  // of packed A at a time

template <class Element>
inline constexpr index_t gemm_columns = std::is_same_v<Element, float> ? 16 : 8;  // of a tile

inline bool has_avx2() noexcept {
#if defined(__x86_64__) && defined(__GNUC__)
  static const bool has = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  return has;
#else
  return false;
#endif
}

/// c(6, columns) (+)= a b for packed a (depth, 6) and b (depth, columns); c is dense with `stride`.
template <class Element>
void gemm_tile_portable(index_t depth, const Element* a, const Element* b, Element* c, index_t stride,
                        bool accumulate) noexcept {
  constexpr index_t columns = gemm_columns<Element>;
  Element sums[gemm_rows][columns] = {};
  for (index_t k = 0; k < depth; ++k) {
    for (index_t i = 0; i < gemm_rows; ++i) {
      for (index_t j = 0; j < columns; ++j) {
        sums[i][j] += a[k * gemm_rows + i] * b[k * columns + j];
      }
    }
  }
  for (index_t i = 0; i < gemm_rows; ++i) {
    for (index_t j = 0; j < columns; ++j) {
      c[i * stride + j] = accumulate ? c[i * stride + j] + sums[i][j] : sums[i][j];
    }
  }
}

#if defined(__x86_64__) && defined(__GNUC__)
[[gnu::target("avx2,fma")]] inline void gemm_tile_avx2(index_t depth, const float* a, const float* b, float* c,
                                                       index_t stride, bool accumulate) noexcept {
  __m256 s[6][2];
#pragma GCC unroll 6
  for (int i = 0; i < 6; ++i) {
    s[i][0] = accumulate ? _mm256_loadu_ps(c + i * stride) : _mm256_setzero_ps();
    s[i][1] = accumulate ? _mm256_loadu_ps(c + i * stride + 8) : _mm256_setzero_ps();
  }
  for (index_t k = 0; k < depth; ++k, a += 6, b += 16) {
    const __m256 b0 = _mm256_loadu_ps(b);
    const __m256 b1 = _mm256_loadu_ps(b + 8);
#pragma GCC unroll 6
    for (int i = 0; i < 6; ++i) {
      const __m256 factor = _mm256_broadcast_ss(a + i);
      s[i][0] = _mm256_fmadd_ps(factor, b0, s[i][0]);
      s[i][1] = _mm256_fmadd_ps(factor, b1, s[i][1]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < 6; ++i) {
    _mm256_storeu_ps(c + i * stride, s[i][0]);
    _mm256_storeu_ps(c + i * stride + 8, s[i][1]);
  }
}

[[gnu::target("avx2,fma")]] inline void gemm_tile_avx2(index_t depth, const double* a, const double* b, double* c,
                                                       index_t stride, bool accumulate) noexcept {
  __m256d s[6][2];
#pragma GCC unroll 6
  for (int i = 0; i < 6; ++i) {
    s[i][0] = accumulate ? _mm256_loadu_pd(c + i * stride) : _mm256_setzero_pd();
    s[i][1] = accumulate ? _mm256_loadu_pd(c + i * stride + 4) : _mm256_setzero_pd();
  }
  for (index_t k = 0; k < depth; ++k, a += 6, b += 8) {
    const __m256d b0 = _mm256_loadu_pd(b);
    const __m256d b1 = _mm256_loadu_pd(b + 4);
#pragma GCC unroll 6
    for (int i = 0; i < 6; ++i) {
      const __m256d factor = _mm256_broadcast_sd(a + i);
      s[i][0] = _mm256_fmadd_pd(factor, b0, s[i][0]);
      s[i][1] = _mm256_fmadd_pd(factor, b1, s[i][1]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < 6; ++i) {
    _mm256_storeu_pd(c + i * stride, s[i][0]);
    _mm256_storeu_pd(c + i * stride + 4, s[i][1]);
  }
}
#endif

template <class Element>
void gemm_tile(index_t depth, const Element* a, const Element* b, Element* c, index_t stride,
               bool accumulate) noexcept {
#if defined(__x86_64__) && defined(__GNUC__)
  if (has_avx2()) {
    gemm_tile_avx2(depth, a, b, c, stride, accumulate);
    return;
  }
#endif
  gemm_tile_portable(depth, a, b, c, stride, accumulate);
}

/// Packs lines [first, first + count) of a matrix into panels of `width` lines: panel (depth, width), lines beyond
/// `lines` are zero.
template <class Element>
void pack_panel(const Element* data, index_t line_stride, index_t depth_stride, index_t lines, index_t width,
                index_t depth, Element* GRADUS_RESTRICT panel) noexcept {
  if (lines == width && line_stride == 1) {
    for (index_t k = 0; k < depth; ++k) {
      std::memcpy(panel + k * width, data + k * depth_stride, static_cast<std::size_t>(width) * sizeof(Element));
    }
    return;
  }
  for (index_t line = 0; line < lines; ++line) {
    const Element* const from = data + line * line_stride;
    for (index_t k = 0; k < depth; ++k) {
      panel[k * width + line] = from[k * depth_stride];
    }
  }
  for (index_t line = lines; line < width; ++line) {
    for (index_t k = 0; k < depth; ++k) {
      panel[k * width + line] = Element{};
    }
  }
}

/// Elements of scratch memory for one thread in `gemm`: a block of packed A, a panel of packed B, a tile.
template <class Element>
inline constexpr index_t gemm_scratch = (gemm_block_rows + gemm_columns<Element>)*gemm_depth
                                        + gemm_rows* gemm_columns<Element>;

/// c (rows, columns) (+)= a (rows, depth) b (depth, columns), one thread; c is row-major with `stride`.
template <class Element>
void gemm(index_t rows, index_t columns, index_t depth, const strided_matrix<Element>& a,
          const strided_matrix<Element>& b, Element* c, index_t stride, bool accumulate, Element* scratch) noexcept {
  constexpr index_t tile_columns = gemm_columns<Element>;
  Element* const packed_a = scratch;
  Element* const packed_b = scratch + gemm_block_rows * gemm_depth;
  Element* const tile = packed_b + tile_columns * gemm_depth;
  if (depth == 0 && !accumulate) {
    for (index_t i = 0; i < rows; ++i) {
      std::fill_n(c + i * stride, columns, Element{});
    }
  }
  for (index_t k0 = 0; k0 < depth; k0 += gemm_depth) {
    const index_t k_count = std::min(gemm_depth, depth - k0);
    const bool add = accumulate || k0 > 0;
    for (index_t i0 = 0; i0 < rows; i0 += gemm_block_rows) {
      const index_t i_count = std::min(gemm_block_rows, rows - i0);
      for (index_t i = 0; i < i_count; i += gemm_rows) {
        pack_panel(a.data + (i0 + i) * a.row_stride + k0 * a.column_stride, a.row_stride, a.column_stride,
                   std::min(gemm_rows, i_count - i), gemm_rows, k_count, packed_a + i * gemm_depth);
      }
      for (index_t j = 0; j < columns; j += tile_columns) {
        const index_t j_count = std::min(tile_columns, columns - j);
        pack_panel(b.data + k0 * b.row_stride + j * b.column_stride, b.column_stride, b.row_stride, j_count,
                   tile_columns, k_count, packed_b);
        for (index_t i = 0; i < i_count; i += gemm_rows) {
          Element* const target = c + (i0 + i) * stride + j;
          const index_t have = std::min(gemm_rows, i_count - i);
          if (have == gemm_rows && j_count == tile_columns) {
            gemm_tile(k_count, packed_a + i * gemm_depth, packed_b, target, stride, add);
            continue;
          }
          gemm_tile(k_count, packed_a + i * gemm_depth, packed_b, tile, tile_columns, false);
          for (index_t r = 0; r < have; ++r) {
            for (index_t q = 0; q < j_count; ++q) {
              target[r * stride + q] =
                  add ? target[r * stride + q] + tile[r * tile_columns + q] : tile[r * tile_columns + q];
            }
          }
        }
      }
    }
  }
}

}  // namespace gradus::kernels::detail

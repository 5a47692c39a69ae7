// SPDX-License-Identifier: BSL-1.0
//
// Depthwise convolutions for one instruction set; part of simd_tile_body.hpp, and like it included several times.
// Module: kernels. Depends on: core.

// No `#pragma once`: GRADUS_TILE_NAMESPACE says what to compile.
#if defined(GRADUS_TILE_NAMESPACE)

namespace gradus::kernels::detail::GRADUS_TILE_NAMESPACE {

template <class Element, int Pixels, int Vectors>
void multiply_taps_of(const taps_call<Element>& call, const Element* x, const Element* w, index_t step, Element* to) {
  using vector = typename vector_of<Element>::type;
  using stored = typename vector_of<Element>::stored;
  constexpr index_t lanes = vector_of<Element>::lanes;
  vector sum[Pixels][Vectors] = {};
  for (index_t r = 0; r < call.rows; ++r) {
    const Element* from = x + r * call.x_row;
    const Element* tap = w + r * call.w_row;
    for (index_t s = call.columns; s > 0; --s) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        const vector factor = *reinterpret_cast<const stored*>(tap + v * lanes);
#pragma GCC unroll 4
        for (int p = 0; p < Pixels; ++p) {
          sum[p][v] += factor * *reinterpret_cast<const stored*>(from + p * call.x_pixel + v * lanes);
        }
      }
      from += call.x_column;
      tap += call.w_column;
    }
  }
#pragma GCC unroll 4
  for (int p = 0; p < Pixels; ++p) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      *reinterpret_cast<stored*>(to + p * step + v * lanes) = sum[p][v];
    }
  }
}

template <class Element>
void multiply_taps(const taps_call<Element>& call, index_t channels, Element* to) {
  constexpr index_t lanes = vector_of<Element>::lanes;
  constexpr int pixels = 4;
  constexpr int vectors = 2;
  index_t p = 0;
  for (; p < call.pixels; p += p + pixels <= call.pixels ? pixels : 1) {
    const bool several = p + pixels <= call.pixels;
    const Element* const x = call.x + p * call.x_pixel;
    Element* const results = to + p * channels;
    index_t j = 0;
    for (; j + vectors * lanes <= channels; j += vectors * lanes) {
      (several ? multiply_taps_of<Element, pixels, vectors>
               : multiply_taps_of<Element, 1, vectors>)(call, x + j, call.w + j, channels, results + j);
    }
    for (; j + lanes <= channels; j += lanes) {
      (several ? multiply_taps_of<Element, pixels, 1> : multiply_taps_of<Element, 1, 1>)(call, x + j, call.w + j,
                                                                                         channels, results + j);
    }
    for (index_t k = 0; k < (several ? pixels : 1); ++k) {
      for (index_t rest = j; rest < channels; ++rest) {
        Element sum{};
        for (index_t r = 0; r < call.rows; ++r) {
          for (index_t s = 0; s < call.columns; ++s) {
            sum += x[k * call.x_pixel + r * call.x_row + s * call.x_column + rest] *
                   call.w[r * call.w_row + s * call.w_column + rest];
          }
        }
        results[k * channels + rest] = sum;
      }
    }
  }
}

template <class Element>
void add_products(const Element* x, index_t x_step, const Element* y, index_t y_step, index_t terms, index_t count,
                  Element* to) {
  using vector = typename vector_of<Element>::type;
  using stored = typename vector_of<Element>::stored;
  constexpr index_t lanes = vector_of<Element>::lanes;
  constexpr int vectors = 2;
  index_t j = 0;
  for (; j + vectors * lanes <= count; j += vectors * lanes) {
    vector sum[2][vectors] = {};  // terms by turns: additions that do not wait for each other
    index_t k = 0;
    for (; k + 2 <= terms; k += 2) {
#pragma GCC unroll 4
      for (int i = 0; i < 2; ++i) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) {
          sum[i][v] += *reinterpret_cast<const stored*>(x + (k + i) * x_step + j + v * lanes) *
                       *reinterpret_cast<const stored*>(y + (k + i) * y_step + j + v * lanes);
        }
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      if (k < terms) {
        sum[0][v] += *reinterpret_cast<const stored*>(x + k * x_step + j + v * lanes) *
                     *reinterpret_cast<const stored*>(y + k * y_step + j + v * lanes);
      }
      *reinterpret_cast<stored*>(to + j + v * lanes) += sum[0][v] + sum[1][v];
    }
  }
  for (; j < count; ++j) {
    for (index_t k = 0; k < terms; ++k) {
      to[j] += x[k * x_step + j] * y[k * y_step + j];
    }
  }
}

}  // namespace gradus::kernels::detail::GRADUS_TILE_NAMESPACE

#endif

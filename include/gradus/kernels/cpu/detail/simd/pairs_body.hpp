// SPDX-License-Identifier: BSL-1.0
//
// The tiles of pairs.hpp for one instruction set. The file is included several times, each time into another namespace.

// No `#pragma once`. GRADUS_PAIRS_NAMESPACE is the namespace; GRADUS_PAIRS_INSTRUCTION says that vdpbf16ps exists; both
// are undefined at the end. Nothing is included here: the includer's function target would apply to it.
#if defined(GRADUS_PAIRS_NAMESPACE)

namespace gradus::kernels::detail::GRADUS_PAIRS_NAMESPACE {

typedef float sums __attribute__((vector_size(64)));
typedef float stored_sums __attribute__((vector_size(64), aligned(4), may_alias));
typedef std::uint32_t pairs __attribute__((vector_size(64)));
typedef std::uint32_t stored_pairs __attribute__((vector_size(64), aligned(4), may_alias));
typedef std::uint16_t halves __attribute__((vector_size(32)));
typedef std::uint16_t stored_halves __attribute__((vector_size(32), aligned(2), may_alias));
inline constexpr index_t pair_lanes = 16;

/// sum += a * b of the upper halves, then sum += a * b of the lower halves.
GRADUS_ALWAYS_INLINE void add_products(sums& sum, const pairs& a, const pairs& b) noexcept {
#if defined(GRADUS_PAIRS_INSTRUCTION)
  __asm__("vdpbf16ps {%2, %1, %0|%0, %1, %2}" : "+v"(sum) : "v"(a), "v"(b));
#else
  sum += reinterpret_cast<sums>(a & 0xFFFF0000U) * reinterpret_cast<sums>(b & 0xFFFF0000U);
  sum += reinterpret_cast<sums>(a << 16U) * reinterpret_cast<sums>(b << 16U);
#endif
}

/// As multiply_tile of tile_body.hpp, for sums that stay partial.
template <class Element, int Rows, int Vectors>
void multiply_pairs(const tile_call<Element>& call) {
  static_assert(sizeof(Element) == sizeof(std::uint32_t));
  const Element* a[std::size_t{Rows}];
#pragma GCC unroll 16
  for (int m = 0; m < Rows; ++m) {
    a[m] = call.a + call.a_row[m];
  }
  const Element* b = call.b;
  for (index_t column = 0; column != call.panels * Vectors * pair_lanes; column += Vectors * pair_lanes) {
    sums sum[std::size_t{Rows}][std::size_t{Vectors}];
#pragma GCC unroll 16
    for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        const Element* const initial = call.initial + m * call.sums_step + column + v * pair_lanes;
        sum[m][v] = call.initial == nullptr ? sums{} : sums(*reinterpret_cast<const stored_sums*>(initial));
      }
    }
    const index_t step = call.a_step;
    const index_t b_step = call.b_step;
    const index_t* segment = call.segments;
    for (const index_t* const end = segment + call.segment_count; segment != end; ++segment) {
      index_t at = *segment;
      for (index_t k = call.segment_length; k > 0; --k) {
        pairs columns[std::size_t{Vectors}];
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) {
          columns[v] = *reinterpret_cast<const stored_pairs*>(b + v * pair_lanes);
        }
#pragma GCC unroll 16
        for (int m = 0; m < Rows; ++m) {
          std::uint32_t pair;
          std::memcpy(&pair, a[m] + at, sizeof(pair));
          const pairs row = pair + pairs{};
#pragma GCC unroll 4
          for (int v = 0; v < Vectors; ++v) {
            add_products(sum[m][v], row, columns[v]);
          }
        }
        at += step;
        b += b_step;
      }
    }
    b += call.b_skip;
#pragma GCC unroll 16
    for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        *reinterpret_cast<stored_sums*>(call.partial + m * call.sums_step + column + v * pair_lanes) = sum[m][v];
      }
    }
  }
}

// Vectors are passed by reference: without AVX-512, GCC warns that others have another convention.

/// A vector of bfloat16, widened to floats.
GRADUS_ALWAYS_INLINE void widen(const bfloat16* from, sums& to) noexcept {
  to = reinterpret_cast<sums>(__builtin_convertvector(*reinterpret_cast<const stored_halves*>(from), pairs) << 16U);
}
/// Floats as bfloat16 rounds them, in the upper halves.
GRADUS_ALWAYS_INLINE void round_upper(const sums& value, pairs& to) noexcept {
  const pairs bits = reinterpret_cast<pairs>(value);
  const pairs number = bits + 0x7FFFU + ((bits >> 16U) & 1U);
  to = value != value ? bits | 0x400000U : number;
}

/// Rounds `taps` times `channels` rows of `width` parameters, a multiple of pair_lanes, and writes them as rows of
/// pairs of channels.
inline void pair_rows(const float* from, index_t taps, index_t channels, index_t width, float* to) {
  for (index_t tap = 0; tap < taps; ++tap) {
    for (index_t c = 0; c < channels; c += 2, to += width) {
      const float* const row = from + (tap * channels + c) * width;
      for (index_t j = 0; j < width; j += pair_lanes) {
        pairs first;
        pairs second{};
        sums values = *reinterpret_cast<const stored_sums*>(row + j);
        round_upper(values, first);
        if (c + 1 < channels) {
          values = *reinterpret_cast<const stored_sums*>(row + width + j);
          round_upper(values, second);
        }
        *reinterpret_cast<stored_pairs*>(to + j) = first >> 16U | (second & 0xFFFF0000U);
      }
    }
  }
}

/// Stores a vector of sums. The pointers of `o` are to the first result of the vector.
/// @param Plain  there is at most a bias and a ReLU
/// @param row_bias  added to all of them
template <bool Plain>
GRADUS_ALWAYS_INLINE void finish_vector(const float* from, float row_bias, const tile_output<bfloat16>& o) noexcept {
  sums value = *reinterpret_cast<const stored_sums*>(from);
  sums other;
  if (o.bias != nullptr) {
    value += o.bias_of_rows ? row_bias - sums{} : sums(*reinterpret_cast<const stored_sums*>(o.bias));
  }
  if (!Plain && o.residual != nullptr) {
    widen(o.residual, other);
    value += other;
  }
  if (!Plain && o.accumulate) {
    widen(o.c, other);
    value += other;
  }
  if (o.act.relu) {
    value = sums{} > value ? sums{} : value;  // keeps a NaN
  } else if (!Plain && o.act.other) {
    const sums low = o.act.slope == 0 ? sums{} : o.act.slope * value;
    value = sums{} > value ? low : value;
    value = value > o.act.cap - sums{} ? o.act.cap - sums{} : value;
  }
  if (!Plain && o.mask != nullptr) {
    widen(o.mask, other);
    const sums low = !o.derivative.other || o.derivative.slope == 0 ? sums{} : o.derivative.slope * value;
    value = other > sums{} ? value : low;
    if (o.derivative.other) {
      value = other >= o.derivative.cap - sums{} ? sums{} : value;
    }
  }
  pairs upper;
  round_upper(value, upper);
  *reinterpret_cast<stored_halves*>(o.c) = __builtin_convertvector(upper >> 16U, halves);
}

template <bool Plain>
void finish_rows(const float* from, index_t rows, index_t pitch, index_t count, const index_t* c_row,
                 const tile_output<bfloat16>& output) {
  for (index_t m = 0; m < rows; ++m) {
    const float row_bias = output.bias != nullptr && output.bias_of_rows ? output.bias[m] : 0;
    tile_output<bfloat16> o = output;
    const auto at = [&](index_t place) noexcept {
      o.c = output.c + place;
      o.residual = output.residual == nullptr ? nullptr : output.residual + place;
      o.mask = output.mask == nullptr ? nullptr : output.mask + place;
    };
    index_t j = 0;
    for (; j + pair_lanes <= count; j += pair_lanes) {
      at(c_row[m] + j);
      o.bias = output.bias == nullptr ? nullptr : output.bias + (output.bias_of_rows ? 0 : j);
      finish_vector<Plain>(from + m * pitch + j, row_bias, o);
    }
    if (j < count) {  // the rest in a vector of its own
      struct {
        float sums[16] = {};
        float bias[16] = {};
        bfloat16 c[16] = {};
        bfloat16 residual[16] = {};
        bfloat16 mask[16] = {};
      } rest;
      const auto bytes = static_cast<std::size_t>(count - j) * sizeof(bfloat16);
      at(c_row[m] + j);
      std::memcpy(rest.sums, from + m * pitch + j, 2 * bytes);
      if (output.bias != nullptr && !output.bias_of_rows) {
        std::memcpy(rest.bias, output.bias + j, 2 * bytes);
      }
      if (output.accumulate) {
        std::memcpy(static_cast<void*>(rest.c), o.c, bytes);
      }
      if (o.residual != nullptr) {
        std::memcpy(static_cast<void*>(rest.residual), std::exchange(o.residual, rest.residual), bytes);
      }
      if (o.mask != nullptr) {
        std::memcpy(static_cast<void*>(rest.mask), std::exchange(o.mask, rest.mask), bytes);
      }
      bfloat16* const to = std::exchange(o.c, rest.c);
      o.bias = output.bias == nullptr ? nullptr : rest.bias;
      finish_vector<Plain>(rest.sums, row_bias, o);
      std::memcpy(static_cast<void*>(to), rest.c, bytes);
    }
  }
}

/// As finish of tile_body.hpp, for results of bfloat16.
inline void finish_pairs(const float* from, index_t rows, index_t pitch, index_t count, const index_t* c_row,
                         const tile_output<bfloat16>& output) {
  const bool plain = output.residual == nullptr && output.mask == nullptr && !output.accumulate && !output.act.other;
  (plain ? finish_rows<true> : finish_rows<false>)(from, rows, pitch, count, c_row, output);
}

template <class Element, int Vectors, int... Rows>
constexpr tile_table<Element> pair_tiles() {
  tile_table<Element> by_rows{};
  ((by_rows[Rows] = &multiply_pairs<Element, Rows, Vectors>), ...);
  return by_rows;
}

/// The kernels of an instruction set, with tiles of pairs.
template <class Element>
[[nodiscard]] constexpr tile_kernels<Element> with_pair_tiles(tile_kernels<Element> kernels) {
  kernels.lanes = pair_lanes;
  kernels.rows = 14;
  kernels.width = 2 * pair_lanes;
  kernels.wide = pair_tiles<Element, 2, 4, 8, 14>();
  kernels.narrow = pair_tiles<Element, 1, 14>();
  kernels.pairs = true;
  kernels.finish_pairs = &finish_pairs;
  kernels.pair_rows = &pair_rows;
  return kernels;
}

}  // namespace gradus::kernels::detail::GRADUS_PAIRS_NAMESPACE

#undef GRADUS_PAIRS_NAMESPACE
#undef GRADUS_PAIRS_INSTRUCTION
#endif

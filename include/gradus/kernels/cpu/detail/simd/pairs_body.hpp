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

template <class Element, int Vectors, int... Rows>
constexpr tile_table<Element> pair_tiles() {
  tile_table<Element> by_rows{};
  ((by_rows[Rows] = &multiply_pairs<Element, Rows, Vectors>), ...);
  return by_rows;
}

/// The kernels of an instruction set, with tiles of pairs.
template <class Element>
[[nodiscard]] constexpr tile_kernels<Element> with_pair_tiles(tile_kernels<Element> kernels, instruction_set set) {
  kernels.set = set;
  kernels.lanes = pair_lanes;
  kernels.rows = 14;
  kernels.width = 2 * pair_lanes;
  kernels.wide = pair_tiles<Element, 2, 4, 8, 14>();
  kernels.narrow = pair_tiles<Element, 1, 14>();
  kernels.group = 2;
  return kernels;
}

}  // namespace gradus::kernels::detail::GRADUS_PAIRS_NAMESPACE

#undef GRADUS_PAIRS_NAMESPACE
#undef GRADUS_PAIRS_INSTRUCTION
#endif

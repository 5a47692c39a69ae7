// SPDX-License-Identifier: BSL-1.0
//
// Blocks of vectors whose sums have the same bits with every instruction set.

// No `#pragma once`: for_each_target.hpp says what to compile.
#if defined(GRADUS_TARGET)

namespace gradus::simd::GRADUS_TARGET {

/// Vectors of 64 bytes. Sums in them have the same bits with every instruction set.
template <class Element>
struct row_block {
  using pack = packet<Element>;
  using real = typename pack::real;
  static constexpr int vectors = 64 / GRADUS_TARGET_BYTES;
  static constexpr index_t width = vectors * pack::lanes;
  typename pack::type value[vectors];

  /// combine(combine(a, c), combine(b, d)) of quarters, and then of SIMD lanes
  template <class Combine>
  GRADUS_ALWAYS_INLINE real reduced(const Combine& combine) const noexcept {
    alignas(64) real all[std::size_t{width}];
    for (int k = 0; k < vectors; ++k) {
      *reinterpret_cast<typename pack::type*>(all + k * pack::lanes) = value[k];
    }
    typedef real quarter __attribute__((vector_size(16), may_alias));
    const auto* const q = reinterpret_cast<const quarter*>(all);
    const quarter some = combine(combine(q[0], q[2]), combine(q[1], q[3]));
    if constexpr (sizeof(real) == 8) {
      return combine(some[0], some[1]);
    } else {
      return combine(combine(some[0], some[2]), combine(some[1], some[3]));
    }
  }

  /// Calls body(packet, i, value[k]) for the vectors of a row, where the k-th of a block meets value[k].
  template <class Body>
  GRADUS_ALWAYS_INLINE void for_each(index_t count, const Body& body) noexcept {
    for (index_t first = 0; first < count; first += width) {
#pragma GCC unroll 4
      for (int k = 0; k < vectors; ++k) {
        const index_t i = first + k * pack::lanes;
        if (i >= count) {
          break;
        }
        body(pack{count - i < pack::lanes ? count - i : pack::lanes}, i, value[k]);
      }
    }
  }
  GRADUS_ALWAYS_INLINE void fill(real number) noexcept {
    for (auto& each : value) {
      each = pack::broadcast(number);
    }
  }
};

}  // namespace gradus::simd::GRADUS_TARGET

#endif

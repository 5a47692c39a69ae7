// SPDX-License-Identifier: BSL-1.0
//
// Short vectors of elements for the passes that wait for memory.
// Module: kernels. Depends on: core.
#pragma once

#include <cstring>  // std::memcpy

#include "gradus/core/config.hpp"  // GRADUS_ALWAYS_INLINE
#include "gradus/core/index.hpp"   // index_t

namespace gradus::kernels::detail {

/// `Lanes` elements that are computed with together: a GCC vector, with + - * / and ?: on every lane.
template <class Element, int Lanes>
struct packet {
  static constexpr index_t lanes = Lanes;
  typedef Element type __attribute__((vector_size(Lanes * sizeof(Element))));

  GRADUS_ALWAYS_INLINE static type load(const Element* from) noexcept {
    type value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  GRADUS_ALWAYS_INLINE static void store(Element* to, type value) noexcept { std::memcpy(to, &value, sizeof(value)); }
  GRADUS_ALWAYS_INLINE static type broadcast(Element value) noexcept { return value - type{}; }
  /// The same lanes as doubles.
  GRADUS_ALWAYS_INLINE static typename packet<double, Lanes>::type widen(type value) noexcept {
    return __builtin_convertvector(value, typename packet<double, Lanes>::type);
  }
};

/// Bytes of a vector that every processor of the architecture has.
inline constexpr int packet_bytes = 16;

}  // namespace gradus::kernels::detail

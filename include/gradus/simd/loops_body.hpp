// SPDX-License-Identifier: BSL-1.0
//
// Loops over elements in vectors of one instruction set.

// No `#pragma once`: for_each_target.hpp says what to compile.
#if defined(GRADUS_TARGET)

namespace gradus::simd::GRADUS_TARGET {

/// Calls body(packet, i) for i in [begin, end) in steps of a packet's SIMD lanes.
template <class Element, class Body>
GRADUS_ALWAYS_INLINE void for_each_packet(index_t begin, index_t end, const Body& body) noexcept {
  constexpr index_t lanes = packet<Element>::lanes;
  index_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    body(packet<Element>{}, i);
  }
  if (i < end) {
    body(packet<Element>{end - i}, i);
  }
}

/// Calls body(packet, number of packets, i) for i in [0, count), with several packets at a time: what a loop decides
/// for each of its arrays, it then decides once for all of them.
template <class Element, class Body>
GRADUS_ALWAYS_INLINE void for_each_block(index_t count, const Body& body) noexcept {
  constexpr index_t lanes = packet<Element>::lanes;
  constexpr int some = GRADUS_TARGET_BYTES == 32 ? 2 : 4;  // blocks of 16 floats are frequent
  index_t i = 0;
  for (; i + some * lanes <= count; i += some * lanes) {
    body(packet<Element>{}, std::integral_constant<int, some>{}, i);
  }
  for (; i < count; i += lanes) {
    body(packet<Element>{count - i < lanes ? count - i : lanes}, std::integral_constant<int, 1>{}, i);
  }
}

}  // namespace gradus::simd::GRADUS_TARGET

#endif

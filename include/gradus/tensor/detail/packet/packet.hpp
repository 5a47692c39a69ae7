// SPDX-License-Identifier: BSL-1.0
//
// Packets: Eigen's SIMD vectors, and the functions on them that expressions need.
//
// The width follows the compiler's target: 4 floats with plain -O2 on x86-64 (SSE2), more with -march=native.
#pragma once

#include <Eigen/Core>  // Eigen::internal::packet_traits

#include <array>    // std::array
#include <cstddef>  // std::size_t

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"

namespace gradus::detail {

template <real_element Element>
using packet_of = typename Eigen::internal::packet_traits<Element>::type;

template <real_element Element>
inline constexpr index_t packet_width = Eigen::internal::packet_traits<Element>::size;

template <class Packet, class Element>
GRADUS_ALWAYS_INLINE Packet load_packet(const Element* from) noexcept {
  return Eigen::internal::ploadu<Packet>(from);
}

/// Loads the first `count` SIMD lanes, at least one; the others repeat the first.
template <class Packet, class Element>
Packet load_part(const Element* from, index_t count) noexcept {
  constexpr index_t width = packet_width<Element>;
  std::array<Element, static_cast<std::size_t>(width)> lanes;
  for (index_t lane = 0; lane < width; ++lane) {
    lanes[static_cast<std::size_t>(lane)] = from[lane < count ? lane : 0];
  }
  return load_packet<Packet>(lanes.data());
}

template <class Packet, class Element>
GRADUS_ALWAYS_INLINE Packet set_packet(Element value) noexcept {
  return Eigen::internal::pset1<Packet>(value);
}

}  // namespace gradus::detail

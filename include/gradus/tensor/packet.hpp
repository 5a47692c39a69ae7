// SPDX-License-Identifier: BSL-1.0
//
// Vectors of elements: Eigen's packets and what expressions need of them.
// Module: tensor. Depends on: core.
//
// The width is that of the compiler's target: plain -O2 on x86-64 means SSE2, four floats; -march=native more.
#pragma once

#include <Eigen/Core>  // Eigen::internal::packet_traits

#include "gradus/core/config.hpp"   // GRADUS_ALWAYS_INLINE
#include "gradus/core/element.hpp"  // real_element
#include "gradus/core/index.hpp"    // index_t

namespace gradus::detail {

template <real_element Element>
using packet_of = typename Eigen::internal::packet_traits<Element>::type;

template <real_element Element>
inline constexpr index_t packet_width = Eigen::internal::packet_traits<Element>::size;

template <class Packet, class Element>
GRADUS_ALWAYS_INLINE Packet load_packet(const Element* from) noexcept {
  return Eigen::internal::ploadu<Packet>(from);
}

template <class Packet, class Element>
GRADUS_ALWAYS_INLINE Packet set_packet(Element value) noexcept {
  return Eigen::internal::pset1<Packet>(value);
}

}  // namespace gradus::detail

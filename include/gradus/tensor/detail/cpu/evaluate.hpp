// SPDX-License-Identifier: BSL-1.0
//
// Evaluation of expressions on the CPU: one pass in memory order, in packets, split over the device's threads.
#pragma once

#include <Eigen/Core>  // Eigen::internal::pstoreu
#include <algorithm>   // std::max
#include <array>       // std::array
#include <concepts>    // std::same_as
#include <cstddef>     // std::size_t

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/tensor/detail/packet/packet.hpp"
#include "gradus/tensor/expression.hpp"

namespace gradus::detail {

/// Elements of one task. Fixed, and a multiple of every packet's width, so that results do not depend on threads.
inline constexpr index_t evaluation_grain = 16384;

/// True if the node's values can be written as packets. (Masks of comparisons cannot.)
template <class Node>
inline constexpr bool writes_packets =
    Node::vectorizable&& std::same_as<typename Node::packet_element, typename Node::value_type>;

/// Writes the last `count` elements of a range, fewer than a packet holds. It computes a packet that overlaps the
/// elements before and writes only the new SIMD lanes (`out` may be memory that is read).
template <class Cursor, class Element>
GRADUS_NEVER_INLINE void write_last(const Cursor& cursor, index_t begin, index_t count, bool first,
                                    Element* out) noexcept {
  using packet = packet_of<Element>;
  constexpr index_t width = packet_width<Element>;
  std::array<Element, static_cast<std::size_t>(width)> lanes;
  index_t skipped = 0;
  if (first) {  // elements before `begin` may belong to another thread
    Eigen::internal::pstoreu(lanes.data(), cursor.template first_lanes<packet>(begin, count));
  } else {
    skipped = width - count;
    Eigen::internal::pstoreu(lanes.data(), cursor.template packet<packet>(begin - skipped));
  }
  for (index_t i = 0; i < count; ++i) {
    out[i] = lanes[static_cast<std::size_t>(skipped + i)];
  }
}

/// out[i] = cursor(begin + i) for i in [0, count): all or some elements of a row; the elements before `begin` fill
/// whole packets. Where packets and single elements have different bits, a row of at least one packet is computed by
/// packets only, and a shorter row by elements only: the bits of an element do not depend on its position.
template <bool Vectorizable, class Cursor, class Element>
GRADUS_ALWAYS_INLINE void write_range(const Cursor& cursor, index_t begin, index_t count, Element* out) noexcept {
  index_t i = 0;
  if constexpr (Vectorizable) {
    using packet = packet_of<Element>;
    constexpr index_t width = packet_width<Element>;
    for (; i + width <= count; i += width) {
      Eigen::internal::pstoreu(out + i, cursor.template packet<packet>(begin + i));
    }
    if constexpr (Cursor::approximated) {
      if (i < count && begin + count >= width) {
        write_last(cursor, begin + i, count - i, i == 0, out + i);
        return;
      }
    }
  }
  for (; i < count; ++i) {
    out[i] = cursor.scalar(begin + i);
  }
}

/// Writes the values of `node` to `out`, in memory order. `out` may be memory that the node reads.
template <class Node>
void evaluate_to(cpu& device, typename Node::value_type* out, const Node& node) {
  const auto& shape = node.extents();
  const index_t size = shape.size();
  if (size == 0) {
    return;
  }
  if constexpr (Node::linear) {
    const auto whole = node.row(0);
    device.parallel_for(size, evaluation_grain, [&](index_t begin, index_t end) {
      const auto cursor = whole;
      write_range<writes_packets<Node>>(cursor, begin, end - begin, out + begin);
    });
  } else {
    const index_t length = row_length<typename Node::layout_type>(shape);
    const index_t grain = std::max(index_t{1}, evaluation_grain / length);
    device.parallel_for(size / length, grain, [&](index_t begin, index_t end) {
      for (index_t r = begin; r < end; ++r) {
        write_range<writes_packets<Node>>(node.row(r), 0, length, out + r * length);
      }
    });
  }
}

}  // namespace gradus::detail

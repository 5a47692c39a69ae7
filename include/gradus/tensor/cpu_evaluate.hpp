// SPDX-License-Identifier: BSL-1.0
//
// Evaluation of expressions on the CPU: one pass in memory order, in packets, split over the device's threads.
// Module: tensor. Depends on: device.
#pragma once

#include <Eigen/Core>  // Eigen::internal::pstoreu
#include <algorithm>   // std::max
#include <concepts>    // std::same_as

#include "gradus/core/config.hpp"        // GRADUS_ALWAYS_INLINE
#include "gradus/core/index.hpp"         // index_t
#include "gradus/device/cpu.hpp"         // cpu
#include "gradus/tensor/expression.hpp"  // row_length
#include "gradus/tensor/packet.hpp"      // packet_of

namespace gradus::detail {

/// Elements that one task computes. Fixed, and a multiple of every packet's width: results do not depend on threads.
inline constexpr index_t evaluation_grain = 16384;

/// Can the values of the node be written as packets? (Masks of comparisons cannot.)
template <class Node>
inline constexpr bool writes_packets =
    Node::vectorizable&& std::same_as<typename Node::packet_element, typename Node::value_type>;

/// out[i] = cursor(begin + i) for i in [0, count)
template <bool Vectorizable, class Cursor, class Element>
GRADUS_ALWAYS_INLINE void write_range(const Cursor& cursor, index_t begin, index_t count, Element* out) noexcept {
  index_t i = 0;
  if constexpr (Vectorizable) {
    using packet = packet_of<Element>;
    constexpr index_t width = packet_width<Element>;
    for (; i + width <= count; i += width) {
      Eigen::internal::pstoreu(out + i, cursor.template packet<packet>(begin + i));
    }
  }
  for (; i < count; ++i) {
    out[i] = cursor.scalar(begin + i);
  }
}

/// Computes the values of `node` to `out`, in memory order. `out` may be memory that the node reads.
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

// SPDX-License-Identifier: BSL-1.0
//
// Parts of tensors along one axis: copies out of a tensor, and copies of several tensors into one.
//
// Around an axis at some position of the memory order, a tensor is `outer` rows of `extent` entries, each of `inner`
// adjacent elements.
#pragma once

#include <algorithm>    // std::copy_n, std::max
#include <array>        // std::array
#include <concepts>     // std::same_as
#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <type_traits>  // std::is_enum_v
#include <utility>      // std::move

#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/tensor/expression.hpp"
#include "gradus/tensor/matrix.hpp"

namespace gradus::detail {

/// The number of an axis of a tensor of `Rank` axes.
template <auto Axis, int Rank>
[[nodiscard]] consteval int axis_number() {
  static_assert(static_cast<int>(Axis) >= 0 && static_cast<int>(Axis) < Rank,
                "gradus: an axis that the tensor does not have: axes are numbered from 0 in logical order");
  return static_cast<int>(Axis);
}

/// The numbers of entries around an axis in memory.
struct axis_lengths {
  index_t outer = 1;
  index_t extent = 0;
  index_t inner = 1;
};

template <class Layout, int Axis, int Rank>
[[nodiscard]] axis_lengths lengths_around(const extents<Rank>& shape) noexcept {
  axis_lengths result;
  bool before = true;
  for (const int axis : memory_order<Layout, Rank>) {
    if (axis == Axis) {
      result.extent = shape[axis];
      before = false;
    } else {
      (before ? result.outer : result.inner) *= shape[axis];
    }
  }
  return result;
}

/// The shape with another extent of one axis.
template <int Rank>
[[nodiscard]] extents<Rank> with_extent(const extents<Rank>& shape, int axis, index_t extent) {
  auto values = shape.values();
  values[static_cast<std::size_t>(axis)] = extent;
  return extents<Rank>{values};
}

/// Entries of an axis: begin, begin + step, ...
struct axis_entries {
  index_t begin;
  index_t count;
  index_t step;
};

/// A part of every row: `length` elements, those of the next row `row_stride` elements behind them.
template <class Element>
struct row_part {
  const Element* data;
  index_t length;
  index_t row_stride;
};

/// Writes rows, each of which is the parts one after the other, on the threads of the cpu.
template <class Element>
void join_rows(cpu& device, Element* out, index_t rows, std::span<const row_part<Element>> parts) {
  index_t length = 0;
  for (const auto& part : parts) {
    length += part.length;
  }
  device.parallel_for(rows, std::max(index_t{1}, 16384 / std::max(index_t{1}, length)),
                      [&](index_t begin, index_t end) {
                        for (index_t row = begin; row < end; ++row) {
                          Element* to = out + row * length;
                          for (const auto& part : parts) {
                            to = std::copy_n(part.data + row * part.row_stride, part.length, to);
                          }
                        }
                      });
}

/// The same on other devices: one row by copies, several by transposing each part and then all of them.
template <class Device, class Element>
requires(!std::same_as<Device, cpu>) void join_rows(Device& device, Element* out, index_t rows,
                                                    std::span<const row_part<Element>> parts) {
  static_assert(explain_copy_reordered<Device, Element, 2>());
  index_t length = 0;
  if (rows == 1) {
    for (const auto& part : parts) {
      device.copy(out + length, part.data, static_cast<std::size_t>(part.length) * sizeof(Element));
      length += part.length;
    }
    return;
  }
  for (const auto& part : parts) {
    length += part.length;
  }
  if (rows * length == 0) {
    return;
  }
  const temporary<Element, 2, row_major, Device> columns{device, {length, rows}};
  index_t first = 0;
  for (const auto& part : parts) {
    if (part.length > 0) {
      copy_reordered(device, columns.data() + first * rows, part.data, std::array<index_t, 2>{part.length, rows},
                     std::array<index_t, 2>{1, part.row_stride});
    }
    first += part.length;
  }
  copy_reordered(device, out, static_cast<const Element*>(columns.data()), std::array<index_t, 2>{rows, length},
                 std::array<index_t, 2>{1, rows});
}

/// The entries of an axis of a stored node. Adjacent entries share the memory of the node; others are copied.
template <int Axis, class Node>
[[nodiscard]] auto entries_of(const Node& node, const axis_entries& entries) {
  using element = typename Node::value_type;
  using device_type = typename Node::device_type;
  using layout = typename Node::layout_type;
  static_assert(explain_copy_reordered<device_type, element, 3>());
  const auto shape = with_extent(node.extents(), Axis, entries.count);
  const auto [outer, extent, inner] = lengths_around<layout, Axis>(node.extents());
  const bool whole = entries.count == extent && entries.step == 1;
  if (whole || shape.size() == 0 || (outer == 1 && (entries.step == 1 || entries.count == 1))) {
    return leaf<element, Node::rank, layout, device_type>{node, whole ? 0 : entries.begin * inner, shape};
  }
  temporary<element, Node::rank, layout, device_type> result{node.device(), shape};
  if constexpr (std::same_as<device_type, cpu>) {
    if (entries.step == 1) {  // rows of several adjacent elements
      const std::array<row_part<element>, 1> parts{
          {{node.data() + entries.begin * inner, entries.count * inner, extent * inner}}};
      join_rows(node.device(), result.data(), outer, std::span<const row_part<element>>{parts});
      return std::move(result).done();
    }
  }
  copy_reordered(node.device(), result.data(), node.data() + entries.begin * inner,
                 std::array<index_t, 3>{outer, entries.count, inner},
                 std::array<index_t, 3>{extent * inner, entries.step * inner, 1});
  return std::move(result).done();
}

}  // namespace gradus::detail

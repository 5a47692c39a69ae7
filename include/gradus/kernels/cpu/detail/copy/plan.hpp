// SPDX-License-Identifier: BSL-1.0
//
// How the CPU runs a strided copy: outer loops around runs of adjacent elements, or around small transpositions.
#pragma once

#include <algorithm>  // std::min
#include <array>      // std::array
#include <cstddef>    // std::size_t
#include <utility>    // std::swap

#include "gradus/core/index.hpp"
#include "gradus/kernels/strided_copy.hpp"

namespace gradus::kernels::detail {

/// Rows and columns of a transposition.
inline constexpr index_t copy_tile = 64;
/// Adjacent elements of one run.
inline constexpr index_t copy_run = 16384;

/// Some axes of a copy, slowest first.
struct copy_axes {
  std::array<copy_axis, 8> axes{};
  int count = 0;

  constexpr void push_back(const copy_axis& axis) noexcept { axes[static_cast<std::size_t>(count++)] = axis; }
  constexpr copy_axis& operator[](int k) noexcept { return axes[static_cast<std::size_t>(k)]; }
  constexpr const copy_axis& operator[](int k) const noexcept { return axes[static_cast<std::size_t>(k)]; }
  constexpr void erase(int k) noexcept {
    for (int j = k; j + 1 < count; ++j) {
      (*this)[j] = (*this)[j + 1];
    }
    --count;
  }
};

/// The same copy with as few axes as possible, in the order of the destination.
[[nodiscard]] constexpr copy_axes merged_axes(const strided_copy_shape& shape) noexcept {
  copy_axes sorted;
  for (const copy_axis& each : shape.axes) {
    if (each.extent == 1) {
      continue;
    }
    sorted.push_back(each);
    for (int k = sorted.count - 1; k > 0 && sorted[k].to > sorted[k - 1].to; --k) {
      std::swap(sorted[k - 1], sorted[k]);
    }
  }
  copy_axes result;
  for (int k = 0; k < sorted.count; ++k) {
    const copy_axis& inner = sorted[k];
    if (result.count > 0) {
      copy_axis& outer = result[result.count - 1];
      if (outer.to == inner.to * inner.extent && outer.from == inner.from * inner.extent) {
        outer = {outer.extent * inner.extent, inner.from, inner.to};
        continue;
      }
    }
    result.push_back(inner);
  }
  return result;
}

/// One side of a transposition: up to copy_tile elements that are adjacent in the source or in the destination, and
/// where each of them is on the other side.
struct copy_side {
  std::array<index_t, copy_tile> offsets{};  ///< on the other side, in elements
  index_t count = 1;
  index_t total = 1;   ///< of which `count` are copied at a time; larger than count for one long axis only
  int chunk_axis = 0;  ///< the outer axis that counts the parts of a long axis

  /// Adds an axis behind those before it.
  constexpr void extend(index_t extent, index_t stride) noexcept {
    for (index_t i = 1; i < extent; ++i) {
      for (index_t j = 0; j < count; ++j) {
        offsets[static_cast<std::size_t>(i * count + j)] = offsets[static_cast<std::size_t>(j)] + i * stride;
      }
    }
    count *= extent;
    total = count;
  }
  /// The elements of part `chunk`.
  [[nodiscard]] constexpr index_t part(index_t chunk) const noexcept { return std::min(count, total - chunk * count); }
};

/// How a copy runs.
struct copy_plan {
  enum class kind : unsigned char { runs, transpositions, elements };

  copy_axes outer;  ///< the loops
  kind how = kind::elements;
  index_t length = 1;      ///< runs: adjacent elements; the last run of a long axis is shorter
  index_t total = 1;       ///< runs: of the axis
  int chunk_axis = -1;     ///< runs: the outer axis that counts the parts of a long axis; -1 if there is one part
  copy_axis inner;         ///< elements: the innermost loop
  copy_side source;        ///< transpositions: elements that are adjacent in the source
  copy_side destination;   ///< transpositions: elements that are adjacent in the destination
  index_t block_size = 1;  ///< elements of a step of the outer loops
  index_t blocks = 0;      ///< steps of the outer loops
};

/// Takes an axis out of the loops and makes it a side, in parts of copy_tile if it is long.
constexpr void take_side(copy_axes& outer, int k, copy_side& side, index_t copy_axis::*stride) noexcept {
  const copy_axis axis = outer[k];
  if (axis.extent <= copy_tile) {
    side.extend(axis.extent, axis.*stride);
    outer.erase(k);
    return;
  }
  side.extend(copy_tile, axis.*stride);
  side.total = axis.extent;
  outer[k] = {(axis.extent + copy_tile - 1) / copy_tile, axis.from * copy_tile, axis.to * copy_tile};
}

/// Extends a side that is not long by the axes that follow it in memory. `own` is the stride in which it is adjacent.
constexpr void extend_side(copy_axes& outer, copy_side& side, index_t copy_axis::*own, index_t copy_axis::*other) {
  for (int k = outer.count - 1; k >= 0 && side.total == side.count; --k) {
    if (outer[k].*own == side.count && side.count * outer[k].extent <= copy_tile) {
      side.extend(outer[k].extent, outer[k].*other);
      outer.erase(k);
      k = outer.count;
    }
  }
}

/// The outer axis with this stride, or -1.
[[nodiscard]] constexpr int axis_of_stride(const copy_axes& axes, index_t copy_axis::*stride, index_t value) noexcept {
  for (int k = axes.count - 1; k >= 0; --k) {
    if (axes[k].*stride == value) {
      return k;
    }
  }
  return -1;
}

[[nodiscard]] constexpr copy_plan plan_copy(const strided_copy_shape& shape) noexcept {
  copy_plan plan;
  if (shape.size() == 0) {
    return plan;
  }
  copy_axes& outer = plan.outer;
  outer = merged_axes(shape);
  if (outer.count == 0) {
    outer.push_back({});
  }
  const copy_axis last = outer[outer.count - 1];
  const int adjacent = axis_of_stride(outer, &copy_axis::from, 1);
  if (last.to == 1 && last.from == 1) {
    plan.how = copy_plan::kind::runs;
    plan.total = last.extent;
    plan.length = std::min(last.extent, copy_run);
    if (plan.length == plan.total && outer.count > 1) {
      outer.erase(outer.count - 1);
    } else {
      plan.chunk_axis = outer.count - 1;
      outer[outer.count - 1] = {(plan.total + plan.length - 1) / plan.length, plan.length, plan.length};
    }
    plan.block_size = plan.length;
  } else if (last.to == 1 && adjacent >= 0) {
    plan.how = copy_plan::kind::transpositions;
    // The long axes stay in the loops and count their parts; the short ones leave them.
    take_side(outer, outer.count - 1, plan.destination, &copy_axis::from);
    take_side(outer, axis_of_stride(outer, &copy_axis::from, 1), plan.source, &copy_axis::to);
    plan.destination.chunk_axis = -1;
    plan.source.chunk_axis = -1;
    extend_side(outer, plan.source, &copy_axis::from, &copy_axis::to);
    extend_side(outer, plan.destination, &copy_axis::to, &copy_axis::from);
    if (plan.destination.total > plan.destination.count) {
      plan.destination.chunk_axis = axis_of_stride(outer, &copy_axis::to, copy_tile);
    }
    if (plan.source.total > plan.source.count) {
      plan.source.chunk_axis = axis_of_stride(outer, &copy_axis::from, copy_tile);
    }
    plan.block_size = plan.source.count * plan.destination.count;
  } else {
    plan.inner = last;
    plan.block_size = last.extent;
    outer.erase(outer.count - 1);
  }
  plan.blocks = 1;
  for (int k = 0; k < outer.count; ++k) {
    plan.blocks *= outer[k].extent;
  }
  return plan;
}

/// The position of the outer loops.
class copy_walk {
 public:
  /// @pre 0 <= first < the number of steps
  constexpr copy_walk(const copy_axes& axes, index_t first) noexcept : axes_{axes} {
    for (int k = axes.count - 1; k >= 0; --k) {
      const index_t at = first % axes[k].extent;
      first /= axes[k].extent;
      at_[static_cast<std::size_t>(k)] = at;
      from += at * axes[k].from;
      to += at * axes[k].to;
    }
  }
  constexpr void next() noexcept {
    for (int k = axes_.count - 1; k >= 0; --k) {
      index_t& at = at_[static_cast<std::size_t>(k)];
      from += axes_[k].from;
      to += axes_[k].to;
      if (++at < axes_[k].extent) {
        return;
      }
      from -= at * axes_[k].from;
      to -= at * axes_[k].to;
      at = 0;
    }
  }
  /// The index of an axis; 0 for axis -1.
  [[nodiscard]] constexpr index_t at(int axis) const noexcept {
    return axis < 0 ? 0 : at_[static_cast<std::size_t>(axis)];
  }

  index_t from = 0;  ///< offset in the source, in elements
  index_t to = 0;    ///< offset in the destination

 private:
  const copy_axes& axes_;
  std::array<index_t, 8> at_{};
};

}  // namespace gradus::kernels::detail

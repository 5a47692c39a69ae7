// SPDX-License-Identifier: BSL-1.0
//
// Reductions on the CPU, in blocks that do not depend on the number of threads and are combined in order.
#pragma once

#include <algorithm>    // std::fill_n, std::max, std::min
#include <array>        // std::array
#include <bit>          // std::popcount
#include <cstddef>      // std::size_t
#include <type_traits>  // std::is_trivially_copyable_v
#include <utility>      // std::move

#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/tensor/broadcast.hpp"
#include "gradus/tensor/detail/cpu/evaluate.hpp"
#include "gradus/tensor/detail/expression/shared_buffer.hpp"
#include "gradus/tensor/expression.hpp"

namespace gradus::detail {

/// A loop over the axes in memory order, some of which are reduced. Adjacent axes of one kind (kept or reduced) are
/// merged if the node allows it, so that a sum over whole images runs over long rows.
template <int Rank>
struct reduction_loop {
  struct loop_axis {
    index_t extent;
    index_t step;  // stride in the logical order of the kept, or of the reduced, elements
    bool reduced;
  };
  std::array<loop_axis, static_cast<std::size_t>(Rank) + 1> axes{};
  int count = 0;

  [[nodiscard]] const loop_axis& fastest() const noexcept { return axes[static_cast<std::size_t>(count - 1)]; }

  /// The row and the logical index of its first element for an index over the slower axes of one kind.
  struct position {
    index_t row = 0;
    index_t index = 0;
  };
  [[nodiscard]] position locate(index_t index, bool reduced) const noexcept {
    position result;
    index_t row_stride = 1;
    for (int i = count - 2; i >= 0; --i) {
      const loop_axis& axis = axes[static_cast<std::size_t>(i)];
      if (axis.reduced == reduced) {
        const index_t coordinate = index % axis.extent;
        index /= axis.extent;
        result.row += coordinate * row_stride;
        result.index += coordinate * axis.step;
      }
      row_stride *= axis.extent;
    }
    return result;
  }
  /// The number of rows over the slower axes of one kind.
  [[nodiscard]] index_t rows(bool reduced) const noexcept {
    index_t result = 1;
    for (int i = 0; i + 1 < count; ++i) {
      result *= axes[static_cast<std::size_t>(i)].reduced == reduced ? axes[static_cast<std::size_t>(i)].extent : 1;
    }
    return result;
  }
};

template <class Layout, unsigned Reduced, int Rank>
[[nodiscard]] reduction_loop<Rank> make_reduction_loop(const extents<Rank>& shape, bool join) noexcept {
  reduction_loop<Rank> loop;
  std::array<index_t, static_cast<std::size_t>(Rank)> steps{};
  index_t kept_step = 1;
  index_t reduced_step = 1;
  for (int axis = Rank - 1; axis >= 0; --axis) {
    index_t& step = (Reduced >> static_cast<unsigned>(axis) & 1U) != 0 ? reduced_step : kept_step;
    steps[static_cast<std::size_t>(axis)] = step;
    step *= shape[axis];
  }
  for (const int axis : memory_order<Layout, Rank>) {
    const bool reduced = (Reduced >> static_cast<unsigned>(axis) & 1U) != 0;
    const index_t step = steps[static_cast<std::size_t>(axis)];
    if (loop.count > 0) {
      auto& before = loop.axes[static_cast<std::size_t>(loop.count - 1)];
      if (join && before.reduced == reduced && before.step == step * shape[axis]) {
        before = {before.extent * shape[axis], step, reduced};
        continue;
      }
    }
    loop.axes[static_cast<std::size_t>(loop.count++)] = {shape[axis], step, reduced};
  }
  if (loop.count == 0) {
    loop.axes[static_cast<std::size_t>(loop.count++)] = {1, 1, true};
  }
  return loop;
}

/// Folds `count` elements from `begin` on into one state, in a fixed number of chains.
template <class Kind, bool Vectorizable, class Cursor, class State>
void fold_range(const Cursor& cursor, index_t begin, index_t count, index_t index, index_t step,
                State& state) noexcept {
  using element = typename Kind::element_type;
  constexpr index_t block = 64;
  std::array<element, block> values;
  std::array<State, 4> chains;
  chains.fill(Kind::initial());
  for (index_t i = 0; i < count; i += block) {
    const index_t size = std::min(block, count - i);
    write_range<Vectorizable>(cursor, begin + i, size, values.data());
    index_t k = 0;
    for (; k + 4 <= size; k += 4) {
      for (std::size_t chain = 0; chain < 4; ++chain) {
        Kind::add(chains[chain], values[static_cast<std::size_t>(k) + chain],
                  index + (i + k + static_cast<index_t>(chain)) * step);
      }
    }
    for (; k < size; ++k) {
      Kind::add(chains[0], values[static_cast<std::size_t>(k)], index + (i + k) * step);
    }
  }
  for (const State& chain : chains) {
    Kind::merge(state, chain);
  }
}

/// Folds each of `count` elements into its own state.
template <class Kind, bool Vectorizable, class Cursor, class State>
void fold_each(const Cursor& cursor, index_t begin, index_t count, index_t index, State* states) noexcept {
  using element = typename Kind::element_type;
  constexpr index_t block = 64;
  std::array<element, block> values;
  for (index_t i = 0; i < count; i += block) {
    const index_t size = std::min(block, count - i);
    write_range<Vectorizable>(cursor, begin + i, size, values.data());
    for (index_t k = 0; k < size; ++k) {
      Kind::add(states[i + k], values[static_cast<std::size_t>(k)], index);
    }
  }
}

/// Memory for the states of a reduction.
template <class State>
class temporary_states {
 public:
  temporary_states(cpu& device, index_t count)
      : buffer_{device, static_cast<std::size_t>(checked_product(count, sizeof(State)))} {
    static_assert(std::is_trivially_copyable_v<State>);
  }
  [[nodiscard]] State* data() const noexcept { return static_cast<State*>(buffer_.data()); }

 private:
  shared_buffer<cpu> buffer_;
};

/// Reduces the axes in `Reduced`. The result has the kept axes in logical order.
template <class Kind, unsigned Reduced, class Node>
[[nodiscard]] auto reduce(cpu& device, const Node& node) {
  using state = typename Kind::state;
  using result_type = typename Kind::result_type;
  constexpr int rank = Node::rank;
  constexpr unsigned kept_mask = all_axes<rank> & ~Reduced;
  const auto shape = extents_of<kept_mask>(node.extents());
  const index_t folded = extents_of<Reduced>(node.extents()).size();
  temporary<result_type, std::popcount(kept_mask), row_major, cpu> result{device, shape};
  const index_t results = result.size();
  if (results == 0) {
    return std::move(result).done();
  }

  const auto loop = make_reduction_loop<typename Node::layout_type, Reduced>(node.extents(), Node::linear);
  const bool along_row = loop.fastest().reduced;
  const index_t length = loop.fastest().extent;
  const index_t groups = loop.rows(false);
  const index_t group_rows = folded == 0 ? 0 : loop.rows(true);
  const index_t width = along_row ? 1 : length;
  // A task takes several rows of a group, or a piece of a long row.
  const index_t piece = along_row ? std::min(length, evaluation_grain) : length;
  const index_t pieces = piece == 0 ? 0 : (length + piece - 1) / piece;
  const index_t task_rows = std::max(index_t{1}, evaluation_grain / std::max(index_t{1}, length));
  const index_t blocks = pieces > 1 ? group_rows * pieces : (group_rows + task_rows - 1) / task_rows;

  const auto fold_block = [&](index_t group, index_t block, state* states) {
    const auto kept = loop.locate(group, false);
    const index_t first = pieces > 1 ? block / pieces : block * task_rows;
    const index_t end = pieces > 1 ? first + 1 : std::min(group_rows, first + task_rows);
    const index_t begin = pieces > 1 ? block % pieces * piece : 0;
    const index_t count = std::min(piece, length - begin);
    for (index_t r = first; r < end; ++r) {
      const auto reduced = loop.locate(r, true);
      const index_t row = kept.row + reduced.row;
      const auto cursor = node.row(Node::linear ? 0 : row);
      const index_t offset = (Node::linear ? row * length : 0) + begin;
      if (along_row) {
        fold_range<Kind, writes_packets<Node>>(cursor, offset, count, reduced.index + begin * loop.fastest().step,
                                               loop.fastest().step, *states);
      } else {
        fold_each<Kind, writes_packets<Node>>(cursor, offset, count, reduced.index, states);
      }
    }
  };

  const auto write = [&](index_t group, const state* states) {
    const index_t index = loop.locate(group, false).index;
    for (index_t i = 0; i < width; ++i) {
      result.data()[index + i * loop.fastest().step] = Kind::finish(states[i], folded);
    }
  };
  if (groups == 1 && width == 1 && blocks <= 1) {  // one task
    const floating_point_scope arithmetic{device.flush_denormals()};
    state total = Kind::initial();
    if (blocks == 1) {
      fold_block(0, 0, &total);
    }
    write(0, &total);
    return std::move(result).done();
  }
  const index_t stored_blocks = std::max(index_t{1}, blocks);
  const index_t count = groups * stored_blocks * width;
  temporary_states<state> states{device, count};
  const index_t work = std::max(index_t{1}, std::min(piece, length) * std::min(task_rows, group_rows));
  device.parallel_for(groups * stored_blocks, std::max(index_t{1}, evaluation_grain / work), [&](index_t b, index_t e) {
    for (index_t task = b; task < e; ++task) {
      state* const mine = states.data() + task * width;
      std::fill_n(mine, width, Kind::initial());
      if (blocks > 0) {
        fold_block(task / blocks, task % blocks, mine);
      }
    }
  });
  device.parallel_for(groups, std::max(index_t{1}, evaluation_grain / (stored_blocks * width)),
                      [&](index_t b, index_t e) {
                        for (index_t group = b; group < e; ++group) {
                          state* const mine = states.data() + group * stored_blocks * width;
                          for (index_t block = 1; block < blocks; ++block) {
                            for (index_t i = 0; i < width; ++i) {
                              Kind::merge(mine[i], mine[block * width + i]);
                            }
                          }
                          write(group, mine);
                        }
                      });
  return std::move(result).done();
}

}  // namespace gradus::detail

// SPDX-License-Identifier: BSL-1.0
//
// Reductions with Thrust: each item folds a part, then the parts are folded. Only the shape sets the order.
#pragma once

#include <algorithm>    // std::max, std::min
#include <array>        // std::array
#include <bit>          // std::bit_floor, std::popcount
#include <cstddef>      // std::size_t
#include <type_traits>  // std::is_trivially_copyable_v
#include <utility>      // std::move

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/tensor/broadcast.hpp"
#include "gradus/tensor/detail/cpu/reduce.hpp"
#include "gradus/tensor/detail/expression/shared_buffer.hpp"
#include "gradus/tensor/detail/thrust/evaluate.cuh"
#include "gradus/tensor/expression.hpp"

namespace gradus::detail {

/// The reduced, or the kept, axes of a tensor: maps an index over them, fastest axis first, to positions.
template <int Rank>
struct axis_walk {
  struct walked_axis {
    index_t extent;
    index_t stride;  // elements between neighbors in memory
    index_t step;    // and in the logical order of these axes
  };
  struct position {
    index_t offset;
    index_t index;
  };
  std::array<walked_axis, static_cast<std::size_t>(Rank) + 1> axes{};
  int count = 0;
  index_t size = 1;
  bool narrow = true;

  void add(const walked_axis& axis) {
    axes[static_cast<std::size_t>(count++)] = axis;
    size *= axis.extent;
    narrow = is_narrow(size);
  }
  [[nodiscard]] GRADUS_HOST_DEVICE position locate(index_t number) const noexcept {
    position result{0, 0};
    GRADUS_KEEP_LOOP
    for (int k = 0; k < count; ++k) {
      const walked_axis& axis = axes[static_cast<std::size_t>(k)];
      division at{0, number};
      if (k + 1 < count) {  // the last axis takes the remainder
        at = divide(number, axis.extent, narrow);
      }
      result.offset += at.remainder * axis.stride;
      result.index += at.remainder * axis.step;
      number = at.quotient;
    }
    return result;
  }
};

/// Assigns the items of a launch so that adjacent items read adjacent elements. `lanes` items share each result.
struct reduction_items {
  index_t results;
  index_t lanes;
  bool lanes_adjacent;  // true if the fastest axis in memory is reduced
  [[nodiscard]] GRADUS_HOST_DEVICE division locate(index_t item) const noexcept {  // quotient: result, remainder: lane
    const bool narrow = item <= index_t{0xffffffff};
    if (lanes_adjacent) {
      return divide(item, lanes, narrow);
    }
    const division at = divide(item, results, narrow);
    return {at.remainder, at.quotient};
  }
  [[nodiscard]] GRADUS_HOST_DEVICE index_t number(index_t result, index_t lane) const noexcept {
    return lanes_adjacent ? result * lanes + lane : lane * results + result;
  }
};

/// Folds every lanes-th element of a result.
template <class Kind, class Values, int Rank>
struct element_fold {
  Values values;
  axis_walk<Rank> kept;
  axis_walk<Rank> reduced;
  reduction_items items;
  typename Kind::state* states;

  GRADUS_HOST_DEVICE void operator()(index_t item) const noexcept {
    const division mine = items.locate(item);
    const index_t begin = kept.locate(mine.quotient).offset;
    typename Kind::state state = Kind::initial();
    if (reduced.count == 1) {
      const auto& axis = reduced.axes[0];
      for (index_t i = mine.remainder; i < reduced.size; i += items.lanes) {
        Kind::add(state, values.template load<1>(begin + i * axis.stride).elements[0], i * axis.step);
      }
    } else {
      GRADUS_KEEP_LOOP
      for (index_t i = mine.remainder; i < reduced.size; i += items.lanes) {
        const auto at = reduced.locate(i);
        Kind::add(state, values.template load<1>(begin + at.offset).elements[0], at.index);
      }
    }
    states[item] = state;
  }
};

/// Folds every after.lanes-th state of a result.
template <class State, class Kind>
struct state_fold {
  const State* states;
  reduction_items before;
  reduction_items after;
  [[nodiscard]] GRADUS_HOST_DEVICE State fold(const division& mine) const noexcept {
    State state = Kind::initial();
    for (index_t lane = mine.remainder; lane < before.lanes; lane += after.lanes) {
      Kind::merge(state, states[before.number(mine.quotient, lane)]);
    }
    return state;
  }
};

template <class Kind>
struct state_fold_step {
  state_fold<typename Kind::state, Kind> fold;
  typename Kind::state* states;
  GRADUS_HOST_DEVICE void operator()(index_t item) const noexcept { states[item] = fold.fold(fold.after.locate(item)); }
};

template <class Kind, int Rank>
struct state_fold_end {
  state_fold<typename Kind::state, Kind> fold;
  axis_walk<Rank> kept;
  index_t folded;
  typename Kind::result_type* out;
  GRADUS_HOST_DEVICE void operator()(index_t item) const noexcept {
    out[kept.locate(item).index] = Kind::finish(fold.fold({item, 0}), folded);
  }
};

/// Reduces the axes in `Reduced`. The result has the kept axes in logical order.
template <class Kind, unsigned Reduced, evaluates_with_thrust Device, class Node>
[[nodiscard]] auto reduce(Device& device, const Node& node) {
  using state = typename Kind::state;
  static_assert(std::is_trivially_copyable_v<state>);
  constexpr int rank = Node::rank;
  constexpr unsigned kept_mask = all_axes<rank> & ~Reduced;
  constexpr index_t most_items = index_t{1} << 17U;  // enough for every GPU; fixed, so that all GPUs give the same bits
  constexpr index_t fewest_elements = 16;            // of an item
  constexpr index_t fan_in = 64;                     // states of an item
  temporary<typename Kind::result_type, std::popcount(kept_mask), row_major, Device> result{
      device, extents_of<kept_mask>(node.extents())};

  const auto loop = make_reduction_loop<typename Node::layout_type, Reduced>(node.extents(), true);
  axis_walk<rank> kept;
  axis_walk<rank> reduced;
  index_t stride = 1;
  for (int i = loop.count - 1; i >= 0; --i) {
    const auto& axis = loop.axes[static_cast<std::size_t>(i)];
    (axis.reduced ? reduced : kept).add({axis.extent, stride, axis.step});
    stride *= axis.extent;
  }
  if (kept.size == 0) {
    return std::move(result).done();
  }
  index_t lanes = std::min(most_items / kept.size, reduced.size / fewest_elements);
  lanes = static_cast<index_t>(std::bit_floor(static_cast<std::size_t>(std::max(index_t{1}, lanes))));

  const auto values = values_of(node);
  reduction_items items{kept.size, lanes, loop.fastest().reduced};
  const auto state_bytes = [&] {
    return static_cast<std::size_t>(checked_product(kept.size * items.lanes, sizeof(state)));
  };
  shared_buffer<Device> states{device, state_bytes()};
  const auto memory = [](const shared_buffer<Device>& buffer) { return static_cast<state*>(buffer.data()); };
  thrust_for_each(
      device, kept.size * lanes,
      element_fold<Kind, std::remove_const_t<decltype(values)>, rank>{values, kept, reduced, items, memory(states)});
  while (items.lanes > fan_in) {
    const reduction_items before = items;
    items.lanes = std::max(index_t{1}, items.lanes / fan_in);
    shared_buffer<Device> fewer{device, state_bytes()};
    thrust_for_each(device, kept.size * items.lanes,
                    state_fold_step<Kind>{{memory(states), before, items}, memory(fewer)});
    states = std::move(fewer);
  }
  thrust_for_each(
      device, kept.size,
      state_fold_end<Kind, rank>{{memory(states), items, {kept.size, 1, true}}, kept, reduced.size, result.data()});
  return std::move(result).done();
}

}  // namespace gradus::detail

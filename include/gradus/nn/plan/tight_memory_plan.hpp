// SPDX-License-Identifier: BSL-1.0
//
// Offsets of buffers in an arena that is as small as the largest set of buffers in use at one time, or nearly so.
#pragma once

#include <algorithm>  // std::clamp, std::max, std::sort
#include <cstddef>    // std::ptrdiff_t, std::size_t
#include <cstdint>    // std::uint64_t
#include <span>       // std::span
#include <utility>    // std::move

#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/nn/plan/memory_plan.hpp"

namespace gradus::nn {

/// The bytes of the buffers that are in use at the busiest time, each rounded up to memory_plan::alignment: no arena is
/// smaller.
[[nodiscard]] std::size_t largest_live_set(std::span<const buffer_lifetime> buffers);

/// As plan_memory, and looks for a smaller arena where that one is larger than the largest live set: it places the
/// buffers in other orders, and then moves buffers at the end of the arena to an earlier turn as long as that helps.
/// Cost: up to some thousand times that of plan_memory.
[[nodiscard]] memory_plan plan_memory_tightly(std::span<const buffer_lifetime> buffers);

}  // namespace gradus::nn

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn {

GRADUS_INLINE std::size_t largest_live_set(std::span<const buffer_lifetime> buffers) {
  std::size_t most = 0;
  for (const buffer_lifetime& begins : buffers) {  // the busiest time is the first of some buffer
    std::size_t live = 0;
    for (const buffer_lifetime& b : buffers) {
      if (b.first <= begins.first && begins.first <= b.last) {
        live = detail::sum_of_bytes(live, memory_plan::aligned(b.bytes));
      }
    }
    most = std::max(most, live);
  }
  return most;
}

GRADUS_INLINE memory_plan plan_memory_tightly(std::span<const buffer_lifetime> buffers) {
  const std::size_t least = largest_live_set(buffers);
  dynamic_array<std::size_t> best = detail::largest_first(buffers);
  const auto place = [&](const dynamic_array<std::size_t>& order) {
    return detail::place_in_order(buffers, {order.data(), order.size()});
  };
  memory_plan plan = place(best);
  const auto try_order = [&](dynamic_array<std::size_t> order) {
    memory_plan other = place(order);
    if (other.bytes <= plan.bytes) {
      plan = std::move(other);
      best = std::move(order);
    }
  };
  const auto length = [&](std::size_t b) { return buffers[b].last - buffers[b].first + 1; };
  if (plan.bytes > least) {
    dynamic_array<std::size_t> order = best;
    dynamic_array<std::size_t> turns(order.size());  // of each buffer, in the order before
    const auto sort_by = [&](const auto& less) {     // equal ones keep their order
      for (std::size_t turn = 0; turn < order.size(); ++turn) {
        turns[order[turn]] = turn;
      }
      std::sort(order.begin(), order.end(),
                [&](std::size_t a, std::size_t b) { return less(a, b) || (!less(b, a) && turns[a] < turns[b]); });
      try_order(order);
    };
    sort_by([&](std::size_t a, std::size_t b) { return buffers[a].bytes * length(a) > buffers[b].bytes * length(b); });
    sort_by([&](std::size_t a, std::size_t b) { return length(a) > length(b); });
    sort_by([&](std::size_t a, std::size_t b) { return buffers[a].first < buffers[b].first; });
  }
  const std::size_t work = std::max<std::size_t>(1, buffers.size() * buffers.size());
  const std::size_t tries = std::clamp<std::size_t>(50'000'000 / work, 100, 4000);
  std::uint64_t random = 1;
  for (std::size_t i = 0; i < tries && plan.bytes > least; ++i) {
    dynamic_array<std::size_t> order = best;
    dynamic_array<std::size_t> last;  // turns of the buffers at the end of the arena
    for (std::size_t turn = 0; turn < order.size(); ++turn) {
      const std::size_t b = order[turn];
      if (plan.offsets[b] + buffers[b].bytes + memory_plan::alignment > plan.bytes) {
        last.push_back(turn);
      }
    }
    const auto draw = [&](std::size_t below) {
      random = random * 6364136223846793005U + 1442695040888963407U;
      return (random >> 33U) % below;
    };
    const std::size_t from = i % 4 == 3 ? draw(order.size()) : last[draw(last.size())];
    const std::size_t to = draw(from + 1);
    const std::size_t moved = order[from];
    for (std::size_t turn = from; turn > to; --turn) {
      order[turn] = order[turn - 1];
    }
    order[to] = moved;
    try_order(std::move(order));
  }
  return plan;
}

}  // namespace gradus::nn
#endif

// SPDX-License-Identifier: BSL-1.0
//
// What an order of transfers is worth: a simulated step and its bounds; and the one order in which all ranks issue
// buckets.
#pragma once

#include <algorithm>  // std::max, std::sort
#include <cstddef>    // std::size_t
#include <span>       // std::span
#include <vector>     // std::vector

#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/index.hpp"
#include "gradus/parallel/transfer_order/order.hpp"
#include "gradus/parallel/transfer_order/step_graph.hpp"

namespace gradus::parallel {

/// The least and the most that a step may take without a resource idling for no reason, in seconds.
struct step_bounds {
  double lower = 0;  ///< the busier of the two resources: all computations, or all transfers
  double upper = 0;  ///< everything one after another
};

/// The bounds of a step, from the seconds of its computations and of its transfers.
inline step_bounds bounds(const step_graph& graph) {
  double computation = 0;
  double communication = 0;
  for (const step_graph::operation& each : graph.operations()) {
    (each.transfer == step_graph::none ? computation : communication) += each.seconds;
  }
  return {std::max(computation, communication), computation + communication};
}

/// The paper's E = (U - m) / (U - L): 1 when a step of m seconds overlaps all that can be, 0 when nothing overlaps,
/// below 0 when the step takes longer than everything one after another. 1 when there is nothing to overlap (U = L).
[[nodiscard]] constexpr double overlap_efficiency(const step_bounds& limits, double makespan) noexcept {
  return limits.upper > limits.lower ? (limits.upper - makespan) / (limits.upper - limits.lower) : 1.0;
}

/// The paper's S = (U - L) / L: what perfect overlap gains, as a share of the shortest step; at most 1, when
/// computations and transfers take equally long. 0 for a step that takes no time.
[[nodiscard]] constexpr double possible_speed_up(const step_bounds& limits) noexcept {
  return limits.lower > 0 ? (limits.upper - limits.lower) / limits.lower : 0.0;
}

/// The result of simulate.
struct simulated_step {
  double makespan = 0;      ///< seconds until all is done
  std::vector<double> end;  ///< of each operation, in seconds
};

/// Runs a step with one device that computes and one channel that transfers, each doing one thing at a time. Transfers
/// are there from the beginning and go by priority, ties by number; of the computations that may begin, the device
/// takes the first in the order of the graph.
/// @throws configuration_error unless there is one priority a transfer
inline simulated_step simulate(const step_graph& graph, const transfer_priorities& priorities) {
  if (priorities.size() != graph.transfers()) {
    raise<configuration_error>("parallel::simulate", {"one priority for each of ", graph.transfers(), " transfers"},
                               {priorities.size()});
  }
  const std::span<const step_graph::operation> operations = graph.operations();
  simulated_step result;
  result.end = std::vector<double>(operations.size(), -1.0);
  dynamic_array<std::size_t> sorted = detail::numbers_up_to(priorities.size());
  std::sort(sorted.begin(), sorted.end(), [&](std::size_t a, std::size_t b) {
    return priorities[a] != priorities[b] ? priorities[a] < priorities[b] : a < b;
  });
  dynamic_array<double> arrival(priorities.size(), 0.0);
  double channel = 0;
  for (const std::size_t r : sorted) {
    channel += graph.transfer(r).seconds;
    arrival[r] = channel;
  }
  dynamic_array<std::size_t> waiting;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (operations[i].transfer == step_graph::none) {
      waiting.push_back(i);
    } else {
      result.end[i] = arrival[operations[i].transfer];
    }
  }
  // One round a computation: the first that can begin when the device is free, or else the one that can begin soonest.
  double device = 0;
  for (std::size_t left = waiting.size(); left > 0; --left) {
    std::size_t chosen = 0;
    double begin = -1;
    for (std::size_t k = 0; k < left && begin != device; ++k) {
      double ready = device;
      for (const std::size_t input : operations[waiting[k]].inputs) {
        if (result.end[input] < 0) {
          ready = -1;  // it waits for a computation that has not run
          break;
        }
        ready = std::max(ready, result.end[input]);
      }
      if (ready >= 0 && (begin < 0 || ready < begin)) {
        chosen = k;
        begin = ready;
      }
    }
    const std::size_t i = waiting[chosen];
    device = begin + operations[i].seconds;
    result.end[i] = device;
    for (std::size_t k = chosen; k + 1 < left; ++k) {
      waiting[k] = waiting[k + 1];
    }
  }
  result.makespan = std::max(device, channel);
  return result;
}

/// A bucket of gradients in the backward pass of one step, or a part of one.
struct timed_bucket {
  double ready = 0;          ///< when backward completes its last gradient, in seconds
  double seconds = 0;        ///< what its all-reduce takes, alone
  std::size_t priority = 0;  ///< the smallest is needed first in the next forward pass
  index_t bytes = 1;         ///< what it takes of the credit
};

namespace detail {

/// Whether `a` is issued rather than `b` when the channel can take a bucket at `now`.
[[nodiscard]] constexpr bool goes_before(const timed_bucket& a, const timed_bucket& b, double now) noexcept {
  const bool a_waits = a.ready <= now;
  const bool b_waits = b.ready <= now;
  if (a_waits && b_waits) {
    return a.priority != b.priority ? a.priority < b.priority : a.ready < b.ready;
  }
  if (a_waits || b_waits) {
    return a_waits;
  }
  return a.ready != b.ready ? a.ready < b.ready : a.priority < b.priority;
}

}  // namespace detail

/// The order in which all ranks issue the all-reduces of their buckets.
///
/// Ranks have to issue collectives in one order, so it cannot be decided by each as it goes; it is found once, by
/// running a backward pass with the given times: the channel takes buckets up to `credit` bytes, or one that is longer,
/// and completes them one after another as they were issued; whenever it can take one, that with the best priority of
/// those that are ready is next, and when none is, the next that becomes ready. Ties go to the one that was ready
/// first, then to the lower number.
///
/// Times that were measured differ from rank to rank, and so may the order: let one rank find it and broadcast it.
///
/// @param credit  bytes under way at once; little lets priorities decide most, much keeps the channel busy
/// @returns       numbers of buckets, each once
/// @throws configuration_error when a time is negative or not finite, or bytes are negative
inline std::vector<std::size_t> static_issue_order(std::span<const timed_bucket> buckets, index_t credit = 1) {
  for (const timed_bucket& each : buckets) {
    if (!is_finite(each.ready) || !is_finite(each.seconds) || each.ready < 0 || each.seconds < 0 || each.bytes < 0) {
      raise<configuration_error>("parallel::static_issue_order", "times and bytes of at least 0",
                                 {"ready at ", each.ready, ", for ", each.seconds, " seconds, ", each.bytes, " bytes"});
    }
  }
  std::vector<std::size_t> result;
  dynamic_array<bool> issued(buckets.size(), false);
  dynamic_array<double> done;  // of the issued buckets, rising
  double now = 0;
  index_t under_way = 0;
  std::size_t oldest = 0;  // of those under way
  while (result.size() < buckets.size()) {
    std::size_t chosen = buckets.size();
    for (std::size_t k = 0; k < buckets.size(); ++k) {
      if (!issued[k] && (chosen == buckets.size() || detail::goes_before(buckets[k], buckets[chosen], now))) {
        chosen = k;
      }
    }
    if (oldest < result.size() && under_way + buckets[chosen].bytes > credit) {
      now = std::max(now, done[oldest]);  // others may be ready by then: choose again
      under_way -= buckets[result[oldest++]].bytes;
      continue;
    }
    now = std::max(now, buckets[chosen].ready);
    issued[chosen] = true;
    result.push_back(chosen);
    under_way += buckets[chosen].bytes;
    done.push_back(std::max(now, done.empty() ? 0.0 : done.back()) + buckets[chosen].seconds);
  }
  return result;
}

}  // namespace gradus::parallel

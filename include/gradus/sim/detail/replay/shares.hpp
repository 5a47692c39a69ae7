// SPDX-License-Identifier: BSL-1.0
//
// Where the seconds of a step go, from what each rank has noted.
#pragma once

#include <algorithm>  // std::max, std::min
#include <cstddef>    // std::size_t
#include <vector>     // std::vector

#include "gradus/core/config.hpp"
#include "gradus/sim/replayed_step.hpp"

namespace gradus::sim::detail {

/// Sets the seconds and shares of a replay: waits are those for stragglers as far as another rank has computed longer.
/// @param states  of ranks that compute: shares, step_ends and step_computed
/// @param meet    ranks wait for each other in each step
template <class State>
void collect_shares(replayed_step& found, std::vector<State>& states, int steps, bool meet) {
  std::vector<const std::vector<double>*> ends;
  std::vector<double> slowest(static_cast<std::size_t>(steps), 0.0);  // what the slowest rank computes
  for (const State& each : states) {
    ends.push_back(&each.step_ends);
    for (std::size_t step = 0; step < each.step_computed.size(); ++step) {
      slowest[step] = std::max(slowest[step], each.step_computed[step]);
    }
  }
  found.set_seconds(ends);
  for (State& each : states) {
    double behind = 0;
    for (std::size_t step = steps == 1 ? 0 : 1; step < each.step_computed.size() && meet; ++step) {
      behind += slowest[step] - each.step_computed[step];
    }
    each.shares.straggler = std::min(each.shares.exposed, behind);
    each.shares.exposed -= each.shares.straggler;
    found.shares.add(each.shares);
  }
  found.shares.scale(1.0 / (static_cast<double>(states.size()) * std::max(1, steps - 1)));
}

}  // namespace gradus::sim::detail

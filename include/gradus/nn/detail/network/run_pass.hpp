// SPDX-License-Identifier: BSL-1.0
//
// A pass over the layers: one after another, except for regions whose branches run in parallel.
#pragma once

#include <cstddef>  // std::size_t

#include "gradus/core/compiled.hpp"
#include "gradus/nn/detail/network/region_runner.hpp"
#include "gradus/nn/network/phase.hpp"
#include "gradus/nn/network/step_hooks.hpp"
#include "gradus/nn/plan/execution_plan.hpp"
#include "gradus/nn/plan/graph.hpp"

namespace gradus::nn::detail {

/// Runs all layers forward, or all backward, and calls the step hooks in the order of the layers. For layers that run
/// in parallel it calls before_layer for all of them first, and after_layer when all are done.
void run_pass(const graph& net, const execution_plan& plan, region_runner* regions, phase which, pass_steps& steps,
              step_hooks* observer);

}  // namespace gradus::nn::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn::detail {

GRADUS_COLD GRADUS_INLINE void run_pass(const graph& net, const execution_plan& plan, region_runner* regions,
                                        phase which, pass_steps& steps, step_hooks* observer) {
  const std::size_t count = plan.nodes.size();
  const bool forward = which == phase::forward;
  const std::size_t end = forward ? count : 2 * count + 1;
  const stream_schedule::region* region = plan.streams.regions.begin();
  std::size_t apart_until = 0;  // the end of the region that ran last
  const auto layer_at = [&](std::size_t time) { return forward ? time : 2 * count - time; };
  const auto runs_at = [&](std::size_t time) {
    const execution_plan::node& node = plan.nodes[layer_at(time)];
    return forward ? node.forward : node.backward;
  };
  for (std::size_t time = forward ? 0 : count + 1; time < end; ++time) {
    while (region != plan.streams.regions.end() && region->first_time < time) {
      ++region;
    }
    if (region != plan.streams.regions.end() && region->first_time == time) {
      apart_until = region->last_time + 1;
      for (std::size_t inside = time; inside < apart_until && observer != nullptr; ++inside) {
        if (runs_at(inside)) {
          observer->before_layer(layer_at(inside), which);
        }
      }
      regions->run(*region, steps);
    }
    const std::size_t layer = layer_at(time);
    const bool runs = runs_at(time);
    if (runs && observer != nullptr && time >= apart_until) {
      observer->before_layer(layer, which);
    }
    if (runs && time >= apart_until) {
      steps.run(layer, pass_steps::alone);
    }
    if (observer == nullptr) {
      continue;
    }
    if (runs) {
      observer->after_layer(layer, which);
    }
    if (const graph::node& n = net.nodes()[layer]; !forward && !n.trained().empty()) {
      observer->gradients_ready(n.first_parameter, n.trained().size());
    }
  }
}

}  // namespace gradus::nn::detail
#endif

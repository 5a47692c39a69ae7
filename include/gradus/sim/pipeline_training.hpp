// SPDX-License-Identifier: BSL-1.0
//
// Replays steps of parallel::hybrid: the schedule of its pipeline, messages between stages, and sums over replicas.
#pragma once

#include <cstddef>  // std::size_t
#include <utility>  // std::move
#include <vector>   // std::vector

#include "gradus/comm/all_reduce_rule.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/index.hpp"
#include "gradus/sim/cluster.hpp"
#include "gradus/sim/detail/replay/message_plan.hpp"
#include "gradus/sim/detail/replay/pipeline.hpp"
#include "gradus/sim/detail/replay/plan_library.hpp"
#include "gradus/sim/pipeline_training_options.hpp"
#include "gradus/sim/replayed_step.hpp"

namespace gradus::sim {

/// Replays steps of replicas of a pipeline.
///
/// A rank runs the actions of its schedule in order, each as soon as the values or gradients that it needs have come;
/// sends never wait. The gradients of a stage are summed over the replicas while the last pass of a rank runs. Replicas
/// that fill hosts and switches stand for all of them.
/// @throws configuration_error for a cluster, schedule or times that make no sense, and for a schedule in which a rank
///         would wait for ever
[[nodiscard]] inline replayed_step replay_pipeline(const cluster& of, const pipeline_training& how,
                                                   const replay_options& options = {}) {
  of.check();
  comm::require_all_reduce_rules(how.gradients.rules);
  const int width = how.schedule.ranks();
  if (width < 1 || how.replicas < 1 || how.replicas > 65536 / width || how.schedule.micro_batches() < 1 ||
      how.stages.size() != static_cast<std::size_t>(how.schedule.stages()) || options.steps < 1 ||
      how.element_bytes < 1) {
    raise<configuration_error>("sim::replay_pipeline",
                               "a schedule, the work of each of its stages, and 1 to 65536 ranks in replicas",
                               {how.schedule.stages(), " stages, work of ", how.stages.size(), ", ", width,
                                " ranks in each of ", how.replicas, " replicas"});
  }
  for (const stage_work& each : how.stages) {
    for (const double number : {each.costs.forward, each.costs.input_gradients, each.costs.weight_gradients,
                                each.sent_bytes, each.update, static_cast<double>(each.elements)}) {
      if (!is_finite(number) || number < 0) {
        raise<configuration_error>("sim::replay_pipeline", "times and sizes of stages of at least 0", {number});
      }
    }
  }
  for (int rank = 0; rank < width; ++rank) {
    for (const parallel::pipeline_action& each : how.schedule.of_rank(rank)) {
      if (each.stage < 0 || each.stage >= how.schedule.stages() || how.schedule.rank_of(each.stage) != rank ||
          each.micro_batch < 0 || each.micro_batch >= how.schedule.micro_batches()) {
        raise<configuration_error>({"sim::replay_pipeline, schedule '", how.schedule.name(), "'"},
                                   "actions of stages of their rank, and of micro-batches of the schedule",
                                   {"stage ", each.stage, " and micro-batch ", each.micro_batch, " on rank ", rank});
      }
    }
  }
  const int ranks = width * how.replicas;
  const int unit = detail::unit_of(of, ranks);
  int simulated = !options.every_rank && how.replicas > 1 && width % unit == 0 ? width : ranks;
  std::vector<detail::plan_library> libraries;
  std::vector<std::vector<index_t>> counts;
  const auto make = [&](int of_ranks) {
    libraries.clear();
    counts.clear();
    for (int column = 0; column < width; ++column) {
      std::vector<int> group;
      for (int replica = 0; replica < how.replicas; ++replica) {
        group.push_back(replica * width + column);
      }
      counts.push_back(detail::pipeline_buckets(how, column));
      libraries.emplace_back(of, std::move(group), how.gradients, how.element_bytes, ranks);
      if (!libraries.back().make(counts.back(), of_ranks)) {
        return false;
      }
    }
    return true;
  };
  if (!make(simulated)) {
    simulated = ranks;
    make(simulated);
  }
  std::vector<std::vector<const detail::message_plan*>> plans(static_cast<std::size_t>(width));
  for (std::size_t column = 0; column < plans.size(); ++column) {
    for (const index_t count : counts[column]) {
      plans[column].push_back(&libraries[column].of(count));
    }
  }
  return detail::pipeline_replay{of, how, plans, simulated, options}.run();
}

}  // namespace gradus::sim

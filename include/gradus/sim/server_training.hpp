// SPDX-License-Identifier: BSL-1.0
//
// Replays steps of parallel::parameter_server: placement, order and window as the strategy has them, and the queues of
// servers.
#pragma once

#include <cstddef>  // std::size_t

#include "gradus/core/error.hpp"
#include "gradus/parameter_server/mode.hpp"
#include "gradus/sim/cluster.hpp"
#include "gradus/sim/detail/replay/server_outline.hpp"
#include "gradus/sim/detail/replay/servers.hpp"
#include "gradus/sim/replayed_step.hpp"
#include "gradus/sim/server_training_options.hpp"
#include "gradus/sim/workload.hpp"

namespace gradus::sim {

/// Replays steps of a training with parameter servers.
///
/// A worker pushes the parts of its gradients to each server in order, as backward completes them, at most `window` at
/// a time. A server sums a part when all workers have ended their rounds, and sends values to each worker, at most
/// `window` at a time. Its network card is one queue in each direction, and its thread another one: many workers that
/// send to one server come one after another (incast).
/// @param ranks  of the job: workers and servers
/// @return  with busiest_in; where workers do not wait for each other, `seconds` are those of a worker's step by the
///          images a second of all
/// @throws configuration_error for a cluster, workload or options that make no sense, for modes that are not replayed,
///         and for more than 2e7 messages a step
[[nodiscard]] inline replayed_step replay_servers(const cluster& of, const workload& work, const server_training& how,
                                                  int ranks, const replay_options& options = {}) {
  of.check();
  work.check();
  if (ranks < 1 || ranks > 65536 || options.steps < 1 || how.window < 1) {
    raise<configuration_error>("sim::replay_servers", "1 to 65536 ranks, steps and a window of at least 1",
                               {ranks, " ranks, ", options.steps, " steps and a window of ", how.window});
  }
  if (how.mode == parallel::server_mode::bounded_staleness) {
    raise<configuration_error>("sim::replay_servers", "synchronous, asynchronous or compat servers",
                               {name_of(how.mode)});
  }
  const detail::server_outline outline{work, how, ranks};
  const double messages =
      2 * static_cast<double>(outline.plan.who.workers.size()) * static_cast<double>(outline.plan.parts.size());
  if (messages > 2e7) {
    raise<configuration_error>("sim::replay_servers", "at most 2e7 messages a step", {messages},
                               "take fewer servers or larger parts (placement_options)");
  }
  return detail::server_replay{of, work, how, outline, ranks, options}.run();
}

}  // namespace gradus::sim

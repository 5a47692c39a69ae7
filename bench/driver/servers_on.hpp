// SPDX-License-Identifier: BSL-1.0
//
// The modes with parameter servers, for one communicator.
#pragma once

#include <cstdio>
#include <type_traits>
#include <vector>

#include "gradus/parallel/parameter_server/distributed_replicated.hpp"
#include "gradus/parallel/parameter_server/parameter_server.hpp"
#include "rules.hpp"
#include "servers.hpp"

namespace driver {

/// Calls use(options) with the strategy that was asked for.
template <class Use>
auto with_servers(const settings& chosen, const std::vector<int>& node_of_rank,
                  const std::vector<std::size_t>& priorities, const Use& use) {
  namespace parallel = gradus::parallel;
  gradus::parallel::parameter_server servers;
  servers.servers = chosen.servers;
  servers.colocate = chosen.colocate_servers;
  servers.placed.policy = placement_of(chosen.placement);
  servers.mode = chosen.server_mode == "asynchronous"        ? parallel::server_mode::asynchronous
                 : chosen.server_mode == "compat"            ? parallel::server_mode::compat
                 : chosen.server_mode == "bounded_staleness" ? parallel::server_mode::bounded_staleness
                                                             : parallel::server_mode::synchronous;
  servers.placed.parts_per_server = chosen.parts_per_server;
  servers.backup_workers = chosen.backup_workers;
  servers.staleness_bound = chosen.staleness_bound;
  servers.staged = chosen.staged;
  servers.window = chosen.messages_under_way;
  servers.pull_priorities = priorities;
  if (chosen.update == variable_update::distributed_replicated) {
    gradus::parallel::distributed_replicated replicated;
    replicated.master = servers;
    replicated.node_of_rank = node_of_rank;
    return use(replicated);
  }
  servers.overlap_forward = !priorities.empty();
  return use(servers);
}

/// Called by all ranks that are only servers.
template <class Communicator>
void serve_to_the_end(Communicator& communicator, const settings& chosen, const std::vector<int>& node_of_rank,
                      const rule& updates) {
  // Of the order of pulls a server needs to know whether there is one; worker 0 tells it which.
  const std::vector<std::size_t> some(chosen.order == transfer_order::none ? 0 : 1);
  with_servers(chosen, node_of_rank, some, [&](const auto& options) {
    auto serving = options;
    if constexpr (std::is_same_v<decltype(serving), gradus::parallel::parameter_server>) {
      serving.pull_priorities.clear();
    } else {
      serving.master.pull_priorities.clear();
    }
    const gradus::parallel::server_summary done = gradus::parallel::serve<float>(communicator, updates, serving);
    std::printf("server on rank %d: %s\n", communicator.rank(), describe(done).c_str());
  });
}

}  // namespace driver

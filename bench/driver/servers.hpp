// SPDX-License-Identifier: BSL-1.0
//
// The modes with parameter servers, for one communicator: included by one file for each, which compile side by side.
#pragma once

#include <string>
#include <vector>

#include "gradus/parallel/parameter_server/mode.hpp"
#include "gradus/parallel/parameter_server/placement.hpp"
#include "update.hpp"

namespace driver {

/// The policy of a name. @pre it is one
[[nodiscard]] inline gradus::parallel::placement_policy placement_of(const std::string& name) {
  namespace parallel = gradus::parallel;
  for (const auto each : {parallel::placement_policy::round_robin, parallel::placement_policy::greedy,
                          parallel::placement_policy::longest_first}) {
    if (name == parallel::name_of(each)) {
      return each;
    }
  }
  return parallel::placement_policy::partitioned;
}

/// Called by all ranks that train. @param node_of_rank  for distributed_replicated
template <class Communicator>
step_end make_server_end(Communicator& communicator, const settings& chosen, const std::vector<int>& node_of_rank,
                         gradus::cpu& device, trained_parameters trained, const any_rule& rule,
                         const transfer_plan& plan);

/// Called by all ranks that are only servers.
template <class Communicator>
void serve_to_the_end(Communicator& communicator, const settings& chosen, const std::vector<int>& node_of_rank,
                      const any_rule& rule);

}  // namespace driver

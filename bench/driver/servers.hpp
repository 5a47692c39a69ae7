// SPDX-License-Identifier: BSL-1.0
//
// What the modes with parameter servers are asked for by name.
#pragma once

#include <string>

#include "gradus/parallel/parameter_server/placement.hpp"

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

}  // namespace driver

// SPDX-License-Identifier: BSL-1.0
//
// The options of a training with parameter servers that decide which messages are sent.
#pragma once

#include <cstddef>  // std::size_t
#include <vector>   // std::vector

#include "gradus/core/config.hpp"
#include "gradus/parameter_server/mode.hpp"
#include "gradus/parameter_server/placement.hpp"

namespace gradus::sim {

/// Parameter servers, as a trainer with parallel::parameter_server has them.
struct server_training {
  int servers = 1;                       ///< number of servers
  bool colocate = false;                 ///< beside the first workers, not on the last ranks
  parallel::placement_options placed{};  ///< which variable is on which server
  /// synchronous, asynchronous or compat
  parallel::server_mode mode = parallel::server_mode::synchronous;
  int window = 4;                              ///< parts between a worker and a server at a time, in each direction
  bool overlap_forward = false;                ///< forward waits for the values of a layer when it comes to it
  std::vector<std::size_t> pull_priorities{};  ///< one a parameter: parallel::parameter_server::pull_priorities
  /// TensorFlow's servers with a barrier: a gradient is applied when it comes, and no server sends values before all
  /// servers have all gradients. gradus has no such mode; measurements of others do.
  bool applies_as_they_come = false;
};

}  // namespace gradus::sim

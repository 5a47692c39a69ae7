// SPDX-License-Identifier: BSL-1.0
//
// The options of a training by all-reduce that decide which messages are sent.
#pragma once

#include <vector>  // std::vector

#include "gradus/comm/all_reduce_rule.hpp"
#include "gradus/core/index.hpp"
#include "gradus/parallel/all_reduce.hpp"

namespace gradus::sim {

/// All-reduce of gradients, as a trainer with parallel::all_reduce over comm::collectives does it.
struct data_parallel {
  parallel::all_reduce gradients{};              ///< the options of the strategy
  std::vector<comm::all_reduce_rule> rules{{}};  ///< the algorithm for each size: collectives_options::all_reduce
  index_t segment_bytes = 1024 * 1024;           ///< collectives_options::segment_bytes
};

}  // namespace gradus::sim

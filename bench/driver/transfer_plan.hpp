// SPDX-License-Identifier: BSL-1.0
//
// How the gradients of a step travel.
#pragma once

#include <cstddef>
#include <vector>

#include "gradus/nn/plan/graph.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/transfer_order/step_graph.hpp"
#include "settings.hpp"

namespace driver {

/// The plan of a step's transfers.
struct transfer_plan {
  gradus::parallel::all_reduce gradients;    // of the modes that sum them
  std::vector<std::size_t> pull_priorities;  // of the modes with servers; empty: as servers have them
};

/// The plan that the options ask for: --bucket-kilobytes and --order.
/// @param profile  the times of the layers; only an order needs them
/// @param servers  gradients go to servers
[[nodiscard]] transfer_plan transfer_plan_of(const settings& chosen, const gradus::nn::graph& network,
                                             const gradus::parallel::step_profile& profile, bool servers, int ranks);

}  // namespace driver

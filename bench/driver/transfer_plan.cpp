// SPDX-License-Identifier: BSL-1.0
//
// The order in which gradients travel.
#include "transfer_plan.hpp"

#include <algorithm>

#include "gradus/parallel/transfer_order/bucket_order.hpp"
#include "gradus/parallel/transfer_order/order.hpp"

namespace driver {

namespace {

gradus::parallel::transfer_priorities priorities_of(const settings& chosen, const gradus::nn::graph& network,
                                                    const gradus::parallel::step_profile& profile) {
  namespace parallel = gradus::parallel;
  const parallel::step_graph step = parallel::forward_graph(network, profile);
  switch (chosen.order) {
    case transfer_order::tic:
      return parallel::priorities_of_parameters(network, parallel::tic(step));
    case transfer_order::random:
      return parallel::random_order(step.transfers(), chosen.seed);
    case transfer_order::none:
    case transfer_order::tac:
      break;
  }
  return parallel::priorities_of_parameters(network, parallel::tac(step));
}

}  // namespace

transfer_plan transfer_plan_of(const settings& chosen, const gradus::nn::graph& network,
                               const gradus::parallel::step_profile& profile, bool servers, int ranks) {
  const index_t bytes = index_t{1024} * chosen.bucket_kilobytes;
  transfer_plan plan{.gradients = {.bucket_bytes = bytes, .first_bucket_bytes = std::min<index_t>(bytes, 1 << 20)},
                     .pull_priorities = {}};
  if (chosen.order == transfer_order::none || ranks == 1) {
    return plan;
  }
  const gradus::parallel::transfer_priorities priorities = priorities_of(chosen, network, profile);
  if (servers) {
    plan.pull_priorities = priorities;
    return plan;
  }
  plan.gradients.overlap_forward = true;  // an order is worth nothing if the next forward pass waits for everything
  plan.gradients.order = gradus::parallel::bucket_order(plan.gradients, network, profile, priorities, ranks);
  return plan;
}

}  // namespace driver

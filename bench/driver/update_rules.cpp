// SPDX-License-Identifier: BSL-1.0
//
// The update rules of gradus_bench, and the order in which gradients travel.
#include <span>
#include <utility>

#include "gradus/parallel/transfer_order/bucket_order.hpp"
#include "gradus/parallel/transfer_order/order.hpp"
#include "rules_on.hpp"
#include "update.hpp"

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

template std::unique_ptr<rule> make_rule(const settings&, gradus::cpu&, index_t);

gradus::parallel::model_averaging averaging_of(const settings& chosen) {
  namespace optim = gradus::optim;
  gradus::parallel::model_averaging options{.every_steps = chosen.average_every};
  if (chosen.outer_optimizer == "none") {
    return options;
  }
  options.outer_learning_rate = chosen.outer_learning_rate;
  if (chosen.outer_optimizer == "adam") {
    options.outer = optim::adam{};
  } else {
    options.outer = optim::sgd{.momentum = chosen.outer_optimizer == "sgd" ? 0.0 : chosen.outer_momentum,
                               .nesterov = chosen.outer_optimizer == "nesterov"};
  }
  return options;
}

transfer_plan plan_transfers(const settings& chosen, const gradus::nn::graph& network,
                             const gradus::parallel::step_profile& profile, gradus::comm::link& group) {
  const index_t bytes = index_t{1024} * chosen.bucket_kilobytes;
  transfer_plan plan{.gradients = {.bucket_bytes = bytes, .first_bucket_bytes = std::min<index_t>(bytes, 1 << 20)},
                     .pull_priorities = {}};
  if (chosen.order == transfer_order::none || group.size() == 1) {
    return plan;
  }
  if (uses_servers(chosen.update)) {
    plan.pull_priorities = priorities_of(chosen, network, profile);
    return plan;
  }
  gradus::parallel::all_reduce& gradients = plan.gradients;
  gradients.overlap_forward = true;  // an order is worth nothing if the next forward pass waits for everything
  gradients.order = gradus::parallel::bucket_order(gradients, network, profile, priorities_of(chosen, network, profile),
                                                   group.size());
  group.broadcast(std::as_writable_bytes(std::span{gradients.order}), 0);  // times differ from rank to rank
  return plan;
}

}  // namespace driver

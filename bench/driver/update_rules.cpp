// SPDX-License-Identifier: BSL-1.0
//
// The update rules of gradus_bench, and the plan of transfers that all ranks have.
#include <memory>
#include <span>

#include "rules_on.hpp"
#include "update.hpp"

namespace driver {

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
  transfer_plan plan = transfer_plan_of(chosen, network, profile, uses_servers(chosen.update), group.size());
  if (!plan.gradients.order.empty()) {
    group.broadcast(std::as_writable_bytes(std::span{plan.gradients.order}), 0);  // times differ from rank to rank
  }
  return plan;
}

}  // namespace driver

// SPDX-License-Identifier: BSL-1.0
//
// The update rules of gradus_bench, and the order in which gradients travel.
#include <cstdint>
#include <utility>
#include <vector>

#include "gradus/comm/self.hpp"
#include "gradus/optim/lars.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/bucket_order.hpp"
#include "gradus/parallel/order.hpp"
#include "update.hpp"

namespace driver {

namespace {

template <class Rule>
class state_of final : public rule_state {
 public:
  state_of(gradus::cpu& device, const Rule& rule, index_t parameters) : state_{device, rule, parameters} {}
  void update(gradus::cpu& device, std::span<const gradus::optim::segment> segments, float* values,
              const float* gradients, double rate) override {
    state_.update(device, segments, values, gradients, rate);
  }

 private:
  typename Rule::template state<float, gradus::cpu> state_;
};

/// Calls use(rule) with the rule that was asked for.
template <class Use>
auto with_rule(const settings& chosen, const Use& use) {
  if (chosen.optimizer == "lars") {
    return use(gradus::optim::lars{.momentum = chosen.momentum, .weight_decay = chosen.weight_decay});
  }
  return use(gradus::optim::sgd{.momentum = chosen.optimizer == "sgd" ? 0.0 : chosen.momentum,
                                .nesterov = chosen.optimizer == "nesterov",
                                .weight_decay = chosen.weight_decay});
}

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

std::unique_ptr<rule_state> any_rule::make_state(gradus::cpu& device, index_t parameters) const {
  return with_rule(*chosen, [&](const auto& rule) -> std::unique_ptr<rule_state> {
    return std::make_unique<state_of<std::remove_cvref_t<decltype(rule)>>>(device, rule, parameters);
  });
}

std::string any_rule::description() const {
  return with_rule(*chosen, [](const auto& rule) { return std::string{rule.description()}; });
}

step_end make_independent_end(gradus::cpu& device, trained_parameters trained, const any_rule& rule) {
  static gradus::comm::self alone;
  return make_end(alone, device, std::move(trained), rule, gradus::parallel::all_reduce{});
}

transfer_plan plan_transfers(const settings& chosen, const gradus::nn::graph& network,
                             const gradus::parallel::step_profile& profile, gradus::comm::any_group& group) {
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
  std::vector<std::uint64_t> order(gradus::parallel::buckets_of(gradients, network, sizeof(float)).size());
  if (group.rank() == 0) {
    const auto found = gradus::parallel::bucket_order(gradients, network, profile,
                                                      priorities_of(chosen, network, profile), group.size());
    order.assign(found.begin(), found.end());
  }
  group.broadcast(std::as_writable_bytes(std::span{order}), 0);
  gradients.order.assign(order.begin(), order.end());
  return plan;
}

}  // namespace driver

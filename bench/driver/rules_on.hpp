// SPDX-License-Identifier: BSL-1.0
//
// The update rules of gradus_bench, for one device: included by one file for each.
#pragma once

#include <type_traits>

#include "gradus/optim/lars.hpp"
#include "gradus/optim/scaled_loss.hpp"
#include "gradus/optim/sgd.hpp"
#include "rules.hpp"

namespace driver {

template <class Rule, class Device>
class state_of final : public rule_state<Device> {
 public:
  state_of(Device& device, const Rule& rule, index_t parameters) : state_{device, rule, parameters} {}
  void update(Device& device, std::span<const gradus::optim::segment> segments, float* values, const float* gradients,
              const gradus::optim::update_step& step) override {
    state_.update(device, segments, values, gradients, step);
  }

 private:
  typename Rule::template state<float, Device> state_;
};

template <class Rule, class Device>
class scaled_state_of final : public scaled_rule_state<Device> {
 public:
  scaled_state_of(Device& device, const Rule& rule, index_t parameters) : state_{device, {.rule = rule}, parameters} {}
  void update(Device& device, std::span<const gradus::optim::segment> segments, float* values, const float* gradients,
              const gradus::optim::update_step& step) override {
    state_.update(device, segments, values, gradients, step);
  }
  gradus::loss_scale scale() const override { return state_.scale(); }
  void test(Device& device, std::span<const gradus::optim::segment> segments, const float* gradients) override {
    state_.test(device, segments, gradients);
  }
  void finish(Device& device, std::span<const gradus::optim::segment> segments, float* values, const float* gradients,
              const gradus::optim::update_step& step) override {
    state_.finish(device, segments, values, gradients, step);
  }
  gradus::optim::loss_scale_report report() override { return state_.report(); }

 private:
  typename gradus::optim::scaled_loss<Rule>::template state<float, Device> state_;
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

template <class Device>
std::unique_ptr<rule_state<Device>> make_rule_state(const settings& chosen, Device& device, index_t parameters) {
  return with_rule(chosen, [&](const auto& rule) -> std::unique_ptr<rule_state<Device>> {
    return std::make_unique<state_of<std::remove_cvref_t<decltype(rule)>, Device>>(device, rule, parameters);
  });
}

template <class Device>
std::unique_ptr<scaled_rule_state<Device>> make_scaled_rule_state(const settings& chosen, Device& device,
                                                                  index_t parameters) {
  return with_rule(chosen, [&](const auto& rule) -> std::unique_ptr<scaled_rule_state<Device>> {
    return std::make_unique<scaled_state_of<std::remove_cvref_t<decltype(rule)>, Device>>(device, rule, parameters);
  });
}

}  // namespace driver

// SPDX-License-Identifier: BSL-1.0
//
// The update rules of gradus_bench, for one device: included by one file for each.
#pragma once

#include <type_traits>

#include "gradus/device/cpu.hpp"
#include "gradus/optim/lars.hpp"
#include "gradus/optim/scaled_loss.hpp"
#include "gradus/optim/sgd.hpp"
#include "rules.hpp"

namespace driver {

template <class Rule, class Device>
std::unique_ptr<rule> make_rule_of(const settings& chosen, const Rule& options, Device& device, index_t elements) {
  namespace optim = gradus::optim;
  if constexpr (!std::is_same_v<Device, gradus::cpu>) {
    if (chosen.precision == "fp16") {
      using scaled = optim::scaled_loss<Rule>;
      return std::make_unique<optim::parameter_update_of<scaled, float, Device>>(device, scaled{.rule = options},
                                                                                 elements);
    }
  }
  return std::make_unique<optim::parameter_update_of<Rule, float, Device>>(device, options, elements);
}

template <class Device>
std::unique_ptr<rule> make_rule(const settings& chosen, Device& device, index_t elements) {
  if (chosen.optimizer == "lars") {
    return make_rule_of(chosen, gradus::optim::lars{.momentum = chosen.momentum, .weight_decay = chosen.weight_decay},
                        device, elements);
  }
  return make_rule_of(chosen,
                      gradus::optim::sgd{.momentum = chosen.optimizer == "sgd" ? 0.0 : chosen.momentum,
                                         .nesterov = chosen.optimizer == "nesterov",
                                         .weight_decay = chosen.weight_decay},
                      device, elements);
}

}  // namespace driver

// SPDX-License-Identifier: BSL-1.0
//
// The update rules of gradus_bench, for one device: included by one file for CPUs and one for GPUs.
#pragma once

#include <string>
#include <type_traits>

#include "gradus/device/cpu.hpp"
#include "gradus/optim/adagrad.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/adam_w.hpp"
#include "gradus/optim/lamb.hpp"
#include "gradus/optim/lars.hpp"
#include "gradus/optim/rms_prop.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/optim/update.hpp"
#include "rules.hpp"

namespace driver {

/// The rule, with what was asked for around it.
template <class Rule, class Device>
std::unique_ptr<rule> make_rule_of(const settings& chosen, const Rule& options, Device& device, index_t elements) {
  const bool scales = !std::is_same_v<Device, gradus::cpu> && chosen.precision == "fp16";
  return gradus::optim::update<Rule>{.rule = options,
                                     .max_norm = chosen.clip_norm,
                                     .clip_value = chosen.clip_value,
                                     .loss_scaling = {.enabled = scales}}
      .template make<float>(device, elements);
}

/// make_rule of a device.
template <class Device>
std::unique_ptr<rule> make_rule_on(const settings& chosen, Device& device, index_t elements) {
  namespace optim = gradus::optim;
  const auto make = [&](const auto& options) { return make_rule_of(chosen, options, device, elements); };
  const std::string& name = chosen.optimizer;
  if (name == "lars") {
    return make(optim::lars{.momentum = chosen.momentum, .weight_decay = chosen.weight_decay});
  }
  if (name == "adam") {
    return make(optim::adam{.beta1 = chosen.adam_beta1,
                            .beta2 = chosen.adam_beta2,
                            .epsilon = chosen.adam_epsilon.value_or(optim::adam{}.epsilon),
                            .weight_decay = chosen.weight_decay});
  }
  if (name == "adam_w") {
    return make(optim::adam_w{.beta1 = chosen.adam_beta1,
                              .beta2 = chosen.adam_beta2,
                              .epsilon = chosen.adam_epsilon.value_or(optim::adam_w{}.epsilon),
                              .weight_decay = chosen.weight_decay});
  }
  if (name == "lamb") {
    return make(optim::lamb{.beta1 = chosen.adam_beta1,
                            .beta2 = chosen.adam_beta2,
                            .epsilon = chosen.adam_epsilon.value_or(optim::lamb{}.epsilon),
                            .weight_decay = chosen.weight_decay});
  }
  if (name == "rms_prop" || name == "rms_prop_torch") {
    const bool tensorflow = name == "rms_prop";
    return make(
        optim::rms_prop{.rho = chosen.rms_prop_decay.value_or(tensorflow ? 0.9 : optim::rms_prop{}.rho),
                        .momentum = chosen.rms_prop_momentum.value_or(tensorflow ? 0.9 : optim::rms_prop{}.momentum),
                        .epsilon = chosen.rms_prop_epsilon.value_or(tensorflow ? 1.0 : optim::rms_prop{}.epsilon),
                        .weight_decay = chosen.weight_decay,
                        .tensorflow = tensorflow});
  }
  if (name == "adagrad") {
    return make(optim::adagrad{.weight_decay = chosen.weight_decay});
  }
  return make(optim::sgd{.momentum = name == "sgd" ? 0.0 : chosen.momentum,
                         .nesterov = name == "nesterov",
                         .weight_decay = chosen.weight_decay});
}

}  // namespace driver

// SPDX-License-Identifier: BSL-1.0
//
// Update rules with all their options, and what tests/golden/optimizers.py trains with them.
#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/core/index.hpp"
#include "gradus/optim/adagrad.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/adam_w.hpp"
#include "gradus/optim/lamb.hpp"
#include "gradus/optim/rms_prop.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/optim/update.hpp"

namespace gradus_test {

/// Calls body(name, rule) for each case of optimizers.txt that is a rule.
template <class Body>
void for_each_optimizer(const Body& body) {
  using namespace gradus::optim;
  body("adam", adam{});
  body("adam_decay", adam{.weight_decay = 0.1});
  body("adam_betas", adam{.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3});
  body("adam_amsgrad", adam{.beta1 = 0.9, .beta2 = 0.9, .weight_decay = 0.1, .amsgrad = true});
  body("adam_w", adam_w{});
  body("adam_w_amsgrad", adam_w{.beta1 = 0.9, .beta2 = 0.9, .weight_decay = 0.5, .amsgrad = true});
  body("rms_prop", rms_prop{});
  body("rms_prop_decay", rms_prop{.rho = 0.9, .epsilon = 1e-3, .weight_decay = 0.1});
  body("rms_prop_centered", rms_prop{.centered = true});
  body("rms_prop_momentum", rms_prop{.momentum = 0.9});
  body("rms_prop_centered_momentum", rms_prop{.momentum = 0.9, .weight_decay = 0.1, .centered = true});
  body("rms_prop_tensorflow", rms_prop{.rho = 0.9, .epsilon = 1e-3, .weight_decay = 0.1, .tensorflow = true});
  body("rms_prop_tensorflow_centered", rms_prop{.rho = 0.9, .epsilon = 1e-3, .centered = true, .tensorflow = true});
  body("rms_prop_inception", rms_prop{.rho = 0.9, .momentum = 0.9, .epsilon = 1, .tensorflow = true});
  body(
      "rms_prop_tensorflow_all",
      rms_prop{.rho = 0.9, .momentum = 0.5, .epsilon = 0.1, .weight_decay = 0.1, .centered = true, .tensorflow = true});
  body("adagrad", adagrad{});
  body("adagrad_all",
       adagrad{.lr_decay = 0.01, .initial_accumulator_value = 0.1, .epsilon = 1e-3, .weight_decay = 0.1});
  body("lamb", lamb{});
  body("lamb_betas", lamb{.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3, .weight_decay = 0.1});
}

/// Calls body(name, rule) for each case of optimizers.txt with groups of parameters: grouped_segments.
template <class Body>
void for_each_grouped_optimizer(const Body& body) {
  using namespace gradus::optim;
  body("groups_sgd", sgd{.momentum = 0.9, .weight_decay = 0.1});
  body("groups_adam", adam{.weight_decay = 0.1});
  body("groups_adam_w", adam_w{.weight_decay = 0.5});
  body("groups_rms_prop", rms_prop{.momentum = 0.9, .weight_decay = 0.1, .centered = true});
}

/// The rules of the cases "clipped_norm_..." and "clipped_value_sgd". Functions: nvcc has no constants of such types.
inline gradus::optim::sgd sgd_to_clip() {
  return {.momentum = 0.9, .weight_decay = 0.1};
}
inline gradus::optim::update<gradus::optim::sgd> norm_clipped_sgd() {
  return {.rule = sgd_to_clip(), .max_norm = 1.25};
}
inline gradus::optim::update<gradus::optim::adam> norm_clipped_adam() {
  return {.max_norm = 0.05};
}
inline gradus::optim::update<gradus::optim::sgd> value_clipped_sgd() {
  return {.rule = sgd_to_clip(), .clip_value = 0.25};
}

/// The rule of the case "averaged_weights".
inline gradus::optim::update<gradus::optim::sgd> averaged_sgd() {
  return {.rule = {.momentum = 0.9}, .average = 0.97};
}

inline constexpr int optimizer_steps = 200;
inline constexpr gradus::index_t optimizer_elements = 24;

/// The parameters of optimizers.py.
inline const std::vector<gradus::optim::segment>& optimizer_segments() {
  static const std::vector<gradus::optim::segment> segments{
      {"a", 0, 1, false}, {"b", 1, 7, true}, {"c", 8, 13, true}, {"d", 21, 3, false}};
  return segments;
}

/// The parameters of optimizers.py with the factors of their learning rates.
inline const std::vector<gradus::optim::segment>& grouped_segments() {
  static const std::vector<gradus::optim::segment> segments{
      {"a", 0, 1, false, 10}, {"b", 1, 7, true, 1}, {"c", 8, 13, true, 0.25}, {"d", 21, 3, false, 0.5}};
  return segments;
}

/// The values before the first step.
template <class Element>
std::vector<Element> optimizer_starts() {
  std::vector<Element> values;
  for (int i = 0; i < optimizer_elements; ++i) {
    values.push_back(static_cast<Element>((37 * i + 11) % 64 - 31) / 32);
  }
  return values;
}

/// The gradients of a step.
template <class Element>
std::vector<Element> optimizer_gradients(int step) {
  std::vector<Element> values;
  for (int i = 0; i < optimizer_elements; ++i) {
    const double gradient = ((7919 * i + 1047 * step + 31 * i * step) % 2001 - 990) / 1024.0;
    values.push_back(i == 3 ? Element{0} : static_cast<Element>(std::ldexp(gradient, -2 * (i % 4))));
  }
  return values;
}

/// The learning rate of a step.
inline double optimizer_rate(int step) {
  return step < 120 ? 0.02 : 0.005;
}

}  // namespace gradus_test

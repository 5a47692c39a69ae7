// SPDX-License-Identifier: BSL-1.0
//
// What ends a training step: gradients brought together and parameters updated, in the way that was asked for.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "gradus/comm/any_group.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/step_graph.hpp"
#include "gradus/train/detail/parts.hpp"
#include "gradus/train/detail/step_update.hpp"
#include "settings.hpp"

namespace driver {

/// The optimizer's state without its type.
class rule_state {
 public:
  rule_state() = default;
  rule_state(const rule_state&) = delete;
  rule_state& operator=(const rule_state&) = delete;
  virtual ~rule_state() = default;
  virtual void update(gradus::cpu& device, std::span<const gradus::optim::segment> segments, float* values,
                      const float* gradients, double rate) = 0;
};

/// The update rule that was asked for. It adds the time that it takes to `seconds`.
struct any_rule {
  static constexpr std::string_view name = "any";

  const settings* chosen = nullptr;
  double* seconds = nullptr;

  /// @throws gradus::configuration_error when a hyper-parameter makes no sense
  [[nodiscard]] std::unique_ptr<rule_state> make_state(gradus::cpu& device, index_t parameters) const;
  /// The optimizer's name and hyper-parameters in one text.
  [[nodiscard]] std::string description() const;

  template <class Element, class Device>
  class state;
};

template <>
class any_rule::state<float, gradus::cpu> {
 public:
  state(gradus::cpu& device, const any_rule& rule, index_t parameters)
      : seconds_{rule.seconds}, state_{rule.make_state(device, parameters)} {}

  void update(gradus::cpu& device, std::span<const gradus::optim::segment> segments, float* values,
              const float* gradients, double rate) {
    const auto began = gradus::train::detail::clock::now();
    state_->update(device, segments, values, gradients, rate);
    *seconds_ += gradus::train::detail::seconds_since(began);
  }

 private:
  double* seconds_;
  std::unique_ptr<rule_state> state_;
};

/// What a step ends with, and what it is.
struct step_end {
  std::unique_ptr<gradus::train::detail::synchronized_update, void (*)(gradus::train::detail::synchronized_update*)>
      update;
  std::string description;  // equal on all ranks
};

using trained_parameters = gradus::train::detail::trained_parameters<float>;

/// The ranks that train together, without the type of their communicator.
class ranks {
 public:
  ranks() = default;
  ranks(const ranks&) = delete;
  ranks& operator=(const ranks&) = delete;
  virtual ~ranks() = default;

  [[nodiscard]] virtual gradus::comm::any_group& group() = 0;
  /// Called by all ranks. The parameters are then those of rank 0, but for independent ranks.
  /// @param plan  for the modes that sum gradients
  virtual step_end make_step_end(gradus::cpu& device, trained_parameters trained, const any_rule& rule,
                                 const gradus::parallel::all_reduce& plan) = 0;
};

/// The buckets and their order that were asked for; the same on all ranks. Called by all.
[[nodiscard]] gradus::parallel::all_reduce plan_all_reduce(const settings& chosen, const gradus::nn::graph& network,
                                                           const gradus::parallel::step_profile& profile,
                                                           gradus::comm::any_group& group);

}  // namespace driver

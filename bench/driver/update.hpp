// SPDX-License-Identifier: BSL-1.0
//
// What ends a training step: gradients brought together and parameters updated, in the way that was asked for.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradus/comm/any_group.hpp"
#include "gradus/core/index.hpp"
#include "gradus/data/sampler.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/step_graph.hpp"
#include "gradus/trace/recorder.hpp"
#include "gradus/train/detail/parts.hpp"
#include "gradus/train/detail/step_update.hpp"
#include "gradus/train/traced.hpp"
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
  double* seconds = nullptr;  // null: nobody asks

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
    if (seconds_ != nullptr) {
      *seconds_ += gradus::train::detail::seconds_since(began);
    }
  }

 private:
  double* seconds_;
  std::unique_ptr<rule_state> state_;
};

/// What a step ends with, and what it is.
struct step_end {
  std::unique_ptr<gradus::train::detail::synchronized_update, void (*)(gradus::train::detail::synchronized_update*)>
      update;
  gradus::comm::any_group* group = nullptr;  // the ranks that train together
  std::string description;                   // equal on all of them
};

/// The plan of a step's transfers.
struct transfer_plan {
  gradus::parallel::all_reduce gradients;    // of the modes that sum them
  std::vector<std::size_t> pull_priorities;  // of the modes with servers; empty: as servers have them
};

using trained_parameters = gradus::train::detail::trained_parameters<float>;

/// The ranks that train together, without the type of their communicator.
class ranks {
 public:
  ranks() = default;
  ranks(const ranks&) = delete;
  ranks& operator=(const ranks&) = delete;
  virtual ~ranks() = default;

  /// All ranks, servers too.
  [[nodiscard]] virtual gradus::comm::any_group& group() = 0;
  /// Where this rank stands among those that train.
  [[nodiscard]] virtual gradus::data::shard place() const = 0;
  /// If this rank is a server alone, serves until the others have left. Returns whether it is.
  virtual bool serve(const any_rule& rule) = 0;
  /// Called by all ranks. The parameters are then those of rank 0, but for independent ranks.
  virtual step_end make_step_end(gradus::cpu& device, trained_parameters trained, const any_rule& rule,
                                 const transfer_plan& plan) = 0;
};

/// A step's end of a synchronization over a communicator. Both outlive it.
/// @param recorder  is told what the parts of the gradients are called; null: nobody is
template <class Communicator, class Synchronization>
step_end make_end(Communicator& communicator, gradus::cpu& device, trained_parameters trained, const any_rule& rule,
                  const Synchronization& options, gradus::trace::recorder* recorder = nullptr) {
  using update = gradus::train::detail::step_update<float, gradus::cpu, any_rule, Communicator, Synchronization>;
  auto* const made = new update{device, std::move(trained), rule, communicator, options};
  step_end result{{made, [](gradus::train::detail::synchronized_update* end) { delete static_cast<update*>(end); }},
                  &made->group(),
                  made->description()};
  if (recorder != nullptr) {
    gradus::train::detail::name_buckets(*recorder, made->synchronization());
  }
  made->start();
  return result;
}

/// The end of a step of a rank that is alone.
[[nodiscard]] step_end make_independent_end(gradus::cpu& device, trained_parameters trained, const any_rule& rule);

[[nodiscard]] constexpr bool uses_servers(variable_update mode) noexcept {
  return mode == variable_update::parameter_server || mode == variable_update::distributed_replicated;
}

/// The buckets and the order that were asked for; the same on all ranks. Called by all that train.
/// @param group  all ranks; not used with servers
[[nodiscard]] transfer_plan plan_transfers(const settings& chosen, const gradus::nn::graph& network,
                                           const gradus::parallel::step_profile& profile,
                                           gradus::comm::any_group& group);

}  // namespace driver

// SPDX-License-Identifier: BSL-1.0
//
// What ends a training step: gradients brought together and parameters updated, in the way that was asked for.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradus/comm/any_communicator.hpp"
#include "gradus/core/index.hpp"
#include "gradus/data/sampler.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/parallel/transfer_order/step_graph.hpp"
#include "gradus/trace/recorder.hpp"
#include "gradus/train/detail/trainer/parts.hpp"
#include "gradus/train/detail/trainer/step_update.hpp"
#include "gradus/train/traced.hpp"
#include "input.hpp"
#include "marks.hpp"
#include "rules.hpp"
#include "settings.hpp"
#include "training.hpp"

namespace driver {

/// The update rule that was asked for. It adds the time that it takes to `seconds`.
struct any_rule {
  static constexpr std::string_view name = "any";
  static constexpr bool elementwise = true;  // lars is refused where parameters are parted: see plan.cpp

  const settings* chosen = nullptr;
  double* seconds = nullptr;  // null: not measured

  /// The optimizer's name and hyper-parameters in one text.
  [[nodiscard]] std::string description() const;

  template <class Element, class Device>
  class state;
};

template <class Device>
class any_rule::state<float, Device> {
 public:
  state(Device& device, const any_rule& rule, index_t parameters)
      : seconds_{rule.seconds}, state_{make_rule_state(*rule.chosen, device, parameters)} {}

  void update(Device& device, std::span<const gradus::optim::segment> segments, float* values, const float* gradients,
              const gradus::optim::update_step& step) {
    timed(seconds_, [&] { state_->update(device, segments, values, gradients, step); });
  }

  /// Calls work() and adds the time that it takes.
  template <class Work>
  static void timed(double* seconds, const Work& work) {
    const auto began = gradus::train::detail::clock::now();
    work();
    if (seconds != nullptr) {
      *seconds += gradus::train::detail::seconds_since(began);
    }
  }

 private:
  double* seconds_;
  std::unique_ptr<rule_state<Device>> state_;
};

/// The same rule with a scale of the loss, for training in float16.
struct any_scaled_rule : any_rule {
  static constexpr bool scales_loss = true;
  static constexpr bool elementwise = false;

  template <class Element, class Device>
  class state;
};

template <class Device>
class any_scaled_rule::state<float, Device> {
 public:
  state(Device& device, const any_scaled_rule& rule, index_t parameters)
      : seconds_{rule.seconds}, state_{make_scaled_rule_state(*rule.chosen, device, parameters)} {}

  [[nodiscard]] gradus::loss_scale scale() const { return state_->scale(); }
  void test(Device& device, std::span<const gradus::optim::segment> segments, const float* gradients) {
    timed([&] { state_->test(device, segments, gradients); });
  }
  void finish(Device& device, std::span<const gradus::optim::segment> segments, float* values, const float* gradients,
              const gradus::optim::update_step& step) {
    timed([&] { state_->finish(device, segments, values, gradients, step); });
  }
  void update(Device& device, std::span<const gradus::optim::segment> segments, float* values, const float* gradients,
              const gradus::optim::update_step& step) {
    timed([&] { state_->update(device, segments, values, gradients, step); });
  }
  [[nodiscard]] gradus::loss_scale_report report() { return state_->report(); }

 private:
  template <class Work>
  void timed(const Work& work) {
    any_rule::state<float, Device>::timed(seconds_, work);
  }

  double* seconds_;
  std::unique_ptr<scaled_rule_state<Device>> state_;
};

/// What a step ends with, and what it is.
struct step_end {
  std::unique_ptr<gradus::train::detail::strategy_update, void (*)(gradus::train::detail::strategy_update*)> update;
  gradus::comm::any_communicator* group = nullptr;  // the ranks that train together
  std::string description;                          // equal on all of them
  std::function<void()> start;                      // makes the parameters those of rank 0, but for independent ranks
};

/// The plan of a step's transfers.
struct transfer_plan {
  gradus::parallel::all_reduce gradients;    // of the modes that sum them
  std::vector<std::size_t> pull_priorities;  // of the modes with servers; empty: as servers have them
};

using trained_parameters = gradus::train::detail::trained_parameters<float>;

/// The ranks that train together and what this one computes with, without the types of communicator and device.
class ranks {
 public:
  ranks() = default;
  ranks(const ranks&) = delete;
  ranks& operator=(const ranks&) = delete;
  virtual ~ranks() = default;

  /// All ranks, servers too.
  [[nodiscard]] virtual gradus::comm::any_communicator& group() = 0;
  /// Where this rank stands among those that train.
  [[nodiscard]] virtual gradus::data::shard place() const = 0;
  /// If this rank is only a server, serves until the other ranks have left. Returns whether it is only a server.
  virtual bool serve(const any_rule& rule) = 0;
  /// A training on this rank's device. Input and recorder outlive it.
  [[nodiscard]] virtual std::unique_ptr<training> make_training(const settings& chosen, const input_set& input,
                                                                const batches& plan,
                                                                gradus::trace::recorder& recorder) = 0;
  /// Called by all ranks that train; so is `start` of the result, when they have compared what they train.
  virtual step_end make_step_end(trained_parameters trained, const any_rule& rule, const transfer_plan& plan) = 0;
  /// Threads that compute.
  [[nodiscard]] virtual int threads() const = 0;
  /// For times of a device that works while the host goes on; null where it does not.
  [[nodiscard]] virtual device_marks* marks() = 0;
  /// The most memory of its own that the device has given, in bytes.
  [[nodiscard]] virtual std::uint64_t peak_device_memory() const = 0;
};

/// make_end for one type of rule.
template <class Communicator, class Device, class Rule, class Strategy>
step_end make_end_of(Communicator& communicator, Device& device, trained_parameters trained, const Rule& rule,
                     const Strategy& options, gradus::trace::recorder* recorder) {
  using update = gradus::train::detail::step_update<float, Device, Rule, Communicator, Strategy>;
  auto* const made = new update{device, std::move(trained), rule, communicator, options};
  step_end result{{made, [](gradus::train::detail::strategy_update* end) { delete static_cast<update*>(end); }},
                  &made->group(),
                  made->description(),
                  [made] { made->start(); }};
  if (recorder != nullptr) {
    gradus::train::detail::name_buckets(*recorder, made->strategy());
  }
  return result;
}

/// A step's end of a strategy over a communicator. Both outlive it. Training in float16 scales its loss.
/// @param recorder  receives the names of the gradient buckets; null: they are not recorded
template <class Communicator, class Device, class Strategy>
step_end make_end(Communicator& communicator, Device& device, trained_parameters trained, const any_rule& rule,
                  const Strategy& options, gradus::trace::recorder* recorder = nullptr) {
  if constexpr (!std::is_same_v<Device, gradus::cpu> && !std::is_same_v<Strategy, gradus::parallel::sharded_update>) {
    if (rule.chosen->precision == "fp16") {
      return make_end_of(communicator, device, std::move(trained), any_scaled_rule{rule}, options, recorder);
    }
  }
  return make_end_of(communicator, device, std::move(trained), rule, options, recorder);
}

[[nodiscard]] constexpr bool uses_servers(variable_update mode) noexcept {
  return mode == variable_update::parameter_server || mode == variable_update::distributed_replicated;
}

/// The buckets and the order that were asked for; the same on all ranks. Called by all that train.
/// @param group  all ranks; not used with servers
[[nodiscard]] transfer_plan plan_transfers(const settings& chosen, const gradus::nn::graph& network,
                                           const gradus::parallel::step_profile& profile,
                                           gradus::comm::any_communicator& group);

}  // namespace driver

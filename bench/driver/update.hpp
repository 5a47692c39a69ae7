// SPDX-License-Identifier: BSL-1.0
//
// What ends a training step: gradients brought together and parameters updated, in the way that was asked for.
#pragma once

#include <chrono>
#include <concepts>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gradus/comm/link.hpp"
#include "gradus/comm/watch.hpp"
#include "gradus/core/index.hpp"
#include "gradus/data/sampler.hpp"
#include "gradus/parallel/model_averaging.hpp"
#include "gradus/parallel/strategy.hpp"
#include "gradus/parallel/transfer_order/step_graph.hpp"
#include "gradus/trace/recorder.hpp"
#include "gradus/train/checkpoints.hpp"
#include "gradus/train/optimizer_step.hpp"
#include "marks.hpp"
#include "rules.hpp"
#include "settings.hpp"
#include "training.hpp"
#include "transfer_plan.hpp"

namespace driver {

/// Adds up the time of the update rule, and tells the recorder of a trace.
class rule_timer final : public gradus::comm::rule_watch {
 public:
  explicit rule_timer(std::unique_ptr<gradus::comm::rule_watch> traced) : traced_{std::move(traced)} {}

  [[nodiscard]] const double& seconds() const noexcept { return seconds_; }

  void rule_begins() noexcept override {
    if (traced_ != nullptr) {
      traced_->rule_begins();
    }
    began_ = clock::now();
  }
  void rule_ends() override {
    seconds_ += std::chrono::duration<double>(clock::now() - began_).count();
    if (traced_ != nullptr) {
      traced_->rule_ends();
    }
  }
  void pass_begins() noexcept override {
    if (traced_ != nullptr) {
      traced_->pass_begins();
    }
  }
  void pass_ends() override {
    if (traced_ != nullptr) {
      traced_->pass_ends();
    }
  }

 private:
  using clock = std::chrono::steady_clock;
  std::unique_ptr<gradus::comm::rule_watch> traced_;
  clock::time_point began_;
  double seconds_ = 0;
};

/// What a step ends with: the parts refer to those before them.
struct step_parts {
  step_parts(trained_parameters of, std::unique_ptr<gradus::comm::rule_watch> traced)
      : parameters{std::move(of)}, timer{std::move(traced)} {}

  trained_parameters parameters;
  rule_timer timer;
  std::unique_ptr<rule> updates;
  std::unique_ptr<gradus::parallel::strategy<float>> strategy;
  std::optional<gradus::train::optimizer_step_of<float>> end;
};

/// The ranks that train together and what this one computes with, without the types of communicator and device.
class ranks {
 public:
  ranks() = default;
  ranks(const ranks&) = delete;
  ranks& operator=(const ranks&) = delete;
  virtual ~ranks() = default;

  /// All ranks, servers too.
  [[nodiscard]] virtual gradus::comm::link& group() = 0;
  /// Where this rank stands among those that train.
  [[nodiscard]] virtual gradus::data::shard shard() const = 0;
  /// If this rank is only a server, serves until the others have left. Returns whether it is.
  virtual bool serve() = 0;
  /// A training on this rank's device. Input and recorder outlive it.
  [[nodiscard]] virtual std::unique_ptr<training> make_training(const settings& chosen, const input_set& input,
                                                                const batches& plan,
                                                                gradus::trace::recorder& recorder) = 0;
  /// Compiles the stages of this rank. Called by all ranks. @return  where the network was cut
  [[nodiscard]] virtual gradus::parallel::network_stages compile_stages(training& trained) = 0;
  /// Called by all ranks that train; so is `start` of the result's end, when they have compared what they train.
  [[nodiscard]] virtual std::unique_ptr<step_parts> make_optimizer_step(trained_parameters trained,
                                                                        const transfer_plan& plan) = 0;
  /// Lets the checkpoints of a rank that trains be written behind its steps. Called by all of them.
  virtual void write_behind(gradus::train::checkpoints& saves) = 0;
  /// Threads that compute.
  [[nodiscard]] virtual int threads() const = 0;
  /// For times of a device that works while the host goes on; null where it does not.
  [[nodiscard]] virtual device_marks* marks() = 0;
  /// The most memory of its own that the device has given, in bytes.
  [[nodiscard]] virtual std::uint64_t peak_device_memory() const = 0;
};

/// A step's end of a strategy over a communicator. All that it is given outlives it.
/// @param all  the ranks of the communicator
template <class Communicator, class Device, class Strategy>
std::unique_ptr<step_parts> make_end(Communicator& communicator, gradus::comm::link& all, Device& device,
                                     trained_parameters trained, const settings& chosen, const Strategy& options) {
  using state = gradus::parallel::strategy_state<Strategy, float>;
  constexpr bool on_servers = std::derived_from<state, gradus::parallel::server_strategy<float>>;
  auto made = std::make_unique<step_parts>(std::move(trained), gradus::comm::rule_watch_of(communicator));
  made->updates =
      make_rule(chosen, device, on_servers ? index_t{0} : static_cast<index_t>(made->parameters.values.size()));
  made->strategy = gradus::parallel::make_strategy<float>(options, communicator, made->parameters.flat());
  made->end.emplace(made->parameters, *made->updates, *made->strategy, all, &made->timer);
  return made;
}

/// The options of model_averaging that were asked for.
[[nodiscard]] gradus::parallel::model_averaging averaging_of(const settings& chosen);

/// transfer_plan_of, the same on all ranks. Called by all that train.
/// @param group  all ranks; not used with servers
[[nodiscard]] transfer_plan plan_transfers(const settings& chosen, const gradus::nn::graph& network,
                                           const gradus::parallel::step_profile& profile, gradus::comm::link& group);

}  // namespace driver

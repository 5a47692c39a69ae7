// SPDX-License-Identifier: BSL-1.0
//
// The ranks of a measurement, and what ends their steps: gradients brought together and parameters updated, in the way
// that was asked for.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gradus/checkpoint/checkpoints.hpp"
#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/watch.hpp"
#include "gradus/core/index.hpp"
#include "gradus/data/sampler.hpp"
#include "gradus/parallel/model_averaging.hpp"
#include "gradus/parallel/strategy.hpp"
#include "gradus/parallel/transfer_order/step_graph.hpp"
#include "gradus/parameter_server/placement.hpp"
#include "gradus/parameter_server/roles.hpp"
#include "gradus/trace/recorder.hpp"
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

/// What a rank computes with, a CPU or a GPU.
class rank_device {
 public:
  rank_device() = default;
  rank_device(const rank_device&) = delete;
  rank_device& operator=(const rank_device&) = delete;
  virtual ~rank_device() = default;

  /// A training on it. Input and recorder outlive the result.
  [[nodiscard]] virtual std::unique_ptr<training> make_training(const settings& chosen, const input_set& input,
                                                                const batches& plan,
                                                                gradus::trace::recorder& recorder) = 0;
  /// The update rule that was asked for.
  [[nodiscard]] virtual std::unique_ptr<rule> make_rule(const settings& chosen, index_t elements) = 0;
  /// Threads that compute.
  [[nodiscard]] virtual int threads() const = 0;
  /// For times of a device that works while the host goes on; null where it does not.
  [[nodiscard]] virtual device_marks* marks() { return nullptr; }
  /// The most memory of its own that it has given, in bytes.
  [[nodiscard]] virtual std::uint64_t peak_memory() const { return 0; }
};

/// A CPU with the threads that were asked for.
[[nodiscard]] std::unique_ptr<rank_device> make_cpu(const settings& chosen);

/// The ranks of a measurement, this one among them. With a GPU, ranks sum their gradients or share their updates, by
/// the communicator's own collectives, or are independent: require_supported_on_cuda refuses the rest.
class ranks {
 public:
  /// What a rank is made of. All of it outlives the rank.
  struct parts {
    gradus::comm::any_communicator& gradients;  // of all ranks, for memory of the device; its transfers are recorded
    gradus::comm::any_communicator& hosts;      // of the same ranks, for memory of the host
    rank_device& device;
    gradus::trace::recorder& recorder;
    bool in_process;  // all ranks are in this process
  };

  /// Called by all ranks.
  /// @throws gradus::configuration_error when there are not enough ranks for servers and workers
  ranks(const parts& own, const settings& chosen);
  ranks(const ranks&) = delete;
  ranks& operator=(const ranks&) = delete;

  /// All ranks, servers too.
  [[nodiscard]] gradus::comm::link& group() { return own_.gradients.link(); }
  [[nodiscard]] rank_device& device() const { return own_.device; }
  /// Where this rank stands among those that train.
  [[nodiscard]] gradus::data::shard shard() const;
  /// If this rank is only a server, serves until the others have left. Returns whether it is.
  bool serve();
  /// Compiles the stages of this rank. Called by all ranks. @return  where the network was cut
  [[nodiscard]] gradus::parallel::network_stages compile_stages(training& trained);
  /// Called by all ranks that train; so is `start` of the result's end, when they have compared what they train.
  [[nodiscard]] std::unique_ptr<step_parts> make_optimizer_step(trained_parameters trained, const transfer_plan& plan);
  /// Lets the checkpoints of a rank that trains be written behind its steps. Called by all of them.
  void write_behind(gradus::train::checkpoints& saves);

 private:
  parts own_;
  const settings& chosen_;
  gradus::parallel::roles roles_;                              // with servers
  std::vector<int> node_of_rank_;                              // of distributed_replicated
  std::optional<gradus::comm::any_communicator> collectives_;  // by algorithms of the library
  gradus::comm::self self_;                                    // of an independent rank
  std::optional<gradus::comm::any_communicator> alone_;        // the same, recorded
};

/// The policy of a name. @pre it is one
[[nodiscard]] gradus::parallel::placement_policy placement_of(const std::string& name);

/// The options of model_averaging that were asked for.
[[nodiscard]] gradus::parallel::model_averaging averaging_of(const settings& chosen);

/// transfer_plan_of, the same on all ranks. Called by all that train.
/// @param group  all ranks; not used with servers
[[nodiscard]] transfer_plan plan_transfers(const settings& chosen, const gradus::nn::graph& network,
                                           const gradus::parallel::step_profile& profile, gradus::comm::link& group);

}  // namespace driver

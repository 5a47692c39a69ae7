// SPDX-License-Identifier: BSL-1.0
//
// What ends a training step: gradients brought together and parameters updated. It knows neither the network nor the
// types of rule, strategy and communicator, so that it is compiled once for each element type.
#pragma once

#include <cstddef>   // std::size_t
#include <optional>  // std::nullopt, std::optional
#include <span>      // std::as_writable_bytes, std::span

#include "gradus/comm/link.hpp"
#include "gradus/comm/watch.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/nn/network/base.hpp"
#include "gradus/nn/network/phase.hpp"
#include "gradus/nn/network/step_hooks.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/nn/plan/stage_cuts.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/optim/update_step.hpp"
#include "gradus/parallel/network_segments.hpp"
#include "gradus/parallel/strategy.hpp"
#include "gradus/tensor/instances.hpp"
#include "gradus/train/report.hpp"

namespace gradus::train {

/// Brings gradients together as backward completes them, and updates the parameters. optimizer_step_of is the
/// library's; train::forwarding_step stands between a training and another one, for example to measure it.
class optimizer_step : public nn::step_hooks {
 public:
  /// What the loss of the next step is to be multiplied by.
  [[nodiscard]] virtual loss_scale scale_of_loss() = 0;
  /// Ends a step: backward is over.
  virtual void update(const optim::update_step& step) = 0;
  /// Makes the values those of the next step, if update has put that off.
  virtual void complete_update() = 0;
  /// The norm of the gradients of the last step, where the rule clips by it and it is in host memory.
  [[nodiscard]] virtual std::optional<double> gradient_norm() const noexcept { return std::nullopt; }
  /// Completes the state of the rule, on all ranks, and adds what the update knows of the epoch.
  virtual void end_epoch(epoch_report& report) = 0;

  /// Whether updates are put off until the next forward pass comes to their layer.
  [[nodiscard]] virtual bool has_deferred_update() const noexcept = 0;
  /// Whether servers update the parameters.
  [[nodiscard]] virtual bool on_servers() const noexcept = 0;
  /// Whether ranks that have a parameter have the same bits of it: see parallel::strategy::replicates.
  [[nodiscard]] virtual bool replicates() const noexcept { return false; }
  /// The step that has the rule and the strategy, which checkpoints and measurements of parameters read. A step that
  /// passes calls on returns that of the other one.
  [[nodiscard]] virtual optimizer_step& innermost() noexcept { return *this; }

 protected:
  ~optimizer_step() = default;
};

/// What is trained of a network: the flat buffers, which parameters are where, and which belong to which layer.
template <class Element>
struct trained_parameters {
  std::span<Element> values;        ///< of all parameters that are trained, in the memory of the device
  std::span<Element> gradients;     ///< at the same offsets as `values`
  std::span<Element> frozen;        ///< values of the parameters of frozen layers
  parallel::segment_list segments;  ///< in the order in which backward completes their gradients
  /// The range of `segments` of each layer, in the order of network::add.
  dynamic_array<nn::parameter_range> of_layer;
  dynamic_array<std::size_t> of_stage;  ///< see parallel::flat_parameters
  bool flush_denormals = false;         ///< likewise

  /// They must outlive the result.
  [[nodiscard]] parallel::flat_parameters<Element> flat() const noexcept {
    return {.values = values,
            .gradients = gradients,
            .segments = {segments.data(), segments.size()},
            .of_stage = {of_stage.data(), of_stage.size()},
            .flush_denormals = flush_denormals};
  }
};

/// The parameters of a network; the result refers to the network's buffers.
/// @throws configuration_error when the network is not compiled
template <class Element, class Device>
[[nodiscard]] trained_parameters<parameter_element_t<Element>> trained_parameters_of(
    nn::network_base<Element, Device>& network) {
  if (!network.compiled()) {
    raise<configuration_error>("trainer", "a compiled network", "one that is still being built",
                               "call compile({.max_batch_size = ...}) first");
  }
  trained_parameters<parameter_element_t<Element>> result{
      .values = network.trained_values(),
      .gradients = network.gradients(),
      .frozen = network.values().subspan(network.gradients().size()),
      .segments = parallel::segments_of(network.structure()),
      .of_layer = {},
      .of_stage = {},
      .flush_denormals = flushes_denormals_on(network.device())};
  for (const nn::graph::node& n : network.structure().nodes()) {
    result.of_layer.push_back({.first = n.frozen ? 0 : n.first_parameter, .count = n.trained_here().size()});
  }
  if (const nn::stage_cuts& cuts = network.structure().stages(); network.structure().in_stages()) {
    for (std::size_t k = cuts.own.size(); k-- > 0;) {
      std::size_t segments = 0;
      for (std::size_t i = cuts.first_layers[cuts.own[k]]; i < cuts.end_of(cuts.own[k], result.of_layer.size()); ++i) {
        segments += result.of_layer[i].count;
      }
      result.of_stage.push_back(segments);
    }
  }
  return result;
}

/// The end of a step of a strategy and an update rule whose types are known when the program runs.
template <class Element>
class optimizer_step_of final : public optimizer_step {
 public:
  /// All that it is given must outlive it. Called by all ranks that have the strategy.
  /// @param rule      with a state for all parameters; for none where the strategy's scope is update_scope::on_servers
  /// @param strategy  of parameters.flat()
  /// @param all       the ranks of the strategy's communicator
  /// @param watch     records when the rule is computed; null: nothing does
  /// @throws configuration_error when strategy and rule do not go together
  optimizer_step_of(const trained_parameters<Element>& parameters, optim::parameter_update<Element>& rule,
                    parallel::strategy<Element>& strategy, comm::link& all, comm::rule_watch* watch = nullptr)
      : parameters_{&parameters},
        rule_{&rule},
        strategy_{&strategy},
        group_{strategy.group() != nullptr ? strategy.group() : &all},
        watch_{watch},
        tests_here_{rule.needs_all_gradients() && strategy.scope() == parallel::update_scope::all},
        on_servers_{strategy.scope() == parallel::update_scope::on_servers} {
    if (rule.needs_all_gradients() && !on_servers_ && !tests_here_ && !strategy.sums_totals()) {
      raise<configuration_error>("optimizer_step", "a strategy that adds up what an update needs of all gradients",
                                 {"one that updates parts, and the update rule '", rule.description(), "'"},
                                 "train with parallel::all_reduce, or clip by value: .clip_value of optim::update");
    }
    if (rule.scales_loss() && on_servers_) {
      raise<configuration_error>(
          "optimizer_step", "a strategy that brings all gradients to the rank that updates",
          {"parameter servers and the update rule '", rule.description(), "', which scales the loss"},
          "train with parallel::all_reduce or parallel::sharded_update");
    }
    if (strategy.scope() == parallel::update_scope::parts && !rule.elementwise()) {
      raise<configuration_error>("optimizer_step", "an elementwise rule for ranks that update parts of parameters",
                                 {"the update rule '", rule.name(), "', which needs whole ones"},
                                 "train with parallel::all_reduce");
    }
    strategy.use(rule);
  }

  /// The ranks that train.
  [[nodiscard]] comm::link& group() noexcept { return *group_; }

  /// The rule with its state.
  [[nodiscard]] optim::parameter_update<Element>& rule() noexcept { return *rule_; }
  /// The strategy.
  [[nodiscard]] parallel::strategy<Element>& strategy() noexcept { return *strategy_; }
  /// What is trained.
  [[nodiscard]] const trained_parameters<Element>& parameters() const noexcept { return *parameters_; }

  /// Completes the update of the last step, if it has been put off, for a checkpoint between steps. Called by all
  /// ranks. Unlike complete_update, it averages nothing.
  void settle() {
    const floating_point_scope arithmetic{parameters_->flush_denormals};
    update_rest();
    strategy_->settle();
  }

  /// Makes the values those of rank 0, those of frozen layers too. Called by all ranks, when they have compared what
  /// they train.
  void start() {
    if (strategy_->scope() == parallel::update_scope::stages) {  // ranks have other layers
      strategy_->share_frozen(std::as_writable_bytes(parameters_->frozen));
    } else if (group_->size() > 1 && !parameters_->frozen.empty()) {  // before the ranks may go on without each other
      group_->broadcast(std::as_writable_bytes(parameters_->frozen), 0);
    }
    strategy_->start();
  }

  /// Not where an update needs all gradients: the next step needs the scale of this one.
  [[nodiscard]] bool has_deferred_update() const noexcept override {
    return !tests_here_ && strategy_->has_deferred_update();
  }
  [[nodiscard]] bool on_servers() const noexcept override { return on_servers_; }
  [[nodiscard]] bool replicates() const noexcept override { return strategy_->replicates(); }

  /// @throws configuration_error where the update of the last step still needs the gradients that are overwritten
  void gradients_ready(std::size_t first, std::size_t count) override {
    if (late_ && count > 0) {
      raise<configuration_error>("train_step", "before_layer or skip_layer for every layer of a forward pass",
                                 "gradients of the next step while the last update is not complete",
                                 "pass all calls of step_hooks on to the training's");
    }
    const floating_point_scope arithmetic{parameters_->flush_denormals};
    strategy_->gradients_ready(first, count);
  }

  void before_layer(std::size_t layer, nn::phase which) override {
    if (late_ && which == nn::phase::forward) {
      const floating_point_scope arithmetic{parameters_->flush_denormals};
      const nn::parameter_range own = parameters_->of_layer[layer];
      update_until(own.first, own.count);
    }
  }

  [[nodiscard]] loss_scale scale_of_loss() override { return rule_->scale(); }

  void update(const optim::update_step& step) override {
    const floating_point_scope arithmetic{parameters_->flush_denormals};
    step_ = step;
    late_ = true;
    strategy_->end_of_step(step.learning_rate);
    if (!has_deferred_update()) {  // else before_layer goes on
      update_rest();
    }
  }

  void complete_update() override {
    const floating_point_scope arithmetic{parameters_->flush_denormals};
    update_rest();
    strategy_->complete();
  }

  void end_epoch(epoch_report& report) override {
    const floating_point_scope arithmetic{parameters_->flush_denormals};
    strategy_->gather_state();
    report.loss_scale = rule_->report();
    report.gradient_norm = on_servers_ ? std::nullopt : rule_->take_norm_report();
  }

  [[nodiscard]] std::optional<double> gradient_norm() const noexcept override {
    return on_servers_ ? std::nullopt : rule_->gradient_norm();
  }

 private:
  void update_rest() {
    if (late_) {
      update_until(0, parameters_->segments.size());
    }
  }

  void update_until(std::size_t first, std::size_t count) {
    const auto apply = [this](std::span<const optim::segment> ready) { update_arrived(ready); };
    const parallel::update_call call{apply, watch_};
    if (has_deferred_update()) {
      late_ = !strategy_->finish_until(first, count, call);
    } else {
      late_ = false;
      strategy_->finish(call);
    }
  }

  void update_arrived(std::span<const optim::segment> ready) {
    if (watch_ != nullptr) {
      watch_->rule_begins();
    }
    if (tests_here_) {
      test(ready);
    } else {
      rule_->update(ready, parameters_->values.data(), parameters_->gradients.data(), step_);
    }
    if (watch_ != nullptr) {
      watch_->rule_ends();
    }
  }

  /// Tests gradients that have arrived; with the last ones makes the step, or skips it.
  void test(std::span<const optim::segment> ready) {
    const std::span<const optim::segment> all = parameters_->flat().segments;
    rule_->test(ready, parameters_->gradients.data());
    tested_ += ready.size();
    if (tested_ == all.size()) {
      tested_ = 0;
      rule_->use_totals();
      rule_->update(all, parameters_->values.data(), parameters_->gradients.data(), step_);
    }
  }

  const trained_parameters<Element>* parameters_;
  optim::parameter_update<Element>* rule_;
  parallel::strategy<Element>* strategy_;
  comm::link* group_;
  comm::rule_watch* watch_;
  bool tests_here_;  // an update needs all gradients, and no strategy tests them
  bool on_servers_;
  bool late_ = false;           // the last update has not been completed
  std::size_t tested_ = 0;      // segments whose gradients have arrived and been tested, where an update needs all
  optim::update_step step_{0};  // of the last update
};

}  // namespace gradus::train

GRADUS_COMPILED_CLASS_OF_PARAMETERS(::gradus::train::optimizer_step_of)

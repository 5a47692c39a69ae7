// SPDX-License-Identifier: BSL-1.0
//
// What ends a training step: gradients brought together and parameters updated. It depends on neither the network's
// layout nor its layers, so that it is compiled once for both layouts.
#pragma once

#include <cstddef>  // std::size_t
#include <span>     // std::span
#include <string>   // std::string
#include <utility>  // std::declval, std::move

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/watch.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/nn/network_base.hpp"
#include "gradus/nn/phase.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/optim/update_rule.hpp"
#include "gradus/optim/update_step.hpp"
#include "gradus/parallel/network_segments.hpp"
#include "gradus/train/detail/trainer/loop.hpp"

namespace gradus::train::detail {

/// The update is made elsewhere, by a rule of the same hyper-parameters: this rank keeps no state of the rule.
template <class State, class Update>
concept updates_elsewhere = requires(State& state, const Update& rule, double rate) {
  state.use_rule(rule);
  state.end_of_step(rate);
};

/// The update is made of parts of parameters, and of some on this rank alone.
template <class State>
concept updates_parts = requires {
  requires State::updates_parts;
};

/// The flat buffers of a network, which parameters lie where, and which belong to which layer.
template <class Element>
struct trained_parameters {
  std::span<Element> values;
  std::span<Element> gradients;
  parallel::segment_list segments;
  dynamic_array<nn::parameter_range> of_layer;
};

/// @throws configuration_error when the network is not compiled
template <class Element, class Device>
[[nodiscard]] GRADUS_COLD GRADUS_NEVER_INLINE trained_parameters<parameter_element_t<Element>> trained_parameters_of(
    nn::network_base<Element, Device>& network) {
  if (!network.compiled()) {
    raise<configuration_error>("trainer", "a compiled network", "one that is still being built",
                               "call compile({.max_batch_size = ...}) first");
  }
  trained_parameters<parameter_element_t<Element>> result{.values = network.values(),
                                                          .gradients = network.gradients(),
                                                          .segments = parallel::segments_of(network.structure()),
                                                          .of_layer = {}};
  for (std::size_t layer = 0; layer < network.layers(); ++layer) {
    result.of_layer.push_back(network.parameters_of(layer));
  }
  return result;
}

template <class Element, class Device, class Update, class Communicator, class Strategy>
class step_update final : public strategy_update {
 public:
  using rule_state = typename Update::template state<Element, Device>;
  using strategy_state = typename Strategy::template state<Element, Communicator>;
  static constexpr bool elsewhere = updates_elsewhere<strategy_state, Update>;
  static constexpr bool scales = optim::scales_loss<Update>;
  static constexpr bool has_buffers = optim::has_update_rule_buffers<Update, Element, Device>;
  static_assert(!(elsewhere && scales),
                "gradus: optim::scaled_loss needs the gradients of all parameters on the rank that updates: train with "
                "parallel::all_reduce, not with parameter servers");
  static_assert(
      !updates_parts<strategy_state> || optim::elementwise_update_rule<Update>,
      "gradus: parallel::sharded_update updates parts of parameters on each rank; this update rule needs whole "
      "ones or all gradients, as optim::lars and optim::scaled_loss do, or does not say that it does not (static "
      "constexpr bool elementwise = true): train with parallel::all_reduce");

  GRADUS_COLD step_update(Device& device, trained_parameters<Element> parameters, const Update& rule,
                          Communicator& communicator, const Strategy& options)
      : device_{&device},
        communicator_{&communicator},
        group_{communicator},
        rule_watch_{comm::rule_watch_of(communicator)},
        parameters_{std::move(parameters)},
        rule_{device, rule, elsewhere ? index_t{0} : static_cast<index_t>(parameters_.values.size())},
        strategy_{
            options,
            communicator,
            {parameters_.values, parameters_.gradients, {parameters_.segments.data(), parameters_.segments.size()}}} {
    if constexpr (elsewhere) {
      strategy_.use_rule(rule);
    }
    if constexpr (has_buffers && requires { strategy_.share_state(rule_); }) {
      strategy_.share_state(rule_);
    }
  }

  step_update(const step_update&) = delete;  // the strategy refers to the segments
  step_update& operator=(const step_update&) = delete;
  GRADUS_COLD ~step_update() = default;

  [[nodiscard]] Communicator& communicator() noexcept { return *communicator_; }
  /// The ranks that train.
  [[nodiscard]] comm::any_communicator& group() noexcept {
    if constexpr (requires { strategy_.group(); }) {
      return strategy_.group();
    } else {
      return group_;
    }
  }
  /// The rule's state, whole where that takes no other rank's help.
  [[nodiscard]] rule_state& state() {
    if constexpr (has_buffers && requires { strategy_.fetch_state(); }) {
      strategy_.fetch_state();
    }
    return rule_;
  }
  [[nodiscard]] strategy_state& strategy() noexcept { return strategy_; }
  [[nodiscard]] std::string description() const { return strategy_.describe(); }

  /// Whether updates are put off until the next forward pass comes to their layer. Not where the loss is scaled: the
  /// next step needs the scale of this one.
  [[nodiscard]] bool may_be_late() const noexcept {
    if constexpr (!scales && requires { strategy_.may_be_late(); }) {
      return strategy_.may_be_late();
    } else {
      return false;
    }
  }

  /// Makes the values those of rank 0.
  void start() { strategy_.start(); }

  void gradients_ready(std::size_t first, std::size_t count) override { strategy_.gradients_ready(first, count); }

  void before_layer(std::size_t layer, nn::phase which) override {
    if (late_ && which == nn::phase::forward) {
      const nn::parameter_range own = parameters_.of_layer[layer];
      update_until(own.first, own.count);
    }
  }

  [[nodiscard]] loss_scale scale_of_loss() override {
    if constexpr (scales) {
      return rule_.scale();
    } else {
      return {};
    }
  }

  void update(const optim::update_step& step) override {
    step_ = step;
    late_ = true;
    if constexpr (elsewhere) {
      strategy_.end_of_step(step.learning_rate);
    }
    if (!may_be_late()) {  // else before_layer goes on
      update_rest();
    }
  }

  void complete_update() override {
    update_rest();
    if constexpr (requires { strategy_.complete(); }) {
      strategy_.complete();
    }
  }

  void end_epoch([[maybe_unused]] epoch_report& report) override {
    if constexpr (has_buffers && requires { strategy_.gather_state(rule_); }) {
      strategy_.gather_state(rule_);
    }
    if constexpr (scales) {
      report.loss_scale = rule_.report();
    }
  }

 private:
  /// What a strategy calls for parameters whose gradients have arrived.
  struct applied_update {
    step_update* self;

    void operator()(std::span<const optim::segment> ready) const {
      self->rule_watch_.run([&] {
        if constexpr (scales) {
          self->test(ready);
        } else {
          self->rule_.update(device(), ready, self->parameters_.values.data(), self->parameters_.gradients.data(),
                             self->step_);
        }
      });
    }
    [[nodiscard]] Device& device() const noexcept { return *self->device_; }
    /// Until the result is gone, calls are pieces of one pass over the parameters.
    [[nodiscard]] auto pass() const noexcept { return self->rule_watch_.pass(); }
  };

  void update_rest() {
    if (late_) {
      update_until(0, parameters_.segments.size());
    }
  }

  GRADUS_NEVER_INLINE void update_until(std::size_t first, std::size_t count) {
    const applied_update apply{this};
    if constexpr (requires { strategy_.finish_until(first, count, apply); }) {
      late_ = !strategy_.finish_until(first, count, apply);
    } else {
      late_ = false;
      strategy_.finish(apply);
    }
  }

  /// Tests gradients that have arrived; with the last ones makes the step, or skips it.
  void test(std::span<const optim::segment> ready) {
    rule_.test(*device_, ready, parameters_.gradients.data());
    tested_ += ready.size();
    if (tested_ == parameters_.segments.size()) {
      tested_ = 0;
      rule_.finish(*device_, {parameters_.segments.data(), parameters_.segments.size()}, parameters_.values.data(),
                   parameters_.gradients.data(), step_);
    }
  }

  Device* device_;
  Communicator* communicator_;
  comm::any_communicator_of<Communicator> group_;
  decltype(comm::rule_watch_of(std::declval<Communicator&>())) rule_watch_;
  trained_parameters<Element> parameters_;
  rule_state rule_;
  strategy_state strategy_;
  optim::update_step step_{0};  // of the last update
  bool late_ = false;           // the last update has not been completed
  std::size_t tested_ = 0;      // segments whose gradients have arrived and been tested, where the loss is scaled
};

}  // namespace gradus::train::detail

// SPDX-License-Identifier: BSL-1.0
//
// What ends a training step: gradients brought together and parameters updated. It depends on neither the network's
// layout nor its layers, so that it is compiled once for both layouts.
// Module: train. Depends on: parallel.
#pragma once

#include <cstddef>  // std::size_t
#include <span>     // std::span
#include <string>   // std::string
#include <utility>  // std::declval, std::move

#include "gradus/comm/any_communicator.hpp"             // group_of
#include "gradus/comm/watch_rule.hpp"     // rule_watch_of
#include "gradus/core/config.hpp"                // GRADUS_COLD, GRADUS_NEVER_INLINE
#include "gradus/core/element.hpp"               // parameter_element_t
#include "gradus/core/error.hpp"                 // configuration_error
#include "gradus/core/index.hpp"                 // index_t
#include "gradus/core/loss_scale.hpp"            // loss_scale
#include "gradus/core/vector.hpp"                // vector
#include "gradus/kernels/conv2d.hpp"             // kernels::pass
#include "gradus/nn/network_base.hpp"            // network_base, parameter_range
#include "gradus/optim/segment.hpp"              // optim::segment
#include "gradus/optim/update_rule.hpp"          // optim::elementwise_update_rule, has_update_rule_buffers, scales_loss
#include "gradus/optim/update_step.hpp"          // optim::update_step
#include "gradus/parallel/network_segments.hpp"  // segment_list, segments_of
#include "gradus/train/detail/trainer/loop.hpp"          // epoch_report, synchronized_update

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
  gradus::detail::vector<nn::parameter_range> of_layer;
};

/// @throws configuration_error when the network is not frozen
template <class Element, class Device>
[[nodiscard]] GRADUS_COLD GRADUS_NEVER_INLINE trained_parameters<parameter_element_t<Element>> trained_parameters_of(
    nn::network_base<Element, Device>& network) {
  if (!network.frozen()) {
    raise<configuration_error>("trainer", "a frozen network", "one that is still being built",
                               "call freeze({.batch_size = ...}) first");
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

template <class Element, class Device, class Update, class Communicator, class Synchronization>
class step_update final : public synchronized_update {
 public:
  using rule_state = typename Update::template state<Element, Device>;
  using synchronization_state = typename Synchronization::template state<Element, Communicator>;
  static constexpr bool elsewhere = updates_elsewhere<synchronization_state, Update>;
  static constexpr bool scales = optim::scales_loss<Update>;
  static constexpr bool has_buffers = optim::has_update_rule_buffers<Update, Element, Device>;
  static_assert(!(elsewhere && scales),
                "gradus: optim::scaled_loss needs the gradients of all parameters on the rank that updates: train with "
                "parallel::all_reduce, not with parameter servers");
  static_assert(
      !updates_parts<synchronization_state> || optim::elementwise_update_rule<Update>,
      "gradus: parallel::sharded_update updates parts of parameters on each rank; this update rule needs whole "
      "ones or all gradients, as optim::lars and optim::scaled_loss do, or does not say that it does not (static "
      "constexpr bool elementwise = true): train with parallel::all_reduce");

  GRADUS_COLD step_update(Device& device, trained_parameters<Element> parameters, const Update& rule,
                          Communicator& communicator, const Synchronization& options)
      : device_{&device},
        communicator_{&communicator},
        group_{communicator},
        rule_watch_{comm::detail::rule_watch_of(communicator)},
        parameters_{std::move(parameters)},
        rule_{device, rule, elsewhere ? index_t{0} : static_cast<index_t>(parameters_.values.size())},
        synchronization_{
            options,
            communicator,
            {parameters_.values, parameters_.gradients, {parameters_.segments.data(), parameters_.segments.size()}}} {
    if constexpr (elsewhere) {
      synchronization_.use_rule(rule);
    }
    if constexpr (has_buffers && requires { synchronization_.share_state(rule_); }) {
      synchronization_.share_state(rule_);
    }
  }

  step_update(const step_update&) = delete;  // the synchronization refers to the segments
  step_update& operator=(const step_update&) = delete;
  GRADUS_COLD ~step_update() = default;

  [[nodiscard]] Communicator& communicator() noexcept { return *communicator_; }
  /// The ranks that train.
  [[nodiscard]] comm::any_group& group() noexcept {
    if constexpr (requires { synchronization_.group(); }) {
      return synchronization_.group();
    } else {
      return group_;
    }
  }
  /// The rule's state, whole where that takes no other rank's help.
  [[nodiscard]] rule_state& state() {
    if constexpr (has_buffers && requires { synchronization_.fetch_state(); }) {
      synchronization_.fetch_state();
    }
    return rule_;
  }
  [[nodiscard]] synchronization_state& synchronization() noexcept { return synchronization_; }
  [[nodiscard]] std::string description() const { return synchronization_.describe(); }

  /// Whether updates are put off until the next forward pass comes to their layer. Not where the loss is scaled: the
  /// next step needs the scale of this one.
  [[nodiscard]] bool may_be_late() const noexcept {
    if constexpr (!scales && requires { synchronization_.may_be_late(); }) {
      return synchronization_.may_be_late();
    } else {
      return false;
    }
  }

  /// Makes the values those of rank 0.
  void start() { synchronization_.start(); }

  void gradients_ready(std::size_t first, std::size_t count) override {
    synchronization_.gradients_ready(first, count);
  }

  void before_layer(std::size_t layer, kernels::pass which) override {
    if (late_ && which == kernels::pass::forward) {
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
      synchronization_.end_of_step(step.learning_rate);
    }
    if (!may_be_late()) {  // else before_layer goes on
      update_rest();
    }
  }

  void complete_update() override {
    update_rest();
    if constexpr (requires { synchronization_.complete(); }) {
      synchronization_.complete();
    }
  }

  void end_epoch([[maybe_unused]] epoch_report& report) override {
    if constexpr (has_buffers && requires { synchronization_.gather_state(rule_); }) {
      synchronization_.gather_state(rule_);
    }
    if constexpr (scales) {
      report.loss_scale = rule_.report();
    }
  }

 private:
  /// What a synchronization calls for parameters whose gradients have arrived.
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
    if constexpr (requires { synchronization_.finish_until(first, count, apply); }) {
      late_ = !synchronization_.finish_until(first, count, apply);
    } else {
      late_ = false;
      synchronization_.finish(apply);
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
  comm::group_of<Communicator> group_;
  decltype(comm::detail::rule_watch_of(std::declval<Communicator&>())) rule_watch_;
  trained_parameters<Element> parameters_;
  rule_state rule_;
  synchronization_state synchronization_;
  optim::update_step step_{0};  // of the last update
  bool late_ = false;           // the last update has not been completed
  std::size_t tested_ = 0;      // segments whose gradients have arrived and been tested, where the loss is scaled
};

}  // namespace gradus::train::detail

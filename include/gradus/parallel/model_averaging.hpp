// SPDX-License-Identifier: BSL-1.0
//
// Each rank trains by itself; now and then the ranks average their weights, or an outer optimizer moves them.
#pragma once

#include <algorithm>    // std::copy, std::transform
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint64_t
#include <functional>   // std::minus
#include <memory>       // std::make_unique, std::unique_ptr
#include <span>         // std::as_writable_bytes, std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/optim/update_step.hpp"
#include "gradus/parallel/outer_optimizer.hpp"
#include "gradus/parallel/strategy.hpp"

namespace gradus::parallel {

namespace detail {

template <class Element>
class model_averaging_state;

}  // namespace detail

/// Local SGD: every rank makes its own steps with the mean gradient of its own examples, and the ranks average their
/// weights every few steps, or once an epoch. NOT the algorithm of the synchronous strategies: between averages the
/// ranks have different weights, and the result depends on the number of ranks. With an average after every step it is
/// the update of one process, if the rule is linear in the gradients (sgd).
///
/// Averages once an epoch: Vishnu, Siegel, Daily, "Distributed TensorFlow with MPI", 2016. Synchronous steps first:
/// post-local SGD of Lin, Stich, Patel, Jaggi, "Don't use large mini-batches, use local SGD", 2020.
///
/// The optimizer's state is each rank's own and is not averaged. The ranks' shares of a batch are taken as equal.
///
/// With an outer optimizer, the ranks do not go on from the mean. What their own steps have changed, as a mean over the
/// ranks, is the gradient of the outer optimizer, which moves the parameters p of the last exchange:
///
///   g = mean over the ranks of (p - p_rank),   p <- outer(p, g),   p_rank <- p
///
/// Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", 2023, algorithm 1. They take
/// some 500 steps between exchanges, adam_w for the ranks' own steps, and outside sgd{.momentum = 0.9, .nesterov =
/// true} at a rate of 0.7. With sgd{} at a rate of 1 the result is the mean, to rounding. The outer rule takes a
/// segment's weight decay, but not its factor of the learning rate, which the ranks' steps have taken. One rank by
/// itself makes outer steps too. Exchanges at the end of epochs are outer steps like the others: let every_steps divide
/// the steps of an epoch, or be 0. The outer optimizer takes memory for one more copy of the parameters, and for the
/// rule's state.
///
/// @code
///   train::trainer trainer{net, optim::adam_w{}, world,
///                          parallel::model_averaging{.every_steps = 500,
///                                                    .outer = optim::sgd{.momentum = 0.9, .nesterov = true}}};
/// @endcode
struct model_averaging {
  /// The name of the strategy in messages.
  static constexpr std::string_view name = "model_averaging";

  /// Steps between averages; 0: once an epoch. The end of an epoch averages too, so that what is evaluated is one
  /// model.
  int every_steps = 0;
  /// Number of synchronous steps at the beginning: the ranks' gradients are summed and all make the same update.
  int synchronous_steps = 0;
  /// The outer optimizer: any update rule. Without one, the ranks go on from the mean.
  outer_optimizer outer{};
  /// Its learning rate.
  double outer_learning_rate = 0.7;

  /// The object of one rank that brings its gradients together; see gradient_strategy.
  template <class Element>
  using state = detail::model_averaging_state<Element>;
};

namespace detail {

template <class Element>
class model_averaging_state final : public strategy<Element> {
 public:
  /// Called by all ranks. @throws configuration_error when options make no sense
  model_averaging_state(const model_averaging& options, comm::any_communicator communicator,
                        const flat_parameters<Element>& parameters)
      : options_{checked(options)}, channel_{communicator.duplicate()}, parameters_{parameters} {
    if (options_.outer) {
      outer_ = std::make_unique<outer_state>(options_.outer, parameters_);
    }
  }

  void start() override { comm::broadcast(channel_, parameters_.values, 0).wait(); }

  void finish(const update_call& update) override {
    const bool together = steps() < static_cast<std::uint64_t>(options_.synchronous_steps);
    ++counters_[0];
    if (channel_.size() == 1 && outer_ == nullptr) {
      update(parameters_.segments);
      return;
    }
    if (together) {
      comm::all_reduce(channel_, parameters_.gradients).wait();
    } else {  // they are parts of a mean over all ranks' examples
      scale(parameters_.gradients, static_cast<double>(channel_.size()));
      if (outer_ != nullptr && !apart()) {
        outer_->keep(parameters_.values);
      }
    }
    update(parameters_.segments);
    counters_[2] = apart() || !together ? 1 : 0;
    const std::uint64_t alone = steps() - static_cast<std::uint64_t>(options_.synchronous_steps);
    if (!together && options_.every_steps > 0 && alone % static_cast<std::uint64_t>(options_.every_steps) == 0) {
      complete();
    }
  }

  /// Averages the weights, or makes the outer step, unless they are the same on all ranks. Called by all ranks.
  void complete() override {
    if (!apart()) {
      return;
    }
    if (outer_ != nullptr) {
      outer_->take_changes(parameters_.values);
    }
    comm::all_reduce(channel_, parameters_.values).wait();
    scale(parameters_.values, 1.0 / static_cast<double>(channel_.size()));
    if (outer_ != nullptr) {
      outer_->step(parameters_.values, {options_.outer_learning_rate, averages()});
    }
    counters_[2] = 0;
    ++counters_[1];
  }

  [[nodiscard]] bool ranks_differ() const noexcept override { return channel_.size() > 1; }
  [[nodiscard]] std::span<std::uint64_t> counters() noexcept override { return counters_; }
  [[nodiscard]] std::span<const strategy_buffer> buffers() const noexcept override {
    return outer_ == nullptr ? std::span<const strategy_buffer>{} : outer_->buffers();
  }

  /// How often the weights have been averaged, or the outer optimizer has moved them.
  [[nodiscard]] std::uint64_t averages() const noexcept { return counters_[1]; }

  [[nodiscard]] std::string describe() const override {
    std::string text = gradus::join({model_averaging::name, " by ", channel_.link().properties().name, ", "});
    if (options_.every_steps > 0) {
      append_text(text, {"every ", options_.every_steps, " steps"});
    } else {
      text += "once an epoch";
    }
    append_text(text, {", after ", options_.synchronous_steps, " synchronous steps"});
    if (outer_ != nullptr) {
      append_text(text, {", outer ", options_.outer.description(), " at rate ", options_.outer_learning_rate});
    }
    return text;
  }

 private:
  /// The outer optimizer with its state, and the parameters that it moves.
  class outer_state {
   public:
    outer_state(const outer_optimizer& rule, const flat_parameters<Element>& parameters)
        : device_{{.intra_op_threads = 1, .flush_denormals = parameters.flush_denormals}},
          values_(parameters.values.size()),
          segments_(parameters.segments.size()),
          rule_{rule.make<Element>(device_, static_cast<index_t>(parameters.values.size()))} {
      if (rule_->scales_loss()) {
        raise<configuration_error>("parallel::model_averaging", "an outer optimizer that does not scale a loss",
                                   rule_->description(), "scale the loss in the optimizer of the trainer");
      }
      std::copy(parameters.segments.begin(), parameters.segments.end(), segments_.begin());
      for (optim::segment& each : segments_) {
        each.learning_rate_factor = 1;
      }
      list_buffers();
    }

    /// These are the parameters of the last exchange.
    void keep(std::span<const Element> values) { std::copy(values.begin(), values.end(), values_.begin()); }
    /// values <- (parameters of the last exchange) - values
    void take_changes(std::span<Element> values) const {
      std::transform(values_.begin(), values_.end(), values.begin(), values.begin(), std::minus<Element>{});
    }
    /// @param gradients  replaced by the parameters after the step
    void step(std::span<Element> gradients, const optim::update_step& number) {
      rule_->run_step({segments_.data(), segments_.size()}, values_.data(), gradients.data(), number);
      std::copy(values_.begin(), values_.end(), gradients.begin());
    }

    [[nodiscard]] std::span<const strategy_buffer> buffers() const noexcept {
      return {buffers_.data(), buffers_.size()};
    }

   private:
    void list_buffers() {
      buffers_.push_back({.memory = {.name = "outer.values",
                                     .bytes = std::as_writable_bytes(std::span{values_.data(), values_.size()}),
                                     .elements = static_cast<index_t>(values_.size()),
                                     .element = element_name<Element>},
                          .of_parameters = true});
      const dynamic_array<std::string> of_parameters = optim::buffers_of_parameters(*rule_);
      for (optim::state_buffer& each : rule_->buffers()) {
        bool of_each = false;
        for (const std::string& name : of_parameters) {
          of_each = of_each || name == each.name;
        }
        each.name.insert(0, "outer.");
        buffers_.push_back({.memory = std::move(each), .of_parameters = of_each});
      }
    }

    cpu device_;
    dynamic_array<Element> values_;
    dynamic_array<optim::segment> segments_;  // their factors of the learning rate are 1
    std::unique_ptr<optim::parameter_update<Element>> rule_;
    dynamic_array<strategy_buffer> buffers_;
  };

  [[nodiscard]] std::uint64_t steps() const noexcept { return counters_[0]; }
  /// The ranks' weights may differ.
  [[nodiscard]] bool apart() const noexcept { return counters_[2] != 0; }

  static model_averaging checked(const model_averaging& options) {
    if (options.every_steps < 0 || options.synchronous_steps < 0) {
      raise<configuration_error>("parallel::model_averaging", "every_steps and synchronous_steps of at least 0",
                                 {options.every_steps, " and ", options.synchronous_steps});
    }
    if (!(options.outer_learning_rate > 0) || !is_finite(options.outer_learning_rate)) {
      raise<configuration_error>("parallel::model_averaging", "a finite outer_learning_rate above 0",
                                 {options.outer_learning_rate}, "0.7 is usual with Nesterov momentum, 1 without");
    }
    if (!options.outer && options.outer_learning_rate != model_averaging{}.outer_learning_rate) {
      raise<configuration_error>("parallel::model_averaging", "an outer optimizer for outer_learning_rate",
                                 {options.outer_learning_rate, " without one"},
                                 "set .outer = optim::sgd{.momentum = 0.9, .nesterov = true}");
    }
    return options;
  }

  static void scale(std::span<Element> elements, double factor) noexcept {
    for (Element& each : elements) {
      each = static_cast<Element>(static_cast<double>(each) * factor);
    }
  }

  model_averaging options_;
  comm::any_communicator channel_;
  flat_parameters<Element> parameters_;
  std::unique_ptr<outer_state> outer_;  // null: none
  std::uint64_t counters_[3] = {};      // steps, averages, whether the ranks are apart
};

}  // namespace detail

static_assert(gradient_strategy<model_averaging>);

}  // namespace gradus::parallel

GRADUS_COMPILED_STRATEGY(::gradus::parallel::model_averaging)

// SPDX-License-Identifier: BSL-1.0
//
// Training behind the C interface: calls of some steps each.
#pragma once

#include <cmath>        // std::abs
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint64_t
#include <exception>    // std::current_exception, std::exception_ptr, std::rethrow_exception
#include <functional>   // std::function
#include <memory>       // std::make_unique, std::shared_ptr, std::unique_ptr
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <type_traits>  // std::remove_cvref_t
#include <utility>      // std::move
#include <vector>       // std::vector

#include "arrays.hpp"
#include "batches.hpp"
#include "calls.hpp"
#include "communicator.hpp"
#include "gradus/checkpoint/checkpoints.hpp"
#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/index.hpp"
#include "gradus/nn/targets.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/adam_w.hpp"
#include "gradus/optim/schedules.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/train/report.hpp"
#include "gradus/train/trainer.hpp"
#include "gradus/train/weights.hpp"
#include "gradus_c.h"
#include "network.hpp"

namespace gradus_c {

namespace train = gradus::train;

/// A learning rate that the caller computes from the step.
template <class Trainer>
struct rate_of_step {
  const Trainer* of;
  const call_settings* settings;

  [[nodiscard]] double operator()(double /*epoch*/) const {
    return settings->schedule(of->steps(), settings->schedule_context);
  }
  [[nodiscard]] std::string description() const { return "a function of the program"; }
};

/// The functions that all ranks call together. Ranks compare them before they exchange anything else.
enum class rank_call : unsigned char { step, train_steps, train_for, train_epochs, evaluate };

[[nodiscard]] constexpr std::string_view name_of(rank_call function) noexcept {
  constexpr std::string_view names[] = {"gradus_trainer_step", "gradus_trainer_train_steps", "gradus_trainer_train_for",
                                        "gradus_trainer_train_epochs", "gradus_trainer_evaluate"};
  return names[static_cast<std::size_t>(function)];
}

/// Gives the data of a call as the network reads it, and how long it goes on.
using request_taker = std::function<call_request()>;

/// A training, without the types of its elements and of its update rule.
class any_training {
 public:
  any_training() = default;
  any_training(const any_training&) = delete;
  any_training& operator=(const any_training&) = delete;
  virtual ~any_training() = default;

  [[nodiscard]] virtual std::uint64_t steps() const = 0;
  [[nodiscard]] virtual nn::target_description needed() const = 0;
  virtual gradus_report fit(rank_call function, const request_taker& take, const call_settings& settings) = 0;
  virtual gradus_report evaluate(const request_taker& take, const call_settings& settings) = 0;
  virtual void set_checkpoints(const std::string& folder, const gradus_checkpoint_options& options) = 0;
  virtual bool resume(const std::string& folder) = 0;
  virtual void save_weights(const std::string& path) = 0;
};

template <class Element>
class training final : public any_training {
  using network_type = typename network_of<Element>::network_type;
  using trainer_type = train::trainer<network_type>;

 public:
  template <class Rule, class Communicator>
  training(network_of<Element>& of, const Rule& rule, Communicator& ranks)
      : trainer_{of.net, rule, ranks},
        batches_{of.net.device(), of.net.shape(of.net.input()), of.net.target_description()},
        evaluation_{of.net.device(), of.net.shape(of.net.input()), of.net.target_description()} {}

  [[nodiscard]] std::uint64_t steps() const override { return trainer_.steps(); }
  [[nodiscard]] nn::target_description needed() const override {
    return const_cast<trainer_type&>(trainer_).network().target_description();
  }

  gradus_report fit(rank_call function, const request_taker& take, const call_settings& settings) override {
    const bool calls = settings.callback != nullptr;
    agree(function, [&] { batches_.prepare(take(), settings, calls, group(), trainer_.steps()); });
    batches_.exchange_counts();
    gradus_report report{};
    const auto on_step = [&](const train::step_report& step) {
      if (!calls) {
        return;
      }
      const gradus_step_report told{.step = step.step,
                                    .global_examples = step.global_examples,
                                    .local_examples = step.local_examples,
                                    .local_loss = step.local_loss,
                                    .learning_rate = step.learning_rate};
      if (settings.callback(&told, settings.callback_context) != 0) {
        batches_.stop();
      }
    };
    const auto on_epoch = [&](train::epoch_report& epoch) {
      report = {.steps = batches_.steps(),
                .examples = epoch.examples,
                .loss = epoch.loss,
                .accuracy = epoch.accuracy,
                .seconds = epoch.seconds};
    };
    const gradus::optim::schedule rate =
        settings.schedule == nullptr ? gradus::optim::schedule{gradus::optim::constant{settings.learning_rate}}
                                     : gradus::optim::schedule{rate_of_step<trainer_type>{&trainer_, &settings}};
    // A call is an epoch of the trainer. Behind a resume, those before it count.
    const train::fit_options options{.epochs = calls_before_ + 1, .learning_rate = rate};
    calls_before_ = 0;
    if (checkpoints_ != nullptr) {
      trainer_.fit(batches_, options, on_step, on_epoch, *checkpoints_);
    } else {
      trainer_.fit(batches_, options, on_step, on_epoch);
    }
    return report;
  }

  gradus_report evaluate(const request_taker& take, const call_settings& settings) override {
    call_settings in_order = settings;
    in_order.shuffle = false;
    in_order.global_batch_size =
        trainer_.network().max_batch_size() * static_cast<index_t>(trainer_.communicator().size());
    agree(rank_call::evaluate, [&] { evaluation_.prepare({take().data, {.passes = 1}}, in_order, false, group(), 0); });
    const train::evaluation_report measured = trainer_.evaluate(evaluation_);
    return {.steps = evaluation_.steps(),
            .examples = measured.examples,
            .loss = measured.loss,
            .accuracy = measured.accuracy,
            .seconds = measured.seconds};
  }

  void set_checkpoints(const std::string& folder, const gradus_checkpoint_options& options) override {
    checkpoints_ = std::make_unique<train::checkpoints>(
        folder,
        train::checkpoint_options{.every = static_cast<std::uint64_t>(options.every == 0 ? 1000 : options.every),
                                  .keep = options.keep == 0 ? 3 : options.keep,
                                  .signals = options.signals != 0});
  }

  bool resume(const std::string& folder) override {
    const auto found = trainer_.resume(folder);
    if (found.path.empty()) {
      return false;
    }
    calls_before_ = trainer_.epochs();
    return true;
  }

  void save_weights(const std::string& path) override { train::save_weights(trainer_, path); }

 private:
  [[nodiscard]] gradus::comm::link& group() { return trainer_.communicator().link(); }

  /// Calls body(). If it throws on one rank, all throw, so that no rank waits for one that has refused its arguments.
  /// So do all where ranks are in different functions, which would exchange different things.
  template <class Body>
  void agree(rank_call function, const Body& body) {
    std::exception_ptr own;
    try {
      body();
    } catch (...) {
      own = std::current_exception();
    }
    const auto ranks = static_cast<std::size_t>(group().size());
    const auto rank = static_cast<std::size_t>(group().rank());
    std::vector<double> calls(ranks, 0.0);  // the function of each rank: the number from 1, below 0 if it refuses
    calls[rank] = (static_cast<double>(function) + 1) * (own == nullptr ? 1 : -1);
    if (ranks > 1) {
      group().sum(calls);
    }
    int failed = 0;
    for (std::size_t other = 0; other < ranks; ++other) {
      const auto theirs = static_cast<rank_call>(std::abs(calls[other]) - 1);
      if (theirs != function) {
        throw failure{GRADUS_CONFIGURATION_ERROR,
                      "one function that all ranks of the trainer call",
                      {name_of(theirs), " on rank ", other, ", ", name_of(function), " on this rank"}};
      }
      failed += calls[other] < 0 ? 1 : 0;
    }
    if (own != nullptr) {
      std::rethrow_exception(own);
    }
    if (failed > 0) {
      throw failure{GRADUS_CONFIGURATION_ERROR,
                    "arguments that all ranks take",
                    {"those of ", failed, " other ranks, which refuse theirs"},
                    "their messages say why"};
    }
  }

  trainer_type trainer_;
  call_batches<Element> batches_;
  call_batches<Element> evaluation_;
  std::unique_ptr<train::checkpoints> checkpoints_;
  int calls_before_ = 0;
};

class trainer final : public object {
 public:
  explicit trainer(std::shared_ptr<network> trained) : of{std::move(trained)} { ++of->trainers; }

  std::shared_ptr<network> of;
  std::shared_ptr<communicator> ranks;
  std::unique_ptr<any_training> work;  // ends before what it refers to
  call_settings settings;

  ~trainer() override {
    work.reset();
    --of->trainers;
  }

  /// The data as the network reads it. @throws failure if arrays are missing, or of other shapes
  [[nodiscard]] training_data take(const data_set& from) {
    training_data result;
    const nn::value_shape image = of->with([](auto& any) { return any.net.shape(any.net.input()); });
    const nn::target_description needed = work->needed();
    result.inputs = array_of(from, of->input_name(), "samples of the input", image);
    const std::string& output = of->output_name();
    if (needed.values.channels > 0) {
      result.targets = array_of(from, output, "targets of the output", needed.values);
      require_count(output, result.targets.count, result.count());
    } else {
      nn::value_shape map = of->with([&](auto& any) { return any.net.shape(of->output()); });
      map = {.channels = 1, .height = needed.labels == 1 ? 1 : map.height, .width = needed.labels == 1 ? 1 : map.width};
      result.labels = array_of(from, output, "classes of the output", map);
      if (result.labels.element < GRADUS_INT32) {
        throw failure{GRADUS_SHAPE_ERROR,
                      {"classes '", output, "' that are integers, GRADUS_INT32 or GRADUS_INT64"},
                      "floating-point numbers",
                      "a class is a number from 0 to the number of channels of the output - 1"};
      }
      require_count(output, result.labels.count, result.count());
    }
    if (from.weights) {
      result.weights = examples_of("weights", *from.weights, {.channels = 1});
      require_count("weights", result.weights.count, result.count());
    }
    return result;
  }

 private:
  static examples array_of(const data_set& from, const std::string& name, const char* what,
                           const nn::value_shape& shape) {
    const auto at = from.arrays.find(name);
    if (at == from.arrays.end()) {
      refuse({"data with an array '", name, "', the ", what}, "data without it",
             "call gradus_data_set with the names of the network's input and output");
    }
    return examples_of(name, at->second, shape);
  }
  static void require_count(const std::string& name, index_t count, index_t inputs) {
    if (count != inputs) {
      throw failure{GRADUS_SHAPE_ERROR, {"as many samples of '", name, "' as of the input, ", inputs}, {count}};
    }
  }
};

/// The rule of the options, given to body.
template <class Body>
void with_rule(const gradus_trainer_options& options, const Body& body) {
  const auto clipped = [&](const auto& rule) {
    if (options.clip_norm != 0) {
      using rule_type = std::remove_cvref_t<decltype(rule)>;
      body(gradus::optim::update<rule_type>{.rule = rule, .max_norm = options.clip_norm});
    } else {
      body(rule);
    }
  };
  const double beta1 = or_default(options.beta1, 0.9);
  const double beta2 = or_default(options.beta2, 0.999);
  const double epsilon = or_default(options.epsilon, 1e-8);
  switch (options.optimizer) {
    case GRADUS_SGD:
      return clipped(gradus::optim::sgd{
          .momentum = options.momentum, .nesterov = options.nesterov != 0, .weight_decay = options.weight_decay});
    case GRADUS_ADAM:
      return clipped(gradus::optim::adam{.beta1 = beta1,
                                         .beta2 = beta2,
                                         .epsilon = epsilon,
                                         .weight_decay = options.weight_decay,
                                         .amsgrad = options.amsgrad != 0});
    case GRADUS_ADAM_W:
      return clipped(gradus::optim::adam_w{
          .beta1 = beta1, .beta2 = beta2, .epsilon = epsilon, .weight_decay = options.weight_decay});
    default:
      refuse_constant("optimizer", options.optimizer, "GRADUS_SGD, GRADUS_ADAM or GRADUS_ADAM_W");
  }
}

}  // namespace gradus_c

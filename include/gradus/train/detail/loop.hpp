// SPDX-License-Identifier: BSL-1.0
//
// The loops of training and evaluation. They are compiled once: what depends on element types, layouts, communicators
// and callbacks stands behind small interfaces that are called once a step.
// Module: train. Depends on: parallel.
#pragma once

#include <chrono>            // std::chrono::steady_clock
#include <cmath>             // std::isfinite
#include <cstdint>           // std::uint64_t
#include <exception>         // std::exception
#include <initializer_list>  // std::initializer_list
#include <string>            // std::string

#include "gradus/comm/any_group.hpp"   // comm::any_group
#include "gradus/core/config.hpp"      // GRADUS_COLD, GRADUS_NEVER_INLINE
#include "gradus/core/error.hpp"       // numeric_error
#include "gradus/core/index.hpp"       // index_t
#include "gradus/kernels/softmax.hpp"  // loss_sums
#include "gradus/nn/network.hpp"       // step_options
#include "gradus/optim/schedule.hpp"   // optim::schedule
#include "gradus/train/report.hpp"     // epoch_report, evaluation_report, run_information, step_report

namespace gradus::train::detail {

using clock = std::chrono::steady_clock;

inline double seconds_since(clock::time_point began) {
  return std::chrono::duration<double>(clock::now() - began).count();
}

/// What a step says of its batch.
struct batch_facts {
  std::uint64_t first_example = 0;
  index_t global_examples = 0;
  index_t examples = 0;  // of this rank
};

/// The batches of an epoch and what a network does with them.
class pass {
 public:
  pass() = default;
  pass(const pass&) = delete;
  pass& operator=(const pass&) = delete;

  virtual void start_epoch(std::uint64_t epoch) = 0;
  /// Goes to the next batch; false after the last.
  [[nodiscard]] virtual bool next(batch_facts& batch) = 0;
  /// Runs the network on the batch. `place` is for steps of training.
  virtual kernels::loss_sums run(const nn::step_options& place) = 0;

 protected:
  ~pass() = default;
};

/// A pass that trains.
class training_pass : public pass {
 public:
  /// Brings the ranks' gradients together and updates the parameters.
  virtual void update(double rate) = 0;
  /// Makes the parameters those of the next step, if update has put that off.
  virtual void complete_update() = 0;
  /// Where the batch first makes something that is not finite.
  [[nodiscard]] virtual std::string first_not_finite(const nn::step_options& place) = 0;

 protected:
  ~training_pass() = default;
};

/// A callback; members that its type lacks do nothing.
class any_callback {
 public:
  any_callback() = default;
  any_callback(const any_callback&) = delete;
  any_callback& operator=(const any_callback&) = delete;

  virtual void on_start(const run_information& run) = 0;
  virtual void on_step(const step_report& step) = 0;
  /// True to stop.
  [[nodiscard]] virtual bool on_epoch(epoch_report& epoch) = 0;
  virtual void on_finish() = 0;

  [[nodiscard]] any_callback* self() noexcept { return this; }  // of a temporary, within one expression

 protected:
  ~any_callback() = default;
};

using callback_list = std::initializer_list<any_callback*>;

/// Sums over examples, and what they mean.
struct sums {
  double values[3] = {};  // loss, right answers, examples

  void add(const kernels::loss_sums& part, index_t examples) noexcept {
    values[0] += part.loss;
    values[1] += static_cast<double>(part.correct);
    values[2] += static_cast<double>(examples);
  }
  [[nodiscard]] double loss() const noexcept { return values[2] > 0 ? values[0] / values[2] : 0.0; }
  [[nodiscard]] double accuracy() const noexcept { return values[2] > 0 ? values[1] / values[2] : 0.0; }
  [[nodiscard]] double examples() const noexcept { return values[2]; }
};

/// @param group  ranks that share the data set, or nullptr
GRADUS_NEVER_INLINE inline evaluation_report evaluate(pass& data, comm::any_group* group, clock::time_point began) {
  sums total;
  batch_facts batch;
  data.start_epoch(0);
  while (data.next(batch)) {
    total.add(data.run({}), batch.examples);
  }
  if (group != nullptr) {
    group->sum(total.values);
  }
  return {.loss = total.loss(),
          .accuracy = total.accuracy(),
          .examples = static_cast<index_t>(total.examples()),
          .seconds = seconds_since(began)};
}

/// The state of a training: how far it has come.
class loop {
 public:
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_done_; }

  /// The epochs of one call of fit. If one ends in an exception, the other ranks are told.
  void fit(training_pass& data, comm::any_group& group, const run_information& run,
           const optim::schedule& learning_rate, callback_list callbacks) {
    try {
      for (any_callback* const each : callbacks) {
        each->on_start(run);
      }
      for (int epoch = 0; epoch < run.epochs; ++epoch) {
        epoch_report report = run_epoch(data, group, run, epoch, learning_rate, callbacks);
        bool stop = false;
        for (any_callback* const each : callbacks) {
          stop = each->on_epoch(report) || stop;
        }
        ++epochs_done_;
        if (any_rank(group, stop)) {
          break;
        }
      }
      for (any_callback* const each : callbacks) {
        each->on_finish();
      }
    } catch (const std::exception& failure) {
      group.fail(failure.what());  // nobody shall wait for this rank
      throw;
    }
  }

 private:
  epoch_report run_epoch(training_pass& data, comm::any_group& group, const run_information& run, int epoch,
                         const optim::schedule& learning_rate, callback_list callbacks) {
    const auto began = clock::now();
    epoch_report report{.epoch = epoch, .epochs = run.epochs};
    sums total;
    batch_facts batch;
    data.start_epoch(static_cast<std::uint64_t>(epochs_done_));
    for (;;) {
      const auto before_input = clock::now();
      const bool more = data.next(batch);
      report.input_seconds += seconds_since(before_input);
      if (!more) {
        break;
      }
      const double passes = static_cast<double>(epochs_done_) +
                            static_cast<double>(report.steps) / static_cast<double>(run.steps_per_epoch);
      const double rate = learning_rate(passes);
      const nn::step_options place{
          .step = steps_done_, .first_example = batch.first_example, .global_examples = batch.global_examples};
      const kernels::loss_sums part = data.run(place);
      if (!std::isfinite(part.loss)) {
        throw_not_finite(data.first_not_finite(place), place, group.rank(), epoch, part.loss, rate);
      }
      const auto before_synchronization = clock::now();
      data.update(rate);
      report.synchronization_seconds += seconds_since(before_synchronization);
      total.add(part, batch.examples);
      const step_report step{.epoch = epoch,
                             .step_in_epoch = report.steps,
                             .steps_per_epoch = run.steps_per_epoch,
                             .step = steps_done_,
                             .global_examples = batch.global_examples,
                             .local_examples = batch.examples,
                             .local_loss = batch.examples > 0 ? part.loss / static_cast<double>(batch.examples) : 0.0,
                             .learning_rate = rate};
      for (any_callback* const each : callbacks) {
        each->on_step(step);
      }
      ++report.steps;
      ++steps_done_;
    }
    data.complete_update();
    if (group.size() > 1) {
      group.sum(total.values);
    }
    report.examples = static_cast<index_t>(total.examples());
    report.loss = total.loss();
    report.accuracy = total.accuracy();
    report.seconds = seconds_since(began);
    report.images_per_second = report.seconds > 0 ? total.examples() / report.seconds : 0.0;
    return report;
  }

  [[noreturn]] GRADUS_COLD static void throw_not_finite(const std::string& first, const nn::step_options& place,
                                                        int rank, int epoch, double loss, double rate) {
    throw numeric_error{{"training step ", place.step, " (epoch ", epoch + 1, ", rank ", rank, ")"},
                        "a finite loss",
                        {loss, ", first not finite: ", first.empty() ? "the loss itself" : first.c_str()},
                        {"a smaller learning rate than ", rate, ", a warm-up, or a look at the input data"}};
  }

  /// Whether a rank says so; every rank gets the same answer.
  static bool any_rank(comm::any_group& group, bool says_so) {
    if (group.size() == 1) {
      return says_so;
    }
    double count[] = {says_so ? 1.0 : 0.0};
    group.sum(count);
    return count[0] > 0;
  }

  std::uint64_t steps_done_ = 0;
  int epochs_done_ = 0;
};

}  // namespace gradus::train::detail

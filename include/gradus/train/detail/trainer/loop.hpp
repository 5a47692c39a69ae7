// SPDX-License-Identifier: BSL-1.0
//
// The loops of training and evaluation. They are compiled once: what depends on element types, layouts, communicators
// and callbacks stands behind small interfaces that are called once a step.
#pragma once

#include <chrono>            // std::chrono::steady_clock
#include <cstddef>           // std::byte
#include <cstdint>           // std::uint64_t
#include <cstdio>            // std::snprintf
#include <exception>         // std::exception
#include <initializer_list>  // std::initializer_list
#include <span>              // std::span
#include <string>            // std::string
#include <string_view>       // std::string_view

#include "gradus/comm/agreement.hpp"
#include "gradus/comm/any_communicator.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/sampler.hpp"
#include "gradus/kernels/softmax.hpp"
#include "gradus/nn/step_hooks.hpp"
#include "gradus/nn/step_options.hpp"
#include "gradus/optim/schedule.hpp"
#include "gradus/optim/update_step.hpp"
#include "gradus/train/detail/trainer/target_check.hpp"
#include "gradus/train/report.hpp"
#include "gradus/train/step_end.hpp"

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

/// The batches of a loader, and what a network does with them.
class batches {
 public:
  batches() = default;
  batches(const batches&) = delete;
  batches& operator=(const batches&) = delete;

  virtual void start_epoch(std::uint64_t epoch) = 0;
  /// Goes to the next batch; false after the last.
  [[nodiscard]] virtual bool next(batch_facts& batch) = 0;
  [[nodiscard]] virtual kernels::loss_sums evaluate() = 0;
  virtual kernels::loss_sums train_step(const nn::step_options& options, nn::step_hooks& observer) = 0;
  /// Where the batch first makes something that is not finite.
  [[nodiscard]] virtual std::string first_not_finite(const nn::step_options& options) = 0;

 protected:
  ~batches() = default;
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
  double values[4] = {};  // loss, right answers, examples, labels

  void add(const kernels::loss_sums& part, index_t examples) noexcept {
    values[0] += part.loss;
    values[1] += static_cast<double>(part.correct);
    values[2] += static_cast<double>(examples);
    values[3] += static_cast<double>(part.labels);
  }
  [[nodiscard]] double loss() const noexcept { return values[2] > 0 ? values[0] / values[2] : 0.0; }
  [[nodiscard]] double accuracy() const noexcept { return values[3] > 0 ? values[1] / values[3] : 0.0; }
  [[nodiscard]] double examples() const noexcept { return values[2]; }
  [[nodiscard]] double labels() const noexcept { return values[3]; }
};

/// The fact that begins what fit compares between ranks: arguments that it takes.
inline constexpr const char* valid_arguments = "valid ones";

/// This rank refuses arguments: it takes part in the comparison that the other ranks make next, so that they throw an
/// error with its reason, and the communicator goes on working.
inline void refuse(comm::any_communicator& group, std::string_view operation, std::span<const comm::fact> reason) {
  try {
    comm::require_agreement(group, operation, reason);
  } catch (const error&) {  // this rank throws its own
  }
}

/// The same for the arguments of fit.
inline void refuse_fit(comm::any_communicator& group, std::string_view reason) {
  const comm::fact facts[] = {{"arguments", std::string{reason}}};
  refuse(group, "trainer.fit", facts);
}

/// The other ranks get the reason, wherever they are.
inline void fail_all(comm::any_communicator& group, std::string_view reason) {
  group.fail(reason);
}

/// Calls body(). If it throws, the other ranks throw too.
/// @param refuse  gives them the reason
template <class Body>
void check_on_all(comm::any_communicator& group, void (*refuse)(comm::any_communicator&, std::string_view),
                  error_location where, const Body& body) {
  try {
    at_call(where, body);
  } catch (const std::exception& failure) {
    refuse(group, failure.what());  // so that no rank waits for this one
    throw;
  }
}

/// Compares what the loader gives with what the network reads, and calls take(loader, part) with the part of each batch
/// that belongs to this rank of `group`. It returns the largest number of examples of this rank, or 0.
/// @param refuse  gives the other ranks the reason of an error
GRADUS_COLD inline void take_shard(comm::any_communicator& group,
                                   void (*refuse)(comm::any_communicator&, std::string_view),
                                   const example_check& check, index_t (*take)(void* loader, const data::shard& part),
                                   void* loader, error_location where) {
  check_on_all(group, refuse, where, [&] {
    require_examples(check);
    require_batch_size(check, take(loader, {.rank = group.rank(), .ranks = group.size()}), group.size());
  });
}

/// If a rank fails, it sends its reason to the others.
/// @param statistics  of the network; all ranks take over those of rank 0
inline evaluation_report evaluate(batches& data, comm::any_communicator& group, std::span<std::byte> statistics,
                                  error_location where) {
  const auto began = clock::now();
  const bool shared = group.size() > 1;
  if (shared && !statistics.empty()) {
    group.broadcast(statistics, 0);
  }
  sums total;
  batch_facts batch;
  try {
    at_call(where, [&] {
      data.start_epoch(0);
      while (data.next(batch)) {
        total.add(data.evaluate(), batch.examples);
      }
    });
  } catch (const std::exception& failure) {
    group.fail(failure.what());
    throw;
  }
  if (shared) {
    group.sum(total.values);
  }
  return {.loss = total.loss(),
          .accuracy = total.accuracy(),
          .labels = static_cast<index_t>(total.labels()),
          .examples = static_cast<index_t>(total.examples()),
          .seconds = seconds_since(began)};
}

/// What a training is about: some epochs of a data set, with a learning rate.
struct fit_facts {
  run_information run;
  const optim::schedule& learning_rate;
  const std::string& loader;  // its description
  error_location where;
};

/// @throws configuration_error when options make no sense or ranks differ
inline void require_same_fit(comm::any_communicator& group, const fit_facts& fit) {
  check_on_all(group, refuse_fit, fit.where, [&] {
    if (fit.run.epochs < 0) {
      raise<configuration_error>("trainer.fit", "epochs of at least 0", {fit.run.epochs});
    }
  });
  const comm::fact facts[] = {{"arguments", valid_arguments},
                              {"epochs", gradus::join({fit.run.epochs})},
                              {"learning rate", fit.learning_rate.description()},
                              {"loader", fit.loader}};
  comm::require_agreement(group, "trainer.fit", facts);
}

/// The state of a training: how far it has come.
class loop {
 public:
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_done_; }

  /// The epochs of one call of fit. If one ends in an exception, the other ranks get its message.
  /// @throws configuration_error when options make no sense or ranks differ
  void fit(batches& data, step_end& update, comm::any_communicator& group, const fit_facts& fit,
           callback_list callbacks) {
    require_same_fit(group, fit);
    try {
      at_call(fit.where, [&] { run_epochs(data, update, group, fit, callbacks); });
    } catch (const std::exception& failure) {
      group.fail(failure.what());  // so that no rank waits for this one
      throw;
    }
  }

 private:
  void run_epochs(batches& data, step_end& update, comm::any_communicator& group, const fit_facts& fit,
                  callback_list callbacks) {
    for (any_callback* const each : callbacks) {
      each->on_start(fit.run);
    }
    for (int epoch = 0; epoch < fit.run.epochs; ++epoch) {
      epoch_report report = run_epoch(data, update, group, fit, epoch, callbacks);
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
  }

  GRADUS_COLD epoch_report run_epoch(batches& data, step_end& update, comm::any_communicator& group,
                                     const fit_facts& fit, int epoch, callback_list callbacks) {
    const auto began = clock::now();
    const run_information& run = fit.run;
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
      const double rate = fit.learning_rate(passes);
      const nn::step_options options{.step = steps_done_,
                                     .first_example = batch.first_example,
                                     .global_examples = batch.global_examples,
                                     .loss_scale = update.scale_of_loss()};
      const kernels::loss_sums part = data.train_step(options, update);
      if (!is_finite(part.loss)) {
        throw_not_finite(data.first_not_finite(options), options, group.rank(), epoch, part.loss, rate);
      }
      const auto before_exchange = clock::now();
      update.update({rate, steps_done_});
      report.synchronization_seconds += seconds_since(before_exchange);
      total.add(part, batch.examples);
      const step_report step{.epoch = epoch,
                             .step_in_epoch = report.steps,
                             .steps_per_epoch = run.steps_per_epoch,
                             .step = steps_done_,
                             .global_examples = batch.global_examples,
                             .local_examples = batch.examples,
                             .local_loss = batch.examples > 0 ? part.loss / static_cast<double>(batch.examples) : 0.0,
                             .learning_rate = rate,
                             .gradient_norm = update.gradient_norm()};
      for (any_callback* const each : callbacks) {
        each->on_step(step);
      }
      ++report.steps;
      ++steps_done_;
    }
    update.complete_update();
    if (group.size() > 1) {
      group.sum(total.values);
    }
    report.examples = static_cast<index_t>(total.examples());
    report.loss = total.loss();
    report.accuracy = total.accuracy();
    report.labels = static_cast<index_t>(total.labels());
    update.end_epoch(report);
    report.seconds = seconds_since(began);
    report.images_per_second = report.seconds > 0 ? total.examples() / report.seconds : 0.0;
    return report;
  }

  [[noreturn]] static void throw_not_finite(const std::string& first, const nn::step_options& options, int rank,
                                            int epoch, double loss, double rate) {
    char shown_rate[32];
    std::snprintf(shown_rate, sizeof(shown_rate), "%g", rate);
    raise<numeric_error>(
        {"training step ", options.step, " (epoch ", epoch + 1, ", rank ", rank, ")"}, "a finite loss",
        {loss, ", first not finite: ", first.empty() ? "the loss itself" : first.c_str()},
        {"a smaller learning rate than ", shown_rate,
         ", a warm-up, or a look at the input data. The network has the parameters of this step: begin "
         "again with a new one"});
  }

  /// Whether a rank says so; every rank gets the same answer.
  static bool any_rank(comm::any_communicator& group, bool says_so) {
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

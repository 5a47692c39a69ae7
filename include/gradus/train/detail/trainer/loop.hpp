// SPDX-License-Identifier: BSL-1.0
//
// The loops of training and evaluation. They are compiled once: what depends on element types, layouts, communicators
// and callbacks stands behind small interfaces that are called once a step.
#pragma once

#include <algorithm>         // std::min
#include <atomic>            // std::atomic
#include <chrono>            // std::chrono::steady_clock
#include <cstddef>           // std::byte
#include <cstdint>           // std::uint64_t
#include <exception>         // std::exception
#include <initializer_list>  // std::initializer_list
#include <span>              // std::span
#include <string>            // std::string
#include <string_view>       // std::string_view
#include <utility>           // std::move

#include "gradus/comm/link.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/kernels/softmax.hpp"
#include "gradus/nn/network/memory.hpp"
#include "gradus/nn/network/step_hooks.hpp"
#include "gradus/nn/network/step_options.hpp"
#include "gradus/optim/schedule.hpp"
#include "gradus/optim/update_step.hpp"
#include "gradus/train/batch_runner.hpp"
#include "gradus/train/callback_state.hpp"
#include "gradus/train/detail/trainer/fit_checks.hpp"
#include "gradus/train/detail/trainer/not_finite.hpp"
#include "gradus/train/interrupted.hpp"
#include "gradus/train/optimizer_step.hpp"
#include "gradus/train/report.hpp"

namespace gradus::train::detail {

using clock = std::chrono::steady_clock;

inline double seconds_since(clock::time_point began) {
  return std::chrono::duration<double>(clock::now() - began).count();
}

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
  virtual void save_state(callback_state& state) = 0;
  virtual void load_state(callback_state& state) = 0;
  /// What all ranks have in common; empty: nothing.
  [[nodiscard]] virtual std::string agreement() const = 0;

  [[nodiscard]] any_callback* self() noexcept { return this; }  // of a temporary, within one expression

 protected:
  ~any_callback() = default;
};

using callback_list = std::initializer_list<any_callback*>;

/// What the callbacks of all ranks have in common.
[[nodiscard]] std::string agreement_of(callback_list callbacks);

/// If a rank fails, it sends its reason to the others.
/// @param statistics  of the network; all ranks take over those of rank 0
evaluation_report evaluate(batch_runner& data, comm::link& group, std::span<std::byte> statistics,
                           error_location where);

/// How far a training has come.
struct training_position {
  std::uint64_t steps = 0;     ///< done since the beginning
  std::uint64_t examples = 0;  ///< of these steps, over all ranks
  int epochs = 0;              ///< that have ended
  index_t step_in_epoch = 0;   ///< steps done of the next epoch
  loss_totals epoch;           ///< of these steps, of this rank
  double seconds = 0;          ///< that these steps took on this rank
};

class stepwise;

/// The state of a training: how far it has come.
class loop {
 public:
  [[nodiscard]] std::uint64_t steps() const noexcept { return position_.steps; }

  // For checkpoints: gradus/train/state.hpp.

  /// Differs from those of all other loops of this process.
  [[nodiscard]] std::uint64_t identity() const noexcept { return identity_; }
  /// In a callback, of the step or the epoch that the callback is called for: it is done.
  [[nodiscard]] const training_position& position() const noexcept { return position_; }
  /// The description of the loader of the last fit.
  [[nodiscard]] const std::string& loader() const noexcept { return loader_; }
  /// The description of its learning rate.
  [[nodiscard]] const std::string& learning_rate() const noexcept { return learning_rate_; }
  /// What the callbacks of the fit that goes on remember, or those of the last one did at its end.
  [[nodiscard]] const callback_state& callbacks();

  /// The next fit goes on from here: epochs that have ended count among the epochs of its options.
  /// @param loader      the description of the loader that the next fit must have; empty: of any
  /// @param remembered  what the callbacks of the next fit get
  void go_to(const training_position& position, const std::string& loader, callback_state remembered);
  /// The jobs whose checkpoints this training goes on from (io::checkpoint_family).
  std::string resumed_from = {};

  /// Whether go_to would change what a running fit does.
  [[nodiscard]] bool running() const noexcept { return callbacks_ != nullptr; }

  /// The averages of the weights have been exchanged with the weights. No step follows before they are again.
  void averages_were_exchanged() noexcept { averages_ = !averages_; }
  /// @throws configuration_error if the network has the averages of its weights
  void require_weights(std::string_view operation, error_location where) const {
    require_own_weights(operation, averages_, where);
  }

  /// The loader of the fit that goes on has begun other epochs in a callback: it goes back to the batch that comes
  /// next.
  void loader_was_used() noexcept { loader_was_used_ = true; }

  /// The epochs of one call of fit. If one ends in an exception, the other ranks get its message.
  /// @throws configuration_error when options make no sense or ranks differ
  void fit(batch_runner& data, optimizer_step& update, comm::link& group, const fit_properties& fit,
           callback_list callbacks);

 private:
  friend class stepwise;

  void check(comm::link& group, const fit_properties& fit, const std::string& agreement) const {
    require_same_fit(group, fit, averages_, agreement);
    require_loader_of_state(fit);
    require_same_replicas(group, fit);
  }

  /// @throws configuration_error on all ranks when parameters differ that are the same when a trainer has been made
  static void require_same_replicas(comm::link& group, const fit_properties& fit);

  void run_epochs(batch_runner& data, optimizer_step& update, comm::link& group, const fit_properties& fit,
                  callback_list callbacks);

  /// While a fit goes on, its callbacks can be asked what they remember.
  class in_fit {
   public:
    in_fit(loop& own, const callback_list& callbacks) noexcept : loop_{&own} { own.callbacks_ = &callbacks; }
    in_fit(const in_fit&) = delete;
    in_fit& operator=(const in_fit&) = delete;
    ~in_fit() { loop_->callbacks_ = nullptr; }

   private:
    loop* loop_;
  };

  /// On all ranks, whose loaders have been compared.
  /// @throws configuration_error when the training goes on from a state of another loader
  void require_loader_of_state(const fit_properties& fit) const;

  /// The first epoch of a fit: not 0 where the training goes on from a state.
  int begin(const fit_properties& fit, callback_list callbacks);

  /// @param ended  1, or 0 of an epoch that is forgotten
  void end_epoch(int ended) noexcept {
    position_.step_in_epoch = 0;
    position_.epoch = {};
    position_.seconds = 0;
    position_.epochs += ended;
  }

  /// The description of a loader without the number of ranks that share it.
  [[nodiscard]] static std::string_view without_ranks(std::string_view description) noexcept {
    return description.substr(0, description.rfind(", shared by "));
  }

  /// The epoch that goes on.
  struct open_epoch {
    epoch_report report;
    clock::time_point began = clock::now();  // this part of it, which follows `seconds_before`
    double seconds_before = 0;
  };

  /// @param epoch  its number in the fit
  open_epoch begin_epoch(batch_runner& data, const fit_properties& fit, int epoch) const {
    open_epoch begun{.report = {.epoch = epoch, .epochs = fit.run.epochs, .steps = position_.step_in_epoch}};
    begun.seconds_before = position_.seconds;
    data.start_epoch(static_cast<std::uint64_t>(position_.epochs), position_.step_in_epoch);
    return begun;
  }

  GRADUS_COLD epoch_report run_epoch(batch_runner& data, optimizer_step& update, comm::link& group,
                                     const fit_properties& fit, int epoch, callback_list callbacks) {
    open_epoch own = begin_epoch(data, fit, epoch);
    while (run_step(data, update, group, fit, own, callbacks)) {
    }
    return close_epoch(data, update, group, own);
  }

  /// A step of the epoch; false, without one, after its last.
  bool run_step(batch_runner& data, optimizer_step& update, comm::link& group, const fit_properties& fit,
                open_epoch& own, callback_list callbacks);

  /// To the batch that comes next, if a callback or the program has used the loader.
  void go_back_to_position(batch_runner& data) {
    if (loader_was_used_) {
      data.start_epoch(static_cast<std::uint64_t>(position_.epochs), position_.step_in_epoch);
      loader_was_used_ = false;
    }
  }

  epoch_report close_epoch(batch_runner& data, optimizer_step& update, comm::link& group, open_epoch& own);

  /// The callbacks of the end of an epoch. True if all ranks stop.
  static bool stops_after(epoch_report& report, comm::link& group, callback_list callbacks);

  /// Whether a rank says so; every rank gets the same answer.
  static bool any_rank(comm::link& group, bool says_so);

  [[nodiscard]] static std::uint64_t next_identity() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
  }

  std::uint64_t identity_ = next_identity();
  training_position position_;
  const callback_list* callbacks_ = nullptr;  // of the fit that goes on
  bool loader_was_used_ = false;              // by callbacks of the step
  bool averages_ = false;                     // in the place of the weights
  std::string loader_;                        // of the last fit
  std::string learning_rate_;
  // Of a state from which the next fit goes on.
  bool resumes_ = false;
  int epochs_before_ = 0;  // among the epochs of the next calls of fit
  std::string expected_loader_;
  callback_state remembered_;
};

}  // namespace gradus::train::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::train::detail {

GRADUS_INLINE evaluation_report evaluate(batch_runner& data, comm::link& group, std::span<std::byte> statistics,
                                         error_location where) {
  const auto began = clock::now();
  data.share_statistics(group, statistics);
  loss_totals total;
  batch_counts batch;
  try {
    at_call(where, [&] {
      data.start_epoch(0, 0);
      while (data.next(batch)) {
        total.add(data.evaluate(), batch.examples);
      }
    });
  } catch (const std::exception& failure) {
    group.fail(failure.what());
    throw;
  }
  data.sum_ranks(group, total);
  return {.loss = total.loss(),
          .accuracy = total.accuracy(),
          .labels = static_cast<index_t>(total.labels()),
          .examples = static_cast<index_t>(total.examples()),
          .seconds = seconds_since(began)};
}

GRADUS_INLINE std::string agreement_of(callback_list callbacks) {
  std::string all;
  for (const any_callback* const each : callbacks) {
    const std::string own = each->agreement();
    append_text(all, {all.empty() || own.empty() ? "" : ", ", own});
  }
  return all;
}

GRADUS_INLINE const callback_state& loop::callbacks() {
  if (callbacks_ != nullptr) {
    remembered_.clear();
    for (any_callback* const each : *callbacks_) {
      each->save_state(remembered_);
    }
  }
  return remembered_;
}

GRADUS_INLINE void loop::go_to(const training_position& position, const std::string& loader,
                               callback_state remembered) {
  position_ = position;
  epochs_before_ = position.epochs;
  resumes_ = true;
  expected_loader_ = loader;
  remembered_ = std::move(remembered);
  averages_ = false;
}

GRADUS_INLINE void loop::fit(batch_runner& data, optimizer_step& update, comm::link& group, const fit_properties& fit,
                             callback_list callbacks) {
  check(group, fit, agreement_of(callbacks));
  try {
    at_call(fit.where, [&, this] { run_epochs(data, update, group, fit, callbacks); });
  } catch (const interrupted&) {  // all ranks end alike
    throw;
  } catch (const std::exception& failure) {
    group.fail(failure.what());  // so that no rank waits for this one
    throw;
  }
}

GRADUS_INLINE void loop::require_same_replicas(comm::link& group, const fit_properties& fit) {
  if (fit.replicas == nullptr || group.size() == 1) {
    return;
  }
  if (const std::string difference = fit.replicas->first_difference(group); !difference.empty()) {
    raise<configuration_error>("trainer.fit", "the same values of parameters on all ranks", difference,
                               "change or load weights on all ranks alike, or before the trainer is made, which gives "
                               "all ranks those of rank 0; trainer.resume(folder) gives all ranks those of a "
                               "checkpoint",
                               fit.where);
  }
}

GRADUS_INLINE void loop::run_epochs(batch_runner& data, optimizer_step& update, comm::link& group,
                                    const fit_properties& fit, callback_list callbacks) {
  const int first = begin(fit, callbacks);
  if (first != 0 && first == fit.run.epochs) {
    return;  // all of it was done before the state was taken
  }
  const in_fit scope{*this, callbacks};
  for (any_callback* const each : callbacks) {
    each->on_start(fit.run);
  }
  for (int epoch = first; epoch < fit.run.epochs; ++epoch) {
    epoch_report report = run_epoch(data, update, group, fit, epoch, callbacks);
    if (stops_after(report, group, callbacks)) {
      break;
    }
  }
  for (any_callback* const each : callbacks) {
    each->on_finish();
  }
  static_cast<void>(this->callbacks());
}

GRADUS_INLINE void loop::require_loader_of_state(const fit_properties& fit) const {
  const std::string_view loader = without_ranks(fit.loader);
  if (resumes_ && epochs_before_ < fit.run.epochs && !expected_loader_.empty() && loader != expected_loader_) {
    raise<configuration_error>("trainer.fit after train::restore",
                               {"the loader of the training that goes on: ", expected_loader_}, loader,
                               "the same data set, batch size and seed give the examples that follow; "
                               "train::restore with {.same_loader = false} takes another one at the end of an epoch");
  }
}

GRADUS_INLINE int loop::begin(const fit_properties& fit, callback_list callbacks) {
  int first = 0;
  if (resumes_) {
    first = std::min(epochs_before_, fit.run.epochs);
    if (first == fit.run.epochs) {
      epochs_before_ -= first;
      return first;
    }
    for (any_callback* const each : callbacks) {
      each->load_state(remembered_);
    }
    epochs_before_ = 0;
    resumes_ = false;
  } else {
    end_epoch(0);  // that ended in an exception
  }
  loader_ = without_ranks(fit.loader);
  learning_rate_ = fit.learning_rate.description();
  return first;
}

GRADUS_INLINE bool loop::run_step(batch_runner& data, optimizer_step& update, comm::link& group,
                                  const fit_properties& fit, open_epoch& own, callback_list callbacks) {
  const run_information& run = fit.run;
  epoch_report& report = own.report;
  batch_counts batch;
  require_weights("trainer.fit", fit.where);  // a callback may have exchanged them
  const auto before_input = clock::now();
  const bool more = data.next(batch);
  report.input_seconds += seconds_since(before_input);
  if (!more) {
    return false;
  }
  const auto per_epoch = static_cast<std::uint64_t>(run.steps_per_epoch);
  const double rate = fit.learning_rate.at(
      {.step = static_cast<std::uint64_t>(position_.epochs) * per_epoch + static_cast<std::uint64_t>(report.steps),
       .steps_per_epoch = per_epoch});
  const nn::step_options options{.step = position_.steps,
                                 .first_example = batch.first_example,
                                 .global_examples = batch.global_examples,
                                 .loss_scale = update.scale_of_loss()};
  const kernels::loss_sums part = data.train_step(options, update);
  if (!is_finite(part.loss)) {
    raise_not_finite(data.first_not_finite(options), options, group.rank(), group.size(), report.epoch, part.loss,
                     rate);
  }
  const auto before_exchange = clock::now();
  update.update({rate, position_.steps});
  report.synchronization_seconds += seconds_since(before_exchange);
  const step_report step{.epoch = report.epoch,
                         .step_in_epoch = report.steps,
                         .steps_per_epoch = run.steps_per_epoch,
                         .step = position_.steps,
                         .global_examples = batch.global_examples,
                         .local_examples = batch.examples,
                         .local_loss = batch.examples > 0 ? part.loss / static_cast<double>(batch.examples) : 0.0,
                         .learning_rate = rate,
                         .gradient_norm = update.gradient_norm()};
  ++report.steps;
  position_.epoch.add(part, batch.examples);
  position_.step_in_epoch = report.steps;
  position_.examples += static_cast<std::uint64_t>(batch.global_examples);
  ++position_.steps;
  position_.seconds = own.seconds_before + seconds_since(own.began);
  loader_was_used_ = false;
  for (any_callback* const each : callbacks) {
    each->on_step(step);
  }
  go_back_to_position(data);
  return true;
}

GRADUS_INLINE epoch_report loop::close_epoch(batch_runner& data, optimizer_step& update, comm::link& group,
                                             open_epoch& own) {
  epoch_report& report = own.report;
  loss_totals total = position_.epoch;
  update.complete_update();
  data.sum_ranks(group, total);
  report.examples = static_cast<index_t>(total.examples());
  report.loss = total.loss();
  report.accuracy = total.accuracy();
  report.labels = static_cast<index_t>(total.labels());
  update.end_epoch(report);
  report.seconds = own.seconds_before + seconds_since(own.began);
  report.images_per_second = report.seconds > 0 ? total.examples() / report.seconds : 0.0;
  end_epoch(1);
  return report;
}

GRADUS_INLINE bool loop::stops_after(epoch_report& report, comm::link& group, callback_list callbacks) {
  bool stop = false;
  for (any_callback* const each : callbacks) {
    stop = each->on_epoch(report) || stop;
  }
  return any_rank(group, stop);
}

GRADUS_INLINE bool loop::any_rank(comm::link& group, bool says_so) {
  if (group.size() == 1) {
    return says_so;
  }
  double count[] = {says_so ? 1.0 : 0.0};
  group.sum(count);
  return count[0] > 0;
}

}  // namespace gradus::train::detail
#endif

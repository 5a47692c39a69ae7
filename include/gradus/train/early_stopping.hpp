// SPDX-License-Identifier: BSL-1.0
//
// Ends a training when the loss or another metric no longer improves.
#pragma once

#include <cstddef>      // std::size_t
#include <limits>       // std::numeric_limits
#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/train/callback_state.hpp"
#include "gradus/train/reduce_on_plateau.hpp"
#include "gradus/train/report.hpp"

namespace gradus::train {

/// Options of early_stopping.
struct early_stopping_options {
  int patience = 10;      ///< at least 1: epochs in a row without improvement after which training stops
  double threshold = 0;   ///< at least 0: the metric has to be better than the best one by more than this
  int first = 0;          ///< at least 0: epochs at the beginning in which no epoch is counted
  bool maximize = false;  ///< a larger metric is better
  double (*metric)(const epoch_report&) = loss_of;  ///< what is watched, the same on all ranks; or accuracy_of
};

/// A callback that stops a training on all ranks when a metric of the epochs has not improved for `patience` epochs
/// (Prechelt: "Early stopping - but when?", 1998). A callback that evaluates comes first.
///
///   train::early_stopping stop{{.patience = 5}};
///   trainer.fit(loader, {.epochs = 90}, train::evaluate_every{other}, stop,
///               train::checkpoints{"saves", {.best = train::best_epoch::loss}});
///   io::load_weights(net, io::find_best("saves").path);  // the weights of the best epoch
///
/// The weights stay those of the last epoch. With further calls of fit it goes on, with new patience after a stop; a
/// checkpoint has what it remembers. Patience and threshold are those of keras.callbacks.EarlyStopping.
class early_stopping {
 public:
  /// @throws configuration_error if an option is invalid
  explicit early_stopping(const early_stopping_options& options = {}, error_location where = error_location::current())
      : options_{options}, best_{options.maximize ? -infinity : infinity} {
    if (options_.patience < 1 || options_.first < 0) {
      raise<configuration_error>("early_stopping", "patience of at least 1 epoch, and first of at least 0",
                                 {"patience = ", options_.patience, ", first = ", options_.first}, {}, where);
    }
    if (!(options_.threshold >= 0.0) || !is_finite(options_.threshold)) {
      raise<configuration_error>("early_stopping", "a finite threshold of at least 0",
                                 {"threshold = ", options_.threshold}, {}, where);
    }
    if (options_.metric == nullptr) {
      raise<configuration_error>("early_stopping", "a metric", "a null pointer", "train::loss_of is the default",
                                 where);
    }
  }

  /// Takes the metric of an epoch into account. A metric that is NaN is no improvement.
  flow on_epoch(const epoch_report& report) {
    const double metric = options_.metric(report);
    const int epoch = epochs_++;
    if (options_.maximize ? metric > best_ + options_.threshold : metric < best_ - options_.threshold) {
      best_ = metric;
      best_epoch_ = epoch;
      bad_epochs_ = 0;
    } else if (epoch >= options_.first) {
      ++bad_epochs_;
    }
    stopped_ = bad_epochs_ >= options_.patience;
    if (stopped_) {
      bad_epochs_ = 0;
    }
    return stopped_ ? flow::stop : flow::go_on;
  }

  /// The best metric so far; infinite before the first epoch.
  [[nodiscard]] double best() const noexcept { return best_; }
  /// The epoch of the best metric, from 0 over all calls of fit; -1 before there is one.
  [[nodiscard]] int best_epoch() const noexcept { return best_epoch_; }
  /// Whether the last epoch ended the training.
  [[nodiscard]] bool stopped() const noexcept { return stopped_; }

  /// Stores what it has seen, for checkpoints.
  void save_state(callback_state& state) const {
    const double numbers[] = {best_, static_cast<double>(best_epoch_), static_cast<double>(bad_epochs_),
                              static_cast<double>(epochs_)};
    state.put(state_name, numbers);
  }
  /// Takes over what another object has stored.
  /// @throws format_error when it is something else; nothing has changed then
  void load_state(callback_state& state) {
    const std::span<const double> numbers = state.take(state_name);
    if (numbers.size() != 4) {  // a training without it
      return;
    }
    constexpr int most = 1'000'000'000;
    for (std::size_t i = 1; i < numbers.size(); ++i) {
      if (!(numbers[i] >= -1 && numbers[i] <= most)) {
        raise<format_error>("early_stopping.load_state", {"a number of epochs from -1 to ", most}, {numbers[i]},
                            "the state is damaged");
      }
    }
    best_ = numbers[0];
    best_epoch_ = static_cast<int>(numbers[1]);
    bad_epochs_ = static_cast<int>(numbers[2]);
    epochs_ = static_cast<int>(numbers[3]);
  }

 private:
  static constexpr std::string_view state_name = "early_stopping";
  static constexpr double infinity = std::numeric_limits<double>::infinity();

  early_stopping_options options_;
  double best_;
  int best_epoch_ = -1;
  int bad_epochs_ = 0;  // in a row
  int epochs_ = 0;      // that have ended
  bool stopped_ = false;
};

}  // namespace gradus::train

// SPDX-License-Identifier: BSL-1.0
//
// A learning rate that becomes smaller when the loss or another metric no longer improves.
#pragma once

#include <algorithm>    // std::max
#include <cstddef>      // std::size_t
#include <limits>       // std::numeric_limits
#include <memory>       // std::make_shared, std::shared_ptr
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/format.hpp"
#include "gradus/optim/schedule.hpp"
#include "gradus/train/callback_state.hpp"
#include "gradus/train/report.hpp"

namespace gradus::train {

/// The loss of the evaluation after an epoch, or where there is none that of training.
[[nodiscard]] inline double loss_of(const epoch_report& epoch) {
  return epoch.evaluation ? epoch.evaluation->loss : epoch.loss;
}
/// The accuracy of the evaluation after an epoch, or where there is none that of training.
[[nodiscard]] inline double accuracy_of(const epoch_report& epoch) {
  return epoch.evaluation ? epoch.evaluation->accuracy : epoch.accuracy;
}

/// Options of reduce_on_plateau. The defaults are those of torch.optim.lr_scheduler.ReduceLROnPlateau.
struct reduce_on_plateau_options {
  double initial = 0.1;             ///< the learning rate of the first epoch, at least 0
  double factor = 0.1;              ///< in [0, 1): factor of the learning rate when the metric no longer improves
  int patience = 10;                ///< at least 0: epochs without improvement that are tolerated
  double threshold = 1e-4;          ///< at least 0: the least improvement that counts, relative to the best metric
  bool absolute_threshold = false;  ///< the threshold is not relative
  int cooldown = 0;                 ///< at least 0: epochs after a reduction in which none is counted
  double minimum = 0;               ///< at least 0: lower limit of the learning rate
  bool maximize = false;            ///< a larger metric is better
  double (*metric)(const epoch_report&) = loss_of;  ///< what is watched, the same on all ranks; or accuracy_of
};

/// A learning-rate schedule that is also a callback: it watches a metric of the epochs, and multiplies the learning
/// rate by a factor when the metric has not improved for more than `patience` epochs. Give the same object to fit
/// twice; copies share what they have seen. A callback that evaluates comes first.
///
///   train::reduce_on_plateau rate{{.initial = 0.1, .patience = 3}};
///   trainer.fit(loader, {.epochs = 90, .learning_rate = rate}, train::evaluate_every{other}, rate);
///
/// The metrics of a report are the same on all ranks, so the learning rates are too. One object is for one trainer;
/// with further calls of fit it goes on. This is torch.optim.lr_scheduler.ReduceLROnPlateau, stepped once an epoch.
class reduce_on_plateau {
 public:
  /// @throws configuration_error if an option is invalid
  explicit reduce_on_plateau(const reduce_on_plateau_options& options = {},
                             error_location where = error_location::current())
      : options_{at_call(where, [&] { return checked(options); })},
        seen_{std::make_shared<history>(history{.best = options.maximize ? -infinity : infinity,
                                                .changes = {{.epoch = 0, .rate = options.initial}}})} {}

  /// The learning rate at this epoch. Later epochs may still get another one.
  [[nodiscard]] double operator()(double epoch) const noexcept {
    double rate = options_.initial;
    for (const change& each : seen_->changes) {
      rate = epoch >= each.epoch ? each.rate : rate;
    }
    return rate;
  }

  /// A text that identifies the options, except for the metric.
  [[nodiscard]] std::string description() const {
    char text[200];
    format_text(text, sizeof(text), "reduce_on_plateau(%.17g, %.17g, %d, %.17g%s, %d, %.17g%s)", options_.initial,
                options_.factor, options_.patience, options_.threshold, options_.absolute_threshold ? " absolute" : "",
                options_.cooldown, options_.minimum, options_.maximize ? ", maximize" : "");
    return text;
  }

  /// Takes the metric of an epoch into account.
  void on_epoch(const epoch_report& report) {
    history& seen = *seen_;
    const double metric = options_.metric(report);
    seen.epochs += 1;
    if (is_better(metric)) {
      seen.best = metric;
      seen.bad_epochs = 0;
    } else {
      ++seen.bad_epochs;
    }
    if (seen.cooldown > 0) {
      --seen.cooldown;
      seen.bad_epochs = 0;
    }
    if (seen.bad_epochs > options_.patience) {
      const double old = seen.changes.back().rate;
      const double rate = std::max(options_.minimum, old * options_.factor);
      if (old - rate > least_change) {
        seen.changes.push_back({.epoch = seen.epochs, .rate = rate});
      }
      seen.cooldown = options_.cooldown;
      seen.bad_epochs = 0;
    }
  }

  /// Stores what it has seen, for checkpoints.
  void save_state(callback_state& state) const {
    const history& seen = *seen_;
    std::vector<double> numbers{seen.best, static_cast<double>(seen.bad_epochs), static_cast<double>(seen.cooldown),
                                seen.epochs};
    for (const change& each : seen.changes) {
      numbers.push_back(each.epoch);
      numbers.push_back(each.rate);
    }
    state.put(state_name, numbers);
  }
  /// Takes over what another object has stored. Copies get it too.
  /// @throws format_error when it is something else; nothing has changed then
  void load_state(callback_state& state) {
    const std::span<const double> numbers = state.take(state_name);
    if (numbers.size() < 6) {  // a training without it
      return;
    }
    const auto epochs = [](double number) {
      constexpr int most = 1'000'000'000;
      if (!(number >= 0 && number <= most)) {
        raise<format_error>("reduce_on_plateau.load_state", {"a number of epochs from 0 to ", most}, {number},
                            "the state is damaged");
      }
      return static_cast<int>(number);
    };
    const int bad_epochs = epochs(numbers[1]);
    const int cooldown = epochs(numbers[2]);
    history& seen = *seen_;
    seen.best = numbers[0];
    seen.bad_epochs = bad_epochs;
    seen.cooldown = cooldown;
    seen.epochs = numbers[3];
    seen.changes.clear();
    for (std::size_t i = 4; i + 1 < numbers.size(); i += 2) {
      seen.changes.push_back({.epoch = numbers[i], .rate = numbers[i + 1]});
    }
  }

 private:
  static constexpr std::string_view state_name = "reduce_on_plateau";
  static constexpr double infinity = std::numeric_limits<double>::infinity();
  static constexpr double least_change = 1e-8;  // of the learning rate; smaller changes are not made

  /// The rate from an epoch on.
  struct change {
    double epoch = 0;
    double rate = 0;
  };
  struct history {
    double best = infinity;
    int bad_epochs = 0;  // since the metric improved, or the rate was reduced
    int cooldown = 0;
    double epochs = 0;  // that have ended
    std::vector<change> changes;
  };

  [[nodiscard]] bool is_better(double metric) const noexcept {
    const double best = seen_->best;
    const double sign = options_.maximize ? 1.0 : -1.0;
    const double least =
        options_.absolute_threshold ? best + sign * options_.threshold : best * (1.0 + sign * options_.threshold);
    return options_.maximize ? metric > least : metric < least;
  }

  static const reduce_on_plateau_options& checked(const reduce_on_plateau_options& options) {
    constexpr std::string_view name = "reduce_on_plateau";
    for (const double rate : {options.initial, options.minimum}) {
      if (!(rate >= 0.0) || !is_finite(rate)) {
        raise<configuration_error>(name, "finite learning rates of at least 0",
                                   {"initial = ", options.initial, ", minimum = ", options.minimum});
      }
    }
    if (!(options.factor >= 0.0 && options.factor < 1.0)) {
      raise<configuration_error>(name, "a factor in [0, 1)", {"factor = ", options.factor}, "0.1 is the usual value");
    }
    if (!(options.threshold >= 0.0) || !is_finite(options.threshold)) {
      raise<configuration_error>(name, "a finite threshold of at least 0", {"threshold = ", options.threshold},
                                 "0.0001 is the usual value");
    }
    if (options.patience < 0 || options.cooldown < 0) {
      raise<configuration_error>(name, "patience and cooldown of at least 0 epochs",
                                 {options.patience, " and ", options.cooldown});
    }
    if (options.metric == nullptr) {
      raise<configuration_error>(name, "a metric", "a null pointer", "train::loss_of is the default");
    }
    return options;
  }

  reduce_on_plateau_options options_;
  std::shared_ptr<history> seen_;
};
static_assert(optim::learning_rate_schedule<reduce_on_plateau>);

}  // namespace gradus::train

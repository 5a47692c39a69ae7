// SPDX-License-Identifier: BSL-1.0
//
// A callback that evaluates on another data set.
#pragma once

#include <type_traits>  // std::remove_reference_t

#include "gradus/core/error.hpp"
#include "gradus/core/reference.hpp"
#include "gradus/train/report.hpp"

namespace gradus::train {

/// A callback that evaluates on another data set every `every` epochs, and after the last; it fills
/// epoch_report::evaluation, so put it before callbacks that show it.
///
/// The ranks share the work, and all get the result.
template <class Loader>
class evaluate_every {
 public:
  /// @param loader  batches of the other data set; it must outlive the callback
  /// @param every   epochs from one evaluation to the next
  /// @throws configuration_error if `every` is below 1
  explicit evaluate_every(borrowed<Loader> loader, int every = 1, error_location where = error_location::current())
      : loader_{&loader.get()}, every_{every} {
    if (every < 1) {
      raise<configuration_error>("evaluate_every", "every at least 1 epoch", {every}, {}, where);
    }
  }

  /// Sets report.evaluation after each `every` epochs and after the last one. All ranks that train call it.
  template <class Trainer>
  void on_epoch(Trainer& trainer, epoch_report& report) {
    const bool due = (report.epoch + 1) % every_ == 0 || report.epoch + 1 == report.epochs;
    if (due) {
      report.evaluation = trainer.evaluate(*loader_);
    }
  }

 private:
  Loader* loader_;
  int every_;
};

template <class Loader>
evaluate_every(Loader&&, int = 1, error_location = error_location::current())
    -> evaluate_every<std::remove_reference_t<Loader>>;

}  // namespace gradus::train

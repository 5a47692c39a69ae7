// SPDX-License-Identifier: BSL-1.0
//
// The loop of a training that goes on step by step, in calls of the program.
#pragma once

#include <chrono>     // std::chrono::nanoseconds
#include <exception>  // std::exception
#include <optional>   // std::optional
#include <string>     // std::string

#include "gradus/comm/link.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/train/batch_runner.hpp"
#include "gradus/train/detail/trainer/loop.hpp"
#include "gradus/train/interrupted.hpp"
#include "gradus/train/optimizer_step.hpp"
#include "gradus/train/report.hpp"

namespace gradus::train::detail {

/// How far a training is that goes on step by step. It makes the steps of a fit, and calls the callbacks where fit
/// does.
class stepwise {
 public:
  /// Called by all ranks.
  /// @param agreement  what the callbacks of all ranks have in common
  /// @throws configuration_error when options make no sense, or ranks differ
  stepwise(loop& progress, comm::link& group, const fit_properties& fit, const std::string& agreement)
      : loop_{&progress} {
    loop_->check(group, fit, agreement);
  }

  /// What the arguments of a call are in all of them.
  struct parts {
    batch_runner& data;
    optimizer_step& update;
    comm::link& group;
    const fit_properties& fit;
    callback_list callbacks;
  };

  /// Trains at most `most` steps: any_session::train.
  steps_report train(const parts& of, index_t most, std::optional<std::chrono::nanoseconds> budget) {
    const auto began = clock::now();
    if (failed_) {
      raise<configuration_error>("trainer.train_steps", "a training that goes on", "one that has ended by an error",
                                 "call trainer.start again", of.fit.where);
    }
    try {
      return at_call(of.fit.where, [&, this] {
        const loop::in_fit scope{*loop_, of.callbacks};
        begin(of);
        steps_report report;
        double loss = 0;
        double examples = 0;
        const auto in_time = [&] { return !budget || !loop::any_rank(of.group, clock::now() - began >= *budget); };
        while (!over_ && report.steps != most && in_time()) {
          step(of);
          const loss_totals& epoch = loop_->position_.epoch;
          loss += epoch.values[0] - before_.values[0];
          examples += epoch.values[2] - before_.values[2];
          ++report.steps;
          end_epoch(of);
        }
        of.update.complete_update();
        static_cast<void>(loop_->callbacks());
        report.local_loss = examples > 0 ? loss / examples : 0.0;
        report.seconds = seconds_since(began);
        report.over = over_;
        return report;
      });
    } catch (const interrupted&) {  // all ranks end alike
      failed_ = true;
      throw;
    } catch (const std::exception& failure) {
      failed_ = true;
      of.group.fail(failure.what());
      throw;
    }
  }

  /// Calls on_finish, once.
  void finish(const parts& of) {
    if (begun_ && !over_ && !failed_) {
      const loop::in_fit scope{*loop_, of.callbacks};
      end(of);
    }
  }

 private:
  /// The begin of a call: of the first one, after a restore, or after others.
  void begin(const parts& of) {
    if (!begun_ || loop_->resumes_) {
      const bool first_call = !begun_;
      number_ = loop_->begin(of.fit, of.callbacks);
      epoch_.reset();
      begun_ = true;
      over_ = number_ >= of.fit.run.epochs && (number_ != 0 || of.fit.run.epochs == 0);
      for (any_callback* const each : of.callbacks) {
        if (first_call && !over_) {
          each->on_start(of.fit.run);
        }
      }
    }
    if (epoch_) {
      epoch_->began = clock::now();
      epoch_->seconds_before = loop_->position_.seconds;
      loop_->go_back_to_position(of.data);
    }
  }

  void step(const parts& of) {
    if (!epoch_) {
      epoch_ = loop_->begin_epoch(of.data, of.fit, number_);
    }
    before_ = loop_->position_.epoch;
    if (!loop_->run_step(of.data, of.update, of.group, of.fit, *epoch_, of.callbacks)) {
      raise<configuration_error>("trainer.train_steps", {of.fit.run.steps_per_epoch, " batches of an epoch"},
                                 {epoch_->report.steps}, "a loader of your own gives steps_per_epoch() batches");
    }
  }

  /// If the step was the last one of an epoch.
  void end_epoch(const parts& of) {
    if (epoch_->report.steps < of.fit.run.steps_per_epoch) {
      return;
    }
    epoch_report report = loop_->close_epoch(of.data, of.update, of.group, *epoch_);
    epoch_.reset();
    ++number_;
    if (loop::stops_after(report, of.group, of.callbacks) || number_ == of.fit.run.epochs) {
      end(of);
    }
  }

  void end(const parts& of) {
    over_ = true;
    for (any_callback* const each : of.callbacks) {
      each->on_finish();
    }
  }

  loop* loop_;
  std::optional<loop::open_epoch> epoch_;  // that goes on
  loss_totals before_;                     // of the epoch, before the last step
  int number_ = 0;                         // of the epoch
  bool begun_ = false;
  bool over_ = false;
  bool failed_ = false;
};

}  // namespace gradus::train::detail

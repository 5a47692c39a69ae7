// SPDX-License-Identifier: BSL-1.0
//
// Progress of a training for people: a bar on a terminal, a line an epoch elsewhere.
// Module: train. Depends on: std.
#pragma once

#include <algorithm>  // std::clamp, std::max
#include <chrono>     // std::chrono::steady_clock
#include <cstddef>    // std::size_t
#include <cstdio>     // std::snprintf
#include <ostream>    // std::ostream
#include <string>     // std::string

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>  // isatty, STDOUT_FILENO
#endif

#include "gradus/core/index.hpp"    // index_t
#include "gradus/train/report.hpp"  // epoch_report, run_information, step_report

namespace gradus::train {

/// Whether the standard output is a terminal, on systems that can tell.
[[nodiscard]] inline bool output_is_terminal() noexcept {
#if defined(__unix__) || defined(__APPLE__)
  return isatty(STDOUT_FILENO) == 1;
#else
  return false;
#endif
}

/// How progress is shown.
struct progress_options {
  bool terminal = output_is_terminal();  ///< draw a bar that moves; otherwise one line an epoch
  double lines_every_seconds = 0;  ///< without a terminal: also a line in an epoch when this long has passed; 0: none
};

/// A callback that shows a training's progress on rank 0, and nothing on the others.
///
/// On a terminal it redraws one line at most ten times a second; elsewhere it writes one line an epoch. A step costs it
/// the reading of a clock.
class progress {
 public:
  explicit progress(std::ostream& out, progress_options options = {}) : out_{&out}, options_{options} {}

  void on_start(const run_information& run) {
    run_ = run;
    shown_ = clock::now();
    epoch_began_ = shown_;
  }

  void on_step(const step_report& step) {
    if (run_.rank != 0) {
      return;
    }
    const clock::time_point now = clock::now();
    if (step.step_in_epoch == 0) {
      epoch_began_ = now;
      examples_ = 0;
    } else {
      examples_ += step.global_examples;
    }
    const double since = std::chrono::duration<double>(now - shown_).count();
    const bool last = step.step_in_epoch + 1 == step.steps_per_epoch;
    if (options_.terminal ? (since < 0.1 && !last)
                          : (options_.lines_every_seconds <= 0 || since < options_.lines_every_seconds || last)) {
      return;
    }
    shown_ = now;
    const double seconds = std::chrono::duration<double>(now - epoch_began_).count();
    show_step(step, seconds > 0 ? static_cast<double>(examples_) / seconds : 0.0);
  }

  void on_epoch(const epoch_report& epoch) {
    if (run_.rank != 0) {
      return;
    }
    if (options_.terminal) {
      *out_ << "\r\x1b[K";
    }
    char line[200];
    std::snprintf(line, sizeof(line), "epoch %d/%d: loss %.4f, accuracy %.4f, %.0f images/s, %.1f s", epoch.epoch + 1,
                  epoch.epochs, epoch.loss, epoch.accuracy, epoch.images_per_second, epoch.seconds);
    *out_ << line;
    if (epoch.evaluation) {
      std::snprintf(line, sizeof(line), "; test loss %.4f, test accuracy %.4f", epoch.evaluation->loss,
                    epoch.evaluation->accuracy);
      *out_ << line;
    }
    *out_ << '\n' << std::flush;
  }

 private:
  using clock = std::chrono::steady_clock;

  void show_step(const step_report& step, double images_per_second) {
    const double share = static_cast<double>(step.step_in_epoch + 1) / static_cast<double>(step.steps_per_epoch);
    char line[200];
    if (options_.terminal) {
      constexpr int width = 28;
      const int filled = std::clamp(static_cast<int>(share * width), 0, width);
      const std::string bar = std::string(static_cast<std::size_t>(filled), '=') + (filled < width ? ">" : "") +
                              std::string(static_cast<std::size_t>(std::max(0, width - filled - 1)), ' ');
      const double left =
          images_per_second > 0 ? (1 - share) * static_cast<double>(run_.examples_per_epoch) / images_per_second : 0.0;
      std::snprintf(line, sizeof(line), "\r\x1b[Kepoch %d/%d [%s] %3.0f%%  loss %.4f  %.0f images/s  %.0f s left",
                    step.epoch + 1, run_.epochs, bar.c_str(), 100 * share, step.local_loss, images_per_second, left);
      *out_ << line << std::flush;
    } else {
      std::snprintf(line, sizeof(line), "epoch %d/%d, step %td/%td: loss %.4f, %.0f images/s", step.epoch + 1,
                    run_.epochs, step.step_in_epoch + 1, step.steps_per_epoch, step.local_loss, images_per_second);
      *out_ << line << '\n' << std::flush;
    }
  }

  std::ostream* out_;
  progress_options options_;
  run_information run_;
  index_t examples_ = 0;
  clock::time_point shown_;
  clock::time_point epoch_began_;
};

}  // namespace gradus::train

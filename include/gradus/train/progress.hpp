// SPDX-License-Identifier: BSL-1.0
//
// Progress of a training for people: a bar on a terminal, a line an epoch elsewhere.
#pragma once

#include <algorithm>  // std::clamp
#include <chrono>     // std::chrono::steady_clock
#include <cstdio>     // std::FILE, std::fflush, stdout, std::fputc, std::fputs

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>  // isatty, STDOUT_FILENO
#endif

#include "gradus/comm/command_line.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/unoptimized.hpp"
#include "gradus/train/report.hpp"

namespace gradus::train {

/// Whether the standard output is a terminal of a user's, on systems that can tell. Not that of a process of an MPI
/// job: launchers may give each a terminal of its own, whose lines they pass on.
[[nodiscard]] inline bool output_is_terminal() noexcept {
#if defined(__unix__) || defined(__APPLE__)
  return isatty(STDOUT_FILENO) == 1 && !comm::started_by_launcher();
#else
  return false;
#endif
}

/// How progress is shown.
struct progress_options {
  std::FILE* output = stdout;            ///< stays the caller's; must be open as long as the callback exists
  bool terminal = output_is_terminal();  ///< draw a bar that moves; otherwise one line an epoch
  double lines_every_seconds = 0;  ///< without a terminal: also a line in an epoch when this long has passed; 0: none
};

/// A callback that shows a training's progress on rank 0, and nothing on the others.
///
///   trainer.fit(loader, {.epochs = 2}, train::progress{});
///
/// On a terminal it redraws one line at most ten times a second; elsewhere it writes one line an epoch. Nothing is
/// written before all ranks have agreed on what to train, and if an error ends an epoch, its destructor ends the line.
/// Each rank has a callback of its own. Where the targets are real numbers no accuracy is shown: there is none. A step
/// costs it the reading of a clock. The first training of a program that was compiled without optimization begins with
/// a line that says so.
class progress {
 public:
  /// Shows progress as `options` say.
  explicit progress(progress_options options = {}) : options_{options} {}

  /// Begins a training. The first call of a program on rank 0 writes a line if it was compiled without optimization.
  void on_start(const run_information& run);

  /// On rank 0, redraws the bar or writes a line if enough time has passed; see progress_options.
  void on_step(const step_report& step);

  /// On rank 0, writes the line of the epoch: loss, accuracy, images/s and seconds; evaluation with its metrics, and
  /// loss scale, if set.
  void on_epoch(const epoch_report& epoch);

 private:
  using clock = std::chrono::steady_clock;

  /// A bar whose line has not ended: the message of an error begins a line of its own.
  class open_line {
   public:
    open_line() = default;
    open_line(const open_line& /*other*/) noexcept {}  // only one of them ends the line
    open_line& operator=(const open_line& /*other*/) noexcept { return *this; }
    ~open_line() {
      if (output_ != nullptr) {
        std::fputc('\n', output_);
        std::fflush(output_);
      }
    }
    void begin(std::FILE* output) noexcept { output_ = output; }
    void ended() noexcept { output_ = nullptr; }

   private:
    std::FILE* output_ = nullptr;
  };

  [[nodiscard]] const char* clear_line() const noexcept { return options_.terminal ? "\r\x1b[K" : ""; }

  /// Losses of real targets may be small: they are shown with significant digits, and there is no accuracy.
  void show_results(const char* of, double loss, double accuracy, index_t labels) const;

  void show_step(const step_report& step, double images_per_second);

  progress_options options_;
  run_information run_;
  open_line bar_;
  index_t examples_ = 0;
  clock::time_point shown_;
  clock::time_point epoch_began_;
};

}  // namespace gradus::train

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::train {

GRADUS_INLINE void progress::on_start(const run_information& run) {
  run_ = run;
  if (const char* const note = run.rank == 0 ? note_of_unoptimized() : nullptr; note != nullptr) {
    print_text(options_.output, "%s\n", note);
    std::fflush(options_.output);
  }
  shown_ = clock::now();
  epoch_began_ = shown_;
}

GRADUS_INLINE void progress::on_step(const step_report& step) {
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

GRADUS_INLINE void progress::on_epoch(const epoch_report& epoch) {
  if (run_.rank != 0) {
    return;
  }
  bar_.ended();
  print_text(options_.output, "%sepoch %d/%d: ", clear_line(), epoch.epoch + 1, epoch.epochs);
  show_results("", epoch.loss, epoch.accuracy, epoch.labels);
  print_text(options_.output, ", %.0f images/s, %.1f s", epoch.images_per_second, epoch.seconds);
  if (epoch.evaluation) {
    std::fputs("; ", options_.output);
    show_results("test ", epoch.evaluation->loss, epoch.evaluation->accuracy, epoch.evaluation->labels);
    if (!epoch.evaluation->metrics.empty()) {
      print_text(options_.output, ", %s", epoch.evaluation->metrics.c_str());
    }
  }
  if (epoch.loss_scale) {
    print_text(options_.output, "; loss scale %g, %td steps skipped", epoch.loss_scale->scale,
               epoch.loss_scale->skipped_steps);
  }
  std::fputc('\n', options_.output);
  std::fflush(options_.output);
}

GRADUS_INLINE void progress::show_results(const char* of, double loss, double accuracy, index_t labels) const {
  if (labels > 0) {
    print_text(options_.output, "%sloss %.4f, %saccuracy %.4f", of, loss, of, accuracy);
  } else {
    print_text(options_.output, "%sloss %.6g", of, loss);
  }
}

GRADUS_INLINE void progress::show_step(const step_report& step, double images_per_second) {
  const double share = static_cast<double>(step.step_in_epoch + 1) / static_cast<double>(step.steps_per_epoch);
  if (options_.terminal) {
    bar_.begin(options_.output);
    constexpr int width = 28;
    const int filled = std::clamp(static_cast<int>(share * width), 0, width);
    char bar[width + 1] = {};
    for (int i = 0; i < width; ++i) {
      bar[i] = i < filled ? '=' : i == filled ? '>' : ' ';
    }
    const double left =
        images_per_second > 0 ? (1 - share) * static_cast<double>(run_.examples_per_epoch) / images_per_second : 0.0;
    print_text(options_.output, "%sepoch %d/%d [%s] %3.0f%%  loss %.4f  %.0f images/s  %.0f s left", clear_line(),
               step.epoch + 1, run_.epochs, bar, 100 * share, step.local_loss, images_per_second, left);
  } else {
    print_text(options_.output, "epoch %d/%d, step %td/%td: loss %.4f, %.0f images/s\n", step.epoch + 1, run_.epochs,
               step.step_in_epoch + 1, step.steps_per_epoch, step.local_loss, images_per_second);
  }
  std::fflush(options_.output);
}

}  // namespace gradus::train
#endif

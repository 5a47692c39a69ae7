// SPDX-License-Identifier: BSL-1.0
//
// Times the parts of every step from outside of them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

#include "gradus/kernels/conv2d.hpp"
#include "gradus/train/forwarding_step.hpp"
#include "gradus/train/optimizer_step.hpp"
#include "gradus/train/report.hpp"
#include "marks.hpp"
#include "result.hpp"

namespace driver {

/// The times of one step, in seconds. On a GPU forward, backward and update are times of the GPU.
struct step_times {
  double step = 0;
  double input = 0;     // until the first layer begins
  double forward = 0;   // the layers
  double backward = 0;  // the loss and the layers
  double update = 0;    // the update rule
  double exchange = 0;  // began transfers, and stood still until they and the other ranks were done
  double loss = 0;
};

/// Stands between a network and the end of its step, and reads the clock when they speak; also a callback. It costs a
/// step some clock readings, and keeps the measured steps in memory that was taken before.
class step_watch : public gradus::train::forwarding_step {
  using clock = std::chrono::steady_clock;

 public:
  /// @param inner  the end of the step
  /// @param first  steps of an epoch that are not kept
  step_watch(gradus::train::optimizer_step& inner, std::size_t first, std::size_t kept)
      : forwarding_step{inner}, first_{first}, warm_up_{first} {
    steps_.reserve(kept);
  }

  /// Marks of a device that works while the host goes on, or null, and the number of layers.
  struct device_times {
    device_marks* marks = nullptr;
    std::size_t layers = 0;
    /// Layers run forward and backward by turns, for several micro-batches, and wait for other ranks between them.
    bool in_stages = false;
  };

  /// `rule_seconds` is what the update rule adds its time to.
  void attach(const double& rule_seconds, const device_times& device) {
    rule_seconds_ = &rule_seconds;
    device_ = device;
  }

  [[nodiscard]] const std::vector<step_times>& steps() const noexcept { return steps_; }

  /// The first epoch goes on at a step: steps that are not kept come first, and at least one is kept.
  /// @param all  steps of an epoch
  /// @return     steps until the first one that is kept; where the epoch has no more, those of the next one
  gradus::index_t begin_at(std::size_t step, std::size_t all) {
    began_at_ = step;
    ended_before_ = step >= all;
    if (!ended_before_ && step != 0) {
      first_ = std::min(step + warm_up_, all - 1);
    }
    return static_cast<gradus::index_t>(ended_before_ ? warm_up_ : first_ - step);
  }
  /// Before the first step.
  void begin() {
    if (!ended_before_) {
      begin_epoch();
    }
  }

  void before_layer(std::size_t layer, gradus::nn::phase which) override {
    if (!began_) {
      began_ = true;
      now_.input = device_.in_stages && layer > 0 ? 0 : between(clock::now());  // later stages wait for values
      if (!device_.in_stages) {
        mark(step_mark::first_layer);
      }
    }
    // It may wait for the parameters of the layer.
    timed(now_.exchange, [&, this] { forwarding_step::before_layer(layer, which); });
  }
  void after_layer(std::size_t layer, gradus::nn::phase which) override {
    forwarding_step::after_layer(layer, which);
    if (which == gradus::nn::phase::forward) {
      forward_end_ = clock::now();
      forward_exchange_ = now_.exchange;
      if (layer + 1 == device_.layers && !device_.in_stages) {
        mark(step_mark::last_layer);
      }
    }
  }
  /// Is timed as a layer that computes.
  void skip_layer(std::size_t layer) override { gradus::nn::step_hooks::skip_layer(layer); }
  void before_pass(gradus::nn::stage_pass which, std::size_t stage, std::size_t micro_batch) override {
    forwarding_step::before_pass(which, stage, micro_batch);
    if (device_.marks != nullptr) {
      device_.marks->begin_pass(marked_, which == gradus::nn::stage_pass::forward);
    }
    pass_ = which;
    exchange_before_pass_ = now_.exchange;
    pass_began_ = clock::now();
  }
  /// A pass is the layers of a stage, and the loss; waits for other stages are outside of it.
  void after_pass() override {
    const double exchange = now_.exchange - exchange_before_pass_;
    (pass_ == gradus::nn::stage_pass::forward ? now_.forward : now_.backward) +=
        seconds(pass_began_, clock::now()) - exchange;
    if (device_.marks != nullptr) {
      device_.marks->end_pass(marked_);
    }
    forwarding_step::after_pass();
  }
  void gradients_ready(std::size_t first, std::size_t count) override {
    timed(now_.exchange, [&, this] { forwarding_step::gradients_ready(first, count); });
  }
  void update(const gradus::optim::update_step& step) override {
    const clock::time_point before = clock::now();
    const double input = now_.input;
    if (device_.in_stages) {
      now_.exchange = seconds(step_began_, before) - input - now_.forward - now_.backward;
    } else {
      now_.forward = seconds(step_began_, forward_end_) - input - forward_exchange_;
      now_.backward = seconds(forward_end_, before) - (now_.exchange - forward_exchange_);
    }
    mark(step_mark::update);
    timed(now_.exchange, [&, this] { forwarding_step::update(step); });
    mark(step_mark::end);
  }

  void on_start(const gradus::train::run_information& /*run*/) { step_began_ = clock::now(); }
  void on_step(const gradus::train::step_report& report) {
    const auto number = static_cast<std::size_t>(report.step_in_epoch);
    if (number >= first_) {
      now_.step = between(clock::now());
      now_.update = *rule_seconds_ - rule_seconds_before_;
      now_.exchange -= now_.update;  // it runs inside
      now_.loss = report.local_loss;
      if (unread_) {
        read_marks(marked_ - 1);  // of the step before: it is done, because the loss of this one is there
      }
      steps_.push_back(now_);
      unread_ = device_.marks != nullptr;
      ended(number - first_);
    }
    if (number + 1 == first_) {
      warmed_up();
    }
    ++marked_;
    now_ = {};
    began_ = false;
    forward_exchange_ = 0;
    rule_seconds_before_ = *rule_seconds_;
    step_began_ = clock::now();
  }
  void on_epoch(gradus::train::epoch_report& report) {
    if (!ended_before_) {
      end_epoch_of_kept(report);
    }
    ended_before_ = false;
    began_at_ = 0;
    first_ = warm_up_;
    if (report.epoch + 1 < report.epochs) {
      begin_epoch();
    }
  }

 protected:
  ~step_watch() = default;

  /// A step that is kept has ended. `step` counts them from 0 in each epoch.
  virtual void ended(std::size_t step) = 0;
  /// The steps that are not kept are over: the next one counts.
  virtual void warmed_up() = 0;
  /// Steps that are not kept begin.
  virtual void warming_up() = 0;
  /// An epoch with steps that are kept has ended.
  virtual void end_epoch_of_kept(gradus::train::epoch_report& report) = 0;

  /// An epoch has ended: waits for the device, and reads its marks of the last step.
  void read_marks_of_last() {
    if (marked_ > 0) {
      read_marks(marked_ - 1);
      unread_ = false;
    }
  }

 private:
  void begin_epoch() {
    warming_up();
    if (first_ == began_at_) {
      warmed_up();
    }
  }

  static double seconds(clock::time_point from, clock::time_point to) noexcept {
    return std::chrono::duration<double>(to - from).count();
  }
  [[nodiscard]] double between(clock::time_point to) const noexcept { return seconds(step_began_, to); }

  void mark(step_mark which) {
    if (device_.marks != nullptr) {
      device_.marks->set(marked_, which);
    }
  }
  /// The times of the last step that was kept are those of the device; the exchange is at most what they leave.
  void read_marks(std::size_t step) {
    if (device_.marks == nullptr || steps_.empty()) {
      return;
    }
    step_times& kept = steps_.back();
    const auto [forward, backward, update] = device_.marks->seconds(step);
    kept.forward = forward;
    kept.backward = backward;
    kept.update = update;
    kept.exchange = std::min(kept.exchange, kept.step - kept.input - forward - backward - update);
  }

  template <class Call>
  void timed(double& sum, const Call& call) {
    const clock::time_point before = clock::now();
    call();
    sum += seconds(before, clock::now());
  }

  std::size_t first_;         // that is kept, of this epoch
  std::size_t warm_up_;       // the same of an epoch that begins with its first step
  std::size_t began_at_ = 0;  // the first step of this epoch
  bool ended_before_ = false;
  std::vector<step_times> steps_;
  const double* rule_seconds_ = nullptr;
  device_times device_;
  std::size_t marked_ = 0;  // steps
  bool unread_ = false;     // the marks of the last step that was kept
  step_times now_;
  bool began_ = false;
  clock::time_point step_began_;
  clock::time_point forward_end_;
  clock::time_point pass_began_;
  gradus::nn::stage_pass pass_{};
  double exchange_before_pass_ = 0;
  double forward_exchange_ = 0;  // the part of now_.exchange that was before forward_end_
  double rule_seconds_before_ = 0;
};

}  // namespace driver

// SPDX-License-Identifier: BSL-1.0
//
// Records the time of the update rule in a step.
#pragma once

#include <cstdint>  // std::int64_t

#include "gradus/comm/watch.hpp"
#include "gradus/trace/recorder.hpp"
#include "gradus/trace/span.hpp"

namespace gradus::trace {

/// The update rule as spans of category::update. Where a pass computes it piece by piece, between sums and copies of a
/// few microseconds each, the pass becomes one span at its end, as long as all pieces together: a span for each would
/// push earlier steps out of the recorder.
class rule_watch final : public comm::rule_watch {
 public:
  /// Records to `to`, which must outlive it.
  explicit rule_watch(recorder& to) noexcept : recorder_{&to} {}

  /// Calls rule() on the calling thread and records it.
  template <class Rule>
  void run(const Rule& rule) {
    rule_begins();
    rule();
    rule_ends();
  }

  void rule_begins() noexcept override { began_ = recorder_->enabled() ? recorder_->now() : nothing; }
  void rule_ends() override {
    if (began_ == nothing) {
      return;
    }
    const std::int64_t ended = recorder_->now();
    if (in_pass_) {
      pieces_ += ended - began_;
    } else {
      put(began_, ended);
    }
  }

  /// Until the result is gone, what runs is one pass.
  [[nodiscard]] comm::rule_pass pass() noexcept { return comm::rule_pass{this}; }

  void pass_begins() noexcept override {
    in_pass_ = true;
    pieces_ = 0;
  }
  void pass_ends() override {
    in_pass_ = false;
    if (pieces_ > 0) {
      const std::int64_t ended = recorder_->now();
      put(ended - pieces_, ended);
    }
  }

 private:
  void put(std::int64_t began, std::int64_t ended) {
    span one{.begin = began, .end = ended, .title = "update", .step = recorder_->step(), .what = category::update};
    recorder_->push_here(one);
  }

  static constexpr std::int64_t nothing = -1;

  recorder* recorder_;
  std::int64_t began_ = nothing;  // while it is not recorded
  bool in_pass_ = false;
  std::int64_t pieces_ = 0;  // duration of the pieces of the pass, in ticks
};

}  // namespace gradus::trace

// SPDX-License-Identifier: BSL-1.0
//
// Records the time of the update rule in a step.
#pragma once

#include <cstdint>  // std::int64_t

#include "gradus/trace/recorder.hpp"
#include "gradus/trace/span.hpp"

namespace gradus::trace {

/// Records the update rule as spans of category::update. A pass that computes it in pieces, between sums and copies of
/// a few microseconds each, is recorded as one span at its end, as long as all pieces together. One span per piece
/// would push earlier steps out of the recorder.
class rule_watch {
 public:
  /// Records to `to`, which must outlive it.
  explicit rule_watch(recorder& to) noexcept : recorder_{&to} {}

  /// Calls rule() on the calling thread and records it.
  template <class Rule>
  void run(const Rule& rule) {
    if (!recorder_->enabled()) {
      rule();
      return;
    }
    const std::int64_t began = recorder_->now();
    rule();
    const std::int64_t ended = recorder_->now();
    if (in_pass_) {
      pieces_ += ended - began;
    } else {
      put(began, ended);
    }
  }

  /// Begins a pass, which ends when the result is destroyed.
  [[nodiscard]] auto pass() noexcept {
    struct whole {
      explicit whole(rule_watch& watch) noexcept : self{watch} {
        self.in_pass_ = true;
        self.pieces_ = 0;
      }
      whole(const whole&) = delete;
      whole& operator=(const whole&) = delete;
      ~whole() {
        self.in_pass_ = false;
        if (self.pieces_ > 0) {
          const std::int64_t ended = self.recorder_->now();
          self.put(ended - self.pieces_, ended);
        }
      }
      rule_watch& self;
    };
    return whole{*this};
  }

 private:
  void put(std::int64_t began, std::int64_t ended) {
    span one{.begin = began, .end = ended, .title = "update", .step = recorder_->step(), .what = category::update};
    recorder_->push_here(one);
  }

  recorder* recorder_;
  bool in_pass_ = false;
  std::int64_t pieces_ = 0;  // duration of the pieces of the pass, in ticks
};

}  // namespace gradus::trace

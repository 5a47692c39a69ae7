// SPDX-License-Identifier: BSL-1.0
//
// Hooks that report work outside of the communicator to its recorder: copies, and the update rule.
#pragma once

#include <cstddef>  // std::byte
#include <memory>   // std::unique_ptr
#include <span>     // std::span

#include "gradus/core/config.hpp"

namespace gradus::comm {

/// The result of watch_copy without a recorder.
struct no_watch {
  ~no_watch() {}  // so that compilers do not report an unused variable
};

/// Reports a copy of this memory to the recorder; the copy ends when the result is destroyed. Costs nothing unless the
/// communicator's recorder has copying(memory), as that of trace::traced does.
template <class Communicator>
[[nodiscard]] auto watch_copy([[maybe_unused]] Communicator& communicator,
                              [[maybe_unused]] std::span<const std::byte> memory) {
  if constexpr (requires { communicator.recorder().copying(memory); }) {
    return communicator.recorder().copying(memory);
  } else {
    return no_watch{};
  }
}

/// Records when the calling thread computes the update rule.
class rule_watch {
 public:
  rule_watch() = default;
  rule_watch(const rule_watch&) = delete;
  rule_watch& operator=(const rule_watch&) = delete;
  virtual ~rule_watch() = default;

  /// The rule is computed from now on.
  virtual void rule_begins() noexcept = 0;
  /// The rule is no longer computed; the time since rule_begins() is recorded.
  virtual void rule_ends() = 0;
  /// Calls of the rule until pass_ends() are one pass over the parameters, in many small pieces.
  virtual void pass_begins() noexcept = 0;
  /// The pass has ended; its time is recorded.
  virtual void pass_ends() = 0;
};

/// Reports one pass over the parameters to a watch, from its constructor to its destructor.
class rule_pass {
 public:
  /// Begins a pass. Without a watch (null) it does nothing; the watch must outlive it.
  explicit rule_pass(rule_watch* watch) noexcept : watch_{watch} {
    if (watch_ != nullptr) {
      watch_->pass_begins();
    }
  }
  rule_pass(const rule_pass&) = delete;
  rule_pass& operator=(const rule_pass&) = delete;
  ~rule_pass() {
    if (watch_ != nullptr) {
      watch_->pass_ends();
    }
  }

 private:
  rule_watch* watch_;
};

/// The object that records when the update rule is computed, if the communicator's recorder has watch_rule(), as that
/// of trace::traced has; otherwise null. The recorder must outlive it.
template <class Communicator>
[[nodiscard]] std::unique_ptr<rule_watch> rule_watch_of([[maybe_unused]] Communicator& communicator) {
  if constexpr (requires { communicator.recorder().watch_rule(); }) {
    return communicator.recorder().watch_rule();
  } else {
    return nullptr;
  }
}

}  // namespace gradus::comm

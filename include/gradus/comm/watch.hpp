// SPDX-License-Identifier: BSL-1.0
//
// Hooks that report work outside of the communicator to its recorder: copies, and the update rule.
#pragma once

#include <cstddef>  // std::byte
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

/// The result of rule_watch_of without a recorder.
struct no_rule_watch {
  template <class Rule>
  /// Does nothing besides calling the rule.
  void run(const Rule& rule) const {
    rule();
  }
  /// Covers several calls of the rule.
  struct whole {
    ~whole() {}  // so that compilers do not report an unused variable
  };
  /// Does nothing.
  [[nodiscard]] whole pass() const noexcept { return {}; }
};

/// Returns an object that calls the update rule by run(rule) and whose pass() covers an update that comes in many small
/// pieces. Costs nothing unless the communicator's recorder has watch_rule(), as that of trace::traced does. The
/// recorder must outlive it.
template <class Communicator>
[[nodiscard]] auto rule_watch_of([[maybe_unused]] Communicator& communicator) {
  if constexpr (requires { communicator.recorder().watch_rule(); }) {
    return communicator.recorder().watch_rule();
  } else {
    return no_rule_watch{};
  }
}

}  // namespace gradus::comm

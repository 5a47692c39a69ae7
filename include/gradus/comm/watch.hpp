// SPDX-License-Identifier: BSL-1.0
//
// What a communicator's recorder is told of work that is not the communicator's own: copies, and the update rule.
#pragma once

#include <cstddef>  // std::byte
#include <span>     // std::span

#include "gradus/core/config.hpp"

namespace gradus::comm {

/// What watch_copy returns where nobody records.
struct no_watch {
  ~no_watch() {}  // so that a variable of it is used
};

/// A copy of this memory begins; it ends with the life of the result. Costs nothing but where the communicator's
/// recorder has copying(memory), as that of trace::traced has.
template <class Communicator>
[[nodiscard]] auto watch_copy([[maybe_unused]] Communicator& communicator,
                              [[maybe_unused]] std::span<const std::byte> memory) {
  if constexpr (requires { communicator.recorder().copying(memory); }) {
    return communicator.recorder().copying(memory);
  } else {
    return no_watch{};
  }
}

/// Where nobody records.
struct no_rule_watch {
  template <class Rule>
  void run(const Rule& rule) const {
    rule();
  }
  struct whole {
    ~whole() {}  // so that a variable of it is used
  };
  [[nodiscard]] whole pass() const noexcept { return {}; }
};

/// What calls the update rule, by run(rule), and is told by pass() when it comes in many small pieces. Costs nothing
/// but where the communicator's recorder has watch_rule(), as that of trace::traced has. The recorder must outlive it.
template <class Communicator>
[[nodiscard]] auto rule_watch_of([[maybe_unused]] Communicator& communicator) {
  if constexpr (requires { communicator.recorder().watch_rule(); }) {
    return communicator.recorder().watch_rule();
  } else {
    return no_rule_watch{};
  }
}

}  // namespace gradus::comm

// SPDX-License-Identifier: BSL-1.0
//
// The update rule, told to the recorder of a communicator that has one: what else the end of a step takes is the
// exchange between ranks.
// Module: comm. Depends on: core.
#pragma once

#include "gradus/core/config.hpp"  // the compilers that will do

namespace gradus::comm::detail {

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

}  // namespace gradus::comm::detail

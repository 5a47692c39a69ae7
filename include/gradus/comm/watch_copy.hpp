// SPDX-License-Identifier: BSL-1.0
//
// Copies that the library makes on the way to a transfer or from it, told to the recorder of a communicator that has
// one.
// Module: comm. Depends on: core.
#pragma once

#include <cstddef>  // std::byte
#include <span>     // std::span

#include "gradus/core/config.hpp"  // the compilers that will do

namespace gradus::comm::detail {

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

}  // namespace gradus::comm::detail

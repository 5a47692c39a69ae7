// SPDX-License-Identifier: BSL-1.0
//
// Threads that the library starts.
// Module: core. Depends on: std.
#pragma once

#include <thread>  // std::thread

#include "gradus/core/config.hpp"  // GRADUS_COLD

namespace gradus::detail {

/// A thread that calls body(object). A std::thread made from a lambda compiles a type of its own for every lambda.
/// @throws std::system_error when the system gives no thread
[[nodiscard]] GRADUS_COLD inline std::thread start_thread(void (*body)(void* object), void* object) {
  return std::thread{body, object};
}

}  // namespace gradus::detail

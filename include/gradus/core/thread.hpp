// SPDX-License-Identifier: BSL-1.0
//
// Threads that the library starts.
// Module: core. Depends on: std.
#pragma once

#include <thread>  // std::thread

#if defined(__linux__)
#include <pthread.h>  // pthread_setname_np
#endif

#include "gradus/core/config.hpp"  // GRADUS_COLD

namespace gradus::detail {

/// A thread that calls body(object). A std::thread made from a lambda compiles a type of its own for every lambda.
/// @param name  as debuggers and profilers show it, where threads have names; at most 15 characters
/// @throws std::system_error when the system gives no thread
[[nodiscard]] GRADUS_COLD inline std::thread start_thread([[maybe_unused]] const char* name, void (*body)(void* object),
                                                          void* object) {
  std::thread started{body, object};
#if defined(__linux__)
  pthread_setname_np(started.native_handle(), name);
#endif
  return started;
}

}  // namespace gradus::detail

// SPDX-License-Identifier: BSL-1.0
//
// Names for threads, as debuggers and profilers show them.
// Module: core. Depends on: std.
#pragma once

#include "gradus/core/config.hpp"  // GRADUS_COLD

#if defined(__linux__)
#include <pthread.h>  // pthread_self, pthread_setname_np
#endif

namespace gradus::detail {

/// Names the calling thread on systems where threads have names. @param name  at most 15 characters
GRADUS_COLD inline void name_this_thread([[maybe_unused]] const char* name) noexcept {
#if defined(__linux__)
  pthread_setname_np(pthread_self(), name);
#endif
}

}  // namespace gradus::detail

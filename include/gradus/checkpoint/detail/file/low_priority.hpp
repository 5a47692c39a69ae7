// SPDX-License-Identifier: BSL-1.0
//
// Runs the work of a save in a thread that gives way to the threads that train.
#pragma once

#include <exception>  // std::current_exception, std::exception_ptr, std::rethrow_exception
#include <thread>     // std::thread

#if defined(__linux__)
#include <sys/resource.h>  // setpriority
#endif

#include "gradus/core/error.hpp"
#include "gradus/core/thread.hpp"

namespace gradus::io::detail {

/// Gives the calling thread, and no other one, the lowest priority for as long as it runs: a process may not raise it
/// again.
inline void lower_priority_of_thread() noexcept {
#if defined(__linux__)
  (void)setpriority(PRIO_PROCESS, 0, 19);  // Linux takes 0 for the calling thread
#endif
}

/// Calls body() in a thread of the lowest priority, and waits. Only work that no other rank waits for in a busy loop
/// belongs there: where all processors are busy it takes long.
template <class Body>
void run_at_low_priority(const Body& body) {
  struct call {
    const Body* body;
    std::exception_ptr failure;
  };
  call one{&body, nullptr};
  std::thread thread;
  try {
    thread = start_thread(
        "checkpoint file",
        [](void* object) {
          auto& own = *static_cast<call*>(object);
          lower_priority_of_thread();
          try {
            (*own.body)();
          } catch (...) {
            own.failure = std::current_exception();
          }
        },
        &one);
  } catch (const device_error&) {  // no more threads
    body();
    return;
  }
  thread.join();
  if (one.failure != nullptr) {
    std::rethrow_exception(one.failure);
  }
}

}  // namespace gradus::io::detail

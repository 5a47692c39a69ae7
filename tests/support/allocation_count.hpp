// SPDX-License-Identifier: BSL-1.0
//
// The number of allocations of a program one of whose source files includes count_allocations.hpp.
#pragma once

#include <atomic>  // std::atomic

#include "gradus/conformance/sanitizers.hpp"

// Defined where a program may have an operator new of its own: with the sanitizers of clang, not with those of g++.
#if defined(__clang__) || !(GRADUS_ADDRESS_SANITIZER || GRADUS_THREAD_SANITIZER)
#define GRADUS_TEST_COUNTS_ALLOCATIONS
#endif

/// Calls of operator new so far, by all threads.
inline std::atomic<long> allocations{0};

/// A callback of a training: adds the allocations of all threads in the steps of an epoch but the first and the last,
/// in the epochs after the first.
struct allocation_watch {
  long* to = nullptr;
  long before = 0;

  template <class Report>
  void on_step(const Report& step) {
    if (step.step_in_epoch == 0) {
      before = allocations.load();
    } else if (step.epoch > 0 && step.step_in_epoch + 2 == step.steps_per_epoch) {
      *to += allocations.load() - before;
    }
  }
};

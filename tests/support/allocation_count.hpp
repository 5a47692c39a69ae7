// SPDX-License-Identifier: BSL-1.0
//
// The number of allocations of a program one of whose source files includes count_allocations.hpp.
#pragma once

#include <atomic>  // std::atomic

/// Calls of operator new so far, by all threads.
inline std::atomic<long> allocations{0};

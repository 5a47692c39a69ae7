// SPDX-License-Identifier: BSL-1.0
//
// Calls of the allocation functions, counted by training_step.cpp.
#pragma once

#include <atomic>  // std::atomic

namespace gradus_test {

extern std::atomic<long> allocations;

}  // namespace gradus_test

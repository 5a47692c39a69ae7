// SPDX-License-Identifier: BSL-1.0
//
// A function of the ranks that takes its communicator by value.
// EXPECT_ERROR: gradus: a communicator cannot be copied
#include "gradus/comm/threads.hpp"

void run() {
#ifdef GRADUS_TEST_GOOD_TWIN
  gradus::comm::run_ranks(2, [](gradus::comm::threads& world) { return world.rank(); });
#else
  gradus::comm::run_ranks(2, [](gradus::comm::threads world) { return world.rank(); });
#endif
}

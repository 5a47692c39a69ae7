// SPDX-License-Identifier: BSL-1.0
//
// A function of the ranks that takes another communicator.
// EXPECT_ERROR: gradus: run_ranks calls function
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"

void run() {
#ifdef GRADUS_TEST_GOOD_TWIN
  gradus::comm::run_ranks(2, [](gradus::comm::threads& world) { return world.rank(); });
#else
  gradus::comm::run_ranks(2, [](gradus::comm::self& world) { return world.rank(); });
#endif
}

// SPDX-License-Identifier: BSL-1.0
//
// A subset that copies the communicator of which it has some ranks.
// EXPECT_ERROR: gradus: a communicator cannot be copied
#include "gradus/comm/subset.hpp"
#include "gradus/comm/threads.hpp"

void even_ranks(gradus::comm::threads& world) {
#ifdef GRADUS_TEST_GOOD_TWIN
  gradus::comm::subset even{world.duplicate(), {0, 2}};
#else
  gradus::comm::subset even{world, {0, 2}};
#endif
}

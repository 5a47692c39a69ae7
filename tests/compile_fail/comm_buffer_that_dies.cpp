// SPDX-License-Identifier: BSL-1.0
//
// A vector that is gone when the call returns cannot be received into.
// EXPECT_ERROR: mutable_buffer
#include <vector>  // std::vector

#include "gradus/comm/self.hpp"

void copy(gradus::comm::self& world) {
#ifdef GRADUS_TEST_GOOD_TWIN
  std::vector<float> values(3);
  gradus::comm::broadcast(world, values).wait();
#else
  gradus::comm::broadcast(world, std::vector<float>(3)).wait();
#endif
}

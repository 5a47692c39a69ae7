// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: this communicator cannot send this element type
#include <vector>  // std::vector

#include "gradus/comm/self.hpp"

#ifdef GRADUS_TEST_GOOD_TWIN
using element = float;
#else
using element = long double;
#endif

void add(gradus::comm::self& world, std::vector<element>& values) {
  gradus::comm::all_reduce(world, values).wait();
}

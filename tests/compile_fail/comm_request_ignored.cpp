// SPDX-License-Identifier: BSL-1.0
//
// A request without a wait is a mistake; the warning is made an error here.
// EXPECT_ERROR: nodiscard
#include <vector>  // std::vector

#include "gradus/comm/self.hpp"

#if defined(__GNUC__) || defined(__clang__)
#pragma GCC diagnostic error "-Wunused-result"
#endif

void add(gradus::comm::self& world, std::vector<float>& values) {
#ifdef GRADUS_TEST_GOOD_TWIN
  gradus::comm::all_reduce(world, values).wait();
#else
  gradus::comm::all_reduce(world, values);
#endif
}

// SPDX-License-Identifier: BSL-1.0
//
// A recorder that is gone when the communicator records.
// EXPECT_ERROR: gradus: the recorder is a temporary
#include <utility>  // std::move

#include "gradus/comm/threads.hpp"
#include "gradus/trace/transfers.hpp"

void trace(gradus::comm::threads& world, gradus::trace::recorder& recorder) {
#ifdef GRADUS_TEST_GOOD_TWIN
  auto traced = gradus::trace::traced(std::move(world), recorder);
#else
  auto traced = gradus::trace::traced(std::move(world), gradus::trace::recorder{});
#endif
}

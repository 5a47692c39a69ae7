// SPDX-License-Identifier: BSL-1.0
//
// A traced communicator that copies the one it is made of.
// EXPECT_ERROR: gradus: a communicator cannot be copied
#include <utility>  // std::move

#include "gradus/comm/threads.hpp"
#include "gradus/trace/transfers.hpp"

void trace(gradus::comm::threads& world, gradus::trace::recorder& recorder) {
#ifdef GRADUS_TEST_GOOD_TWIN
  auto traced = gradus::trace::traced(std::move(world), recorder);
#else
  auto traced = gradus::trace::traced(world, recorder);
#endif
}

// SPDX-License-Identifier: BSL-1.0
//
// Levels that copy the communicators they are made of.
// EXPECT_ERROR: gradus: a communicator cannot be copied
#include <utility>  // std::move

#include "gradus/comm/hierarchical.hpp"
#include "gradus/comm/threads.hpp"

using gradus::comm::threads;

void join(threads& local, threads& across, threads& whole) {
#ifdef GRADUS_TEST_GOOD_TWIN
  gradus::comm::hierarchical world{std::move(local), std::move(across), std::move(whole)};
#else
  gradus::comm::hierarchical world{local, across, whole};
#endif
}

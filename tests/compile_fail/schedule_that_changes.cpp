// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: not a learning-rate schedule: equal epochs give equal rates
#include "gradus/optim/schedule.hpp"

gradus::optim::schedule rates() {
#ifdef GRADUS_TEST_GOOD_TWIN
  return [](double epoch) { return 0.1 / epoch; };
#else
  return [calls = 0](double /*epoch*/) mutable { return 0.1 / ++calls; };
#endif
}

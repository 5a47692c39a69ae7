// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: not a learning-rate schedule: it is called with the number of passes over the training set
#include "gradus/optim/schedule.hpp"

gradus::optim::schedule rates() {
#ifdef GRADUS_TEST_GOOD_TWIN
  return [](double epoch) { return 0.1 / (1 + epoch); };
#else
  return [](int epoch, int step) { return 0.1 / (1 + epoch + step); };
#endif
}

// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: the description of the learning-rate schedule would never be called
#include "gradus/optim/schedule.hpp"

struct mine {
  double operator()(double) const { return 0.1; }
#ifdef GRADUS_TEST_GOOD_TWIN
  std::string description() const {
    return "mine";
  }
#else
  std::string description() {
    return "mine";
  }
#endif
};

gradus::optim::schedule rates() {
  return mine{};
}

// SPDX-License-Identifier: BSL-1.0
// EXPECT_ERROR: gradus: what the callback returns after a step would be dropped
#include "gradus/train/detail/trainer/parts.hpp"

struct answers {
#ifdef GRADUS_TEST_GOOD_TWIN
  void on_step(int& trainer, const gradus::train::step_report& step);
#else
  int on_step(int& trainer, const gradus::train::step_report& step);
#endif
};
static_assert(gradus::train::detail::explain_callback<answers, int>());

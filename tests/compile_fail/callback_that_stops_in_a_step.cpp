// SPDX-License-Identifier: BSL-1.0
// EXPECT_ERROR: gradus: the train::flow that the callback returns after a step would be dropped
#include "gradus/train/detail/trainer/parts.hpp"

struct answers {
#ifdef GRADUS_TEST_GOOD_TWIN
  gradus::train::flow operator()(const gradus::train::epoch_report& epoch);
#else
  gradus::train::flow operator()(const gradus::train::step_report& step);
#endif
};
static_assert(gradus::train::detail::explain_callback<answers, int>());

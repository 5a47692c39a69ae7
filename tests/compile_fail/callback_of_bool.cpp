// SPDX-License-Identifier: BSL-1.0
// EXPECT_ERROR: gradus: what the callback returns after an epoch would be dropped
#include "gradus/train/detail/trainer/parts.hpp"

struct answers {
#ifdef GRADUS_TEST_GOOD_TWIN
  gradus::train::flow on_epoch(const gradus::train::epoch_report& epoch);
#else
  bool on_epoch(const gradus::train::epoch_report& epoch);
#endif
};
static_assert(gradus::train::detail::explain_callback<answers, int>());

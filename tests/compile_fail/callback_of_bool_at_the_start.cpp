// SPDX-License-Identifier: BSL-1.0
// EXPECT_ERROR: gradus: what on_start or on_finish of the callback returns would be dropped
#include "gradus/train/detail/trainer/parts.hpp"

struct answers {
#ifdef GRADUS_TEST_GOOD_TWIN
  void on_start(const gradus::train::run_information& run);
#else
  bool on_start(const gradus::train::run_information& run);
#endif
};
static_assert(gradus::train::detail::explain_callback<answers, int>());

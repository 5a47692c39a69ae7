// SPDX-License-Identifier: BSL-1.0
// EXPECT_ERROR: gradus: nothing of the callback would ever be called
#include "gradus/train/detail/trainer/parts.hpp"

struct misspelt {
#ifdef GRADUS_TEST_GOOD_TWIN
  void on_epoch(gradus::train::epoch_report& epoch);
#else
  void on_ephoch(gradus::train::epoch_report& epoch);
#endif
};
static_assert(gradus::train::detail::explain_callback<misspelt, int>());

// SPDX-License-Identifier: BSL-1.0
// EXPECT_ERROR: gradus: the callback's on_epoch would never be called
#include "gradus/train/detail/trainer/parts.hpp"

struct takes_a_number {
  void on_step(const gradus::train::step_report& step);
#ifdef GRADUS_TEST_GOOD_TWIN
  void on_epoch(const gradus::train::epoch_report& epoch);
#else
  void on_epoch(int epoch);
#endif
};
static_assert(gradus::train::detail::explain_callback<takes_a_number, int>());

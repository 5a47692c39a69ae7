// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: per_channel needs images in the same expression; per_row and per_column need a tensor of rank 2
#include "gradus/tensor/expressions.hpp"

void check(const gradus::tensor<float, 1>& a, const gradus::tensor<float, 1>& b) {
#ifdef GRADUS_TEST_GOOD_TWIN
  (void)(gradus::per_channel(a) * gradus::per_channel(b));
#else
  (void)(gradus::per_channel(a) * gradus::per_row(b));
#endif
}

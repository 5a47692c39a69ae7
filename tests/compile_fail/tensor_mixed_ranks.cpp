// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: operands of different rank in one expression: use per_channel
#include "gradus/tensor/expressions.hpp"

void check(const gradus::tensor<float, 2>& a, const gradus::tensor<float, 1>& b) {
#ifdef GRADUS_TEST_GOOD_TWIN
  (void)(a - per_row(b));
#else
  (void)(a - b);
#endif
}

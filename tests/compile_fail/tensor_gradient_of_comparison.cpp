// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: is not differentiable
#include "gradus/tensor/expressions.hpp"

void check(const gradus::tensor<float, 1>& a) {
#ifdef GRADUS_TEST_GOOD_TWIN
  (void)gradients(sum(where(a > 0, a, 0)), a);
#else
  (void)gradients(sum(gradus::cast<float>(a > 0)), a);
#endif
}

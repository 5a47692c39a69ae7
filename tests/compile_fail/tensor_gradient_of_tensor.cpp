// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: the loss has rank 0: reduce it with sum or mean
#include "gradus/tensor/expressions.hpp"

void check(const gradus::tensor<float, 1>& a) {
#ifdef GRADUS_TEST_GOOD_TWIN
  (void)gradients(sum(a * a), a);
#else
  (void)gradients(a * a, a);
#endif
}

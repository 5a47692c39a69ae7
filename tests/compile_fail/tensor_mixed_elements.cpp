// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: operands of different element types in one expression: use cast
#include "gradus/tensor/expressions.hpp"

void check(const gradus::tensor<float, 1>& a, const gradus::tensor<double, 1>& b) {
#ifdef GRADUS_TEST_GOOD_TWIN
  (void)(gradus::cast<double>(a) * b);
#else
  (void)(a * b);
#endif
}

// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: no match for call to|no matching function
#include "gradus/tensor/tensor.hpp"

float check(const gradus::tensor<float, 2>& a) {
#ifdef GRADUS_TEST_GOOD_TWIN
  return a(1, 2);
#else
  return a(1, 2, 3);
#endif
}

// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: not an element type: use float, double
#include "gradus/tensor/tensor.hpp"

#ifdef GRADUS_TEST_GOOD_TWIN
void check(gradus::tensor<float, 1>& a) {
#else
void check(gradus::tensor<char*, 1>& a) {
#endif
  (void)a.view();
}

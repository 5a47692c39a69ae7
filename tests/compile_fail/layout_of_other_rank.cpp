// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: an image layout orders tensors of rank 4
#include "gradus/tensor/tensor.hpp"

#ifdef GRADUS_TEST_GOOD_TWIN
void check(gradus::tensor<float, 4, gradus::nhwc>& x) {
#else
void check(gradus::tensor<float, 3, gradus::nhwc>& x) {
#endif
  (void)x.view();
}

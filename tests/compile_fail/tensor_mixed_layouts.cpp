// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: operands of different layouts in one expression: use layout_cast
#include "gradus/tensor/expressions.hpp"

void check(const gradus::image_tensor<float, gradus::nchw>& a, const gradus::image_tensor<float, gradus::nhwc>& b) {
#ifdef GRADUS_TEST_GOOD_TWIN
  (void)(a + gradus::layout_cast<gradus::nchw>(b));
#else
  (void)(a + b);
#endif
}

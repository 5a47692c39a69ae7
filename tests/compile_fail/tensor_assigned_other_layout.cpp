// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: assignment of an expression of another layout: use layout_cast
#include "gradus/tensor/expressions.hpp"

void check(gradus::image_tensor<float, gradus::nchw>& a, const gradus::image_tensor<float, gradus::nhwc>& b) {
#ifdef GRADUS_TEST_GOOD_TWIN
  a = gradus::layout_cast<gradus::nchw>(b + b);
#else
  a = b + b;
#endif
}

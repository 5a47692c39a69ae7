// SPDX-License-Identifier: BSL-1.0
//
// A device that is gone when the view is used.
// EXPECT_ERROR: gradus: the device is a temporary
#include "gradus/tensor/tensor_view.hpp"

void make(float* data, gradus::cpu& device) {
#ifdef GRADUS_TEST_GOOD_TWIN
  const gradus::tensor_view<float, 1> x{device, data, {3}};
#else
  const gradus::tensor_view<float, 1> x{gradus::cpu{}, data, {3}};
#endif
}

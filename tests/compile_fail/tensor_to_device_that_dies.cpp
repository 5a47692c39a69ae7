// SPDX-License-Identifier: BSL-1.0
//
// A device that is gone when the copy is used.
// EXPECT_ERROR: gradus: the device is a temporary
#include "gradus/tensor/copy.hpp"

void make(const gradus::tensor<float, 1>& x, gradus::cpu& device) {
#ifdef GRADUS_TEST_GOOD_TWIN
  const auto y = gradus::to(device, x);
#else
  const auto y = gradus::to(gradus::cpu{}, x);
#endif
}

// SPDX-License-Identifier: BSL-1.0
//
// A device that is gone when the tensor is used.
// EXPECT_ERROR: gradus: the device is a temporary
#include "gradus/tensor/tensor.hpp"

void make() {
  gradus::cpu device;
#ifdef GRADUS_TEST_GOOD_TWIN
  const gradus::tensor<float, 2> x{device, {2, 3}};
#else
  const gradus::tensor<float, 2> x{gradus::cpu{}, {2, 3}};
#endif
}

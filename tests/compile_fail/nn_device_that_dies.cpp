// SPDX-License-Identifier: BSL-1.0
//
// A device that is gone when the network runs.
// EXPECT_ERROR: gradus: the device is a temporary
#include "gradus/nn/network.hpp"

void build() {
  gradus::cpu device;
#ifdef GRADUS_TEST_GOOD_TWIN
  const gradus::nn::network<float> net{device, {1, 8, 8}};
#else
  const gradus::nn::network<float> net{gradus::cpu{}, {1, 8, 8}};
#endif
}

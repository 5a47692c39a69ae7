// SPDX-License-Identifier: BSL-1.0
//
// A device that gives no memory.
// EXPECT_ERROR: gradus: the device is const
#include "gradus/nn/network.hpp"

#ifdef GRADUS_TEST_GOOD_TWIN
void build(gradus::cpu& device) {
#else
void build(const gradus::cpu& device) {
#endif
  const gradus::nn::network<float> net{device, {1, 8, 8}};
}

// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: gradus: the device lacks a kernel of the network: overload void dropout_forward
#define GRADUS_TEST_NO_DROPOUT
#include "../support/kernel_archetype.hpp"
#include "gradus/nn/layers/dropout.hpp"
#include "gradus/nn/layers/relu.hpp"
#include "gradus/nn/network.hpp"

// Networks without dropout run on such a device.
void build(gradus::nn::network<float, gradus::nhwc, archetypes::kernel_device>& net) {
#if defined(GRADUS_TEST_GOOD_TWIN)
  (void)net.add("relu", gradus::nn::relu{}, net.input());
#else
  (void)net.add("dropout", gradus::nn::dropout{}, net.input());
#endif
}

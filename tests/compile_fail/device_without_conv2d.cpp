// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: gradus: the device lacks a kernel of the network: overload template.*conv2d_workspace_bytes
#if !defined(GRADUS_TEST_GOOD_TWIN)
#define GRADUS_TEST_NO_CONVOLUTION
#endif
#include "../support/kernel_archetype.hpp"
#include "gradus/nn/layers/conv2d.hpp"
#include "gradus/nn/network.hpp"

void build(gradus::nn::network<float, gradus::nhwc, archetypes::kernel_device>& net) {
  (void)net.add("conv", gradus::nn::conv2d{.out_channels = 8}, net.input());
}

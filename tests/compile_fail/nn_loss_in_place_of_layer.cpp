// SPDX-License-Identifier: BSL-1.0
//
// A loss that is added as a layer.
// EXPECT_ERROR: gradus: not a layer
#include "gradus/nn/layers/relu.hpp"
#include "gradus/nn/loss.hpp"
#include "gradus/nn/network.hpp"

void build(gradus::nn::network<float>& net) {
#ifdef GRADUS_TEST_GOOD_TWIN
  net.add("relu", gradus::nn::relu{}, net.input());
#else
  net.add("loss", gradus::nn::softmax_cross_entropy{}, net.input());
#endif
}

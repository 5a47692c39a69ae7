// SPDX-License-Identifier: BSL-1.0
//
// A layer that is to be the loss.
// EXPECT_ERROR: gradus: not a loss
#include "gradus/nn/layers/relu.hpp"
#include "gradus/nn/loss.hpp"
#include "gradus/nn/network.hpp"

void build(gradus::nn::network<float>& net, gradus::nn::value scores) {
#ifdef GRADUS_TEST_GOOD_TWIN
  net.loss(gradus::nn::softmax_cross_entropy{}, scores);
#else
  net.loss(gradus::nn::relu{}, scores);
#endif
}

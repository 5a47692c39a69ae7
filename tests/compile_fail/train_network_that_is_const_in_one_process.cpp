// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: the network is const, but training changes it: write auto& net
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/train/trainer.hpp"

#ifdef GRADUS_TEST_GOOD_TWIN
void train(gradus::nn::network<float, gradus::nhwc>& net) {
#else
void train(const gradus::nn::network<float, gradus::nhwc>& net) {
#endif
  gradus::train::trainer trainer{net, gradus::optim::sgd{}};
}

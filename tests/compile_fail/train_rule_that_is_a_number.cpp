// SPDX-License-Identifier: BSL-1.0
//
// A learning rate in the place of the rule.
// EXPECT_ERROR: the learning rate is given to fit
#include "gradus/comm/self.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/train/trainer.hpp"

using network = gradus::nn::network<float, gradus::nchw>;

#ifdef GRADUS_TEST_GOOD_TWIN
void train(network& net, gradus::comm::self& world) {
  gradus::train::trainer trainer{net, gradus::optim::sgd{}, world};
}
#else
void train(network& net, gradus::comm::self& world) {
  gradus::train::trainer trainer{net, 0.1, world};
}
#endif

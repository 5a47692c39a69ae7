// SPDX-License-Identifier: BSL-1.0
//
// A communicator in the place of the rule.
// EXPECT_ERROR: gradus: the second argument of a trainer is a communicator
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
void train(network& net, gradus::comm::self& world, gradus::optim::sgd& rule) {
  gradus::train::trainer trainer{net, world, rule};
}
#endif

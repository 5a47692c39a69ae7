// SPDX-License-Identifier: BSL-1.0
//
// A network that cannot be trained.
// EXPECT_ERROR: gradus: the network is const
#include "gradus/comm/self.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/train/trainer.hpp"

using network = gradus::nn::network<float, gradus::nchw>;

#ifdef GRADUS_TEST_GOOD_TWIN
void train(network& net, gradus::comm::self& world) {
#else
void train(const network& net, gradus::comm::self& world) {
#endif
  gradus::train::trainer trainer{net, gradus::optim::sgd{}, world};
}

// SPDX-License-Identifier: BSL-1.0
//
// A communicator that nothing can be sent by.
// EXPECT_ERROR: gradus: the communicator is const
#include "gradus/comm/self.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/train/trainer.hpp"

using network = gradus::nn::network<float, gradus::nchw>;

#ifdef GRADUS_TEST_GOOD_TWIN
void train(network& net, gradus::comm::self& world) {
#else
void train(network& net, const gradus::comm::self& world) {
#endif
  gradus::train::trainer trainer{net, gradus::optim::sgd{}, world};
}

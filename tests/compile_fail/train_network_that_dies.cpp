// SPDX-License-Identifier: BSL-1.0
//
// A network that is gone when the trainer trains.
// EXPECT_ERROR: gradus: the network is a temporary
#include <utility>  // std::move

#include "gradus/comm/self.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/train/trainer.hpp"

using network = gradus::nn::network<float, gradus::nchw>;

#ifdef GRADUS_TEST_GOOD_TWIN
void train(network net, gradus::comm::self& world) {
  gradus::train::trainer trainer{net, gradus::optim::sgd{}, world};
}
#else
void train(network net, gradus::comm::self& world) {
  gradus::train::trainer trainer{std::move(net), gradus::optim::sgd{}, world};
}
#endif

// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: this update rule needs whole
#include "gradus/comm/threads.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/lars.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/train/trainer.hpp"

#ifdef GRADUS_TEST_GOOD_TWIN
using rule_type = gradus::optim::sgd;
#else
using rule_type = gradus::optim::lars;
#endif

void check(gradus::nn::network<float>& net, gradus::comm::threads& world) {
  const gradus::train::trainer trainer{net, rule_type{}, world, gradus::parallel::sharded_update{}};
}

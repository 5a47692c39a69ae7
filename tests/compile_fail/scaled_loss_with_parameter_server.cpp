// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: needs the gradients of all parameters on the rank that updates
#include "gradus/comm/self.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/scaled_loss.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/parameter_server/parameter_server.hpp"
#include "gradus/train/trainer.hpp"

#ifdef GRADUS_TEST_GOOD_TWIN
using rule_type = gradus::optim::sgd;
#else
using rule_type = gradus::optim::scaled_loss<gradus::optim::sgd>;
#endif

void check(gradus::nn::network<float>& net, gradus::comm::self& alone) {
  const gradus::train::trainer trainer{net, rule_type{}, alone, gradus::parallel::parameter_server{}};
}

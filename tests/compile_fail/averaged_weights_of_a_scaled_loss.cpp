// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: averaged_weights inside scaled_loss skips the steps that scaled_loss skips
#include "gradus/device/cpu.hpp"
#include "gradus/optim/averaged_weights.hpp"
#include "gradus/optim/scaled_loss.hpp"
#include "gradus/optim/sgd.hpp"

using gradus::optim::averaged_weights;
using gradus::optim::scaled_loss;
using gradus::optim::sgd;

#ifdef GRADUS_TEST_GOOD_TWIN
using rule = scaled_loss<averaged_weights<sgd>>;
#else
using rule = averaged_weights<scaled_loss<sgd>>;
#endif

void check(gradus::cpu& device) {
  const rule::state<float> state{device, {}, 3};
}

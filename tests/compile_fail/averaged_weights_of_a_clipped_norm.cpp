// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: clipped_norm needs all gradients before a step
#include "gradus/device/cpu.hpp"
#include "gradus/optim/averaged_weights.hpp"
#include "gradus/optim/clipped_norm.hpp"
#include "gradus/optim/sgd.hpp"

using gradus::optim::averaged_weights;
using gradus::optim::clipped_norm;
using gradus::optim::sgd;

#ifdef GRADUS_TEST_GOOD_TWIN
using rule = clipped_norm<averaged_weights<sgd>>;
#else
using rule = averaged_weights<clipped_norm<sgd>>;
#endif

void check(gradus::cpu& device) {
  const rule::state<float> state{device, {}, 3};
}

// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: clipped_norm inside scaled_loss sees the gradients without the scale
#include "gradus/device/cpu.hpp"
#include "gradus/optim/clipped_norm.hpp"
#include "gradus/optim/scaled_loss.hpp"
#include "gradus/optim/sgd.hpp"

using gradus::optim::clipped_norm;
using gradus::optim::scaled_loss;
using gradus::optim::sgd;

#ifdef GRADUS_TEST_GOOD_TWIN
using rule = scaled_loss<clipped_norm<sgd>>;
#else
using rule = clipped_norm<scaled_loss<sgd>>;
#endif

void check(gradus::cpu& device) {
  const rule::state<float> state{device, {}, 3};
}

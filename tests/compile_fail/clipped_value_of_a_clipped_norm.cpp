// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: a rule that clips by the norm needs all gradients as they are
#include "gradus/device/cpu.hpp"
#include "gradus/optim/clipped_norm.hpp"
#include "gradus/optim/clipped_value.hpp"
#include "gradus/optim/sgd.hpp"

using gradus::optim::clipped_norm;
using gradus::optim::clipped_value;
using gradus::optim::sgd;

#ifdef GRADUS_TEST_GOOD_TWIN
using rule = clipped_norm<clipped_value<sgd>>;
#else
using rule = clipped_value<clipped_norm<sgd>>;
#endif

void check(gradus::cpu& device) {
  const rule::state<float> state{device, {}, 3};
}

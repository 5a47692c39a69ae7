// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: networks hold float, double, gradus::bfloat16
#include "gradus/core/bfloat16.hpp"
#include "gradus/nn/network.hpp"

#ifdef GRADUS_TEST_GOOD_TWIN
using network = gradus::nn::network<gradus::bfloat16>;
#else
using network = gradus::nn::network<int>;
#endif

void check(const network& net) {
  (void)net.compiled();
}

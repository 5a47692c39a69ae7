// SPDX-License-Identifier: BSL-1.0
// EXPECT_ERROR: gradus: this device has no expressions yet: include the header that computes them on it, for
#include "../support/archetypes.hpp"
#include "gradus/tensor/expressions.hpp"

void use(archetypes::device& device, gradus::cpu& host) {
  gradus::tensor<float, 2, gradus::row_major, archetypes::device> y{device, {2, 3}};
  gradus::tensor<float, 2> x{host, {2, 3}};
#if defined(GRADUS_TEST_GOOD_TWIN)
  x = x + x;
  static_cast<void>(y + y);
#else
  y = y + y;
#endif
}

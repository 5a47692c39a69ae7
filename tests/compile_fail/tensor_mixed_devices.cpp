// SPDX-License-Identifier: BSL-1.0
// EXPECT_ERROR: gradus: operands on different devices in one expression: copy one of them first
#include "../support/archetypes.hpp"
#include "gradus/tensor/expressions.hpp"

void use(gradus::cpu& host, archetypes::device& device) {
  gradus::tensor<float, 2> x{host, {2, 3}};
  gradus::tensor<float, 2, gradus::row_major, archetypes::device> y{device, {2, 3}};
#if defined(GRADUS_TEST_GOOD_TWIN)
  static_cast<void>(x + x);
  static_cast<void>(y + y);
#else
  static_cast<void>(x + y);
#endif
}

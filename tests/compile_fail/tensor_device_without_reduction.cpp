// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: gradus: the device lacks an overload for expressions: template <class Kind, unsigned Reduced, class
#include "../support/archetypes.hpp"
#include "gradus/tensor/expressions.hpp"

void use(archetypes::device& device, gradus::cpu& host) {
#if defined(GRADUS_TEST_GOOD_TWIN)
  const gradus::tensor<float, 2> a{host, {2, 2}};
  static_cast<void>(device);
#else
  const gradus::tensor<float, 2, gradus::row_major, archetypes::device> a{device, {2, 2}};
  static_cast<void>(host);
#endif
  static_cast<void>(sum(a).value());
}

// SPDX-License-Identifier: BSL-1.0
// EXPECT_ERROR: gradus: the elements of a tensor on this device are not in the memory of the host: copy it first
#include "../support/archetypes.hpp"
#include "gradus/tensor/copy.hpp"

struct far_device : archetypes::device {
  static constexpr bool host_accessible = false;
};

float use(gradus::cpu& host, const gradus::tensor<float, 2, gradus::row_major, far_device>& x) {
#if defined(GRADUS_TEST_GOOD_TWIN)
  return gradus::to(host, x)(1, 2);
#else
  static_cast<void>(host);
  return x(1, 2);
#endif
}

// SPDX-License-Identifier: BSL-1.0
//
// Compiles the convolutions of all elements and layouts.
#include "instances.hpp"

namespace gradus::kernels {
GRADUS_TEST_CONVOLUTIONS()
}  // namespace gradus::kernels

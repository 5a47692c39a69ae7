// SPDX-License-Identifier: BSL-1.0
//
// Element-wise passes that layers need when nothing can carry them for free.
#pragma once

#include "gradus/core/config.hpp"

namespace gradus::kernels {

// Every device D in the library overloads, for network elements E, over `count` elements in memory order; output and
// inputs may be the same array, which needs no alignment but its elements':
//
//   void relu_forward(D&, index_t count, const E* x, E* y);                                   // y = max(x, 0)
//   void relu_backward(D&, index_t count, const E* dy, const E* y, E* dx, bool accumulate);   // dx (+)= y > 0 ? dy : 0
//   void add_forward(D&, index_t count, const E* a, const E* b, E* y, activation);            // y = act(a + b)
//   void copy_or_add(D&, index_t count, const E* source, E* destination, bool accumulate);    // destination (+)=
//   source
//
// A NaN stays one under max; relu_backward lets nothing through where y is NaN.

}  // namespace gradus::kernels

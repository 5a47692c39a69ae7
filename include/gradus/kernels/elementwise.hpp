// SPDX-License-Identifier: BSL-1.0
//
// The contract of element-wise kernels, for layers whose operation is not fused into another one.
#pragma once

#include "gradus/core/config.hpp"

namespace gradus::kernels {

// Every device D in the library overloads, for network elements E, over `count` elements in memory order:
//
//   void relu_forward(D&, index_t count, const E* x, E* y);                                   // y = max(x, 0)
//   void relu_backward(D&, index_t count, const E* dy, const E* y, E* dx, bool accumulate);   // dx (+)= y > 0 ? dy : 0
//   void add_forward(D&, index_t count, const E* a, const E* b, E* y, activation);            // y = act(a + b)
//   void copy_or_add(D&, index_t count, const E* source, E* destination, bool accumulate);
//                                                                                  // destination (+)= source
//
// (+)= is += if `accumulate`, else =. The output may be one of the inputs; arrays need only the alignment of their
// elements. max(NaN, 0) is NaN. relu_backward gives 0 where y is NaN.

}  // namespace gradus::kernels

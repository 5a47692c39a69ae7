// SPDX-License-Identifier: BSL-1.0
//
// In place of Thrust's: items are threads of a grid.
#pragma once

#include <thrust/iterator/counting_iterator.h>
#include <thrust/system/cuda/execution_policy.h>

namespace thrust {

template <class Index, class Size, class Body>
void for_each_n(const cuda::par_on& policy, counting_iterator<Index> first, Size count, Body body) {
  emulation::enqueue(policy.stream, [=]() mutable {
    for (Size i = 0; i < count; ++i) {
      body(static_cast<Index>(first.value + i));
    }
  });
}

}  // namespace thrust

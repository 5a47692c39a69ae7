// SPDX-License-Identifier: BSL-1.0
//
// In place of Thrust's.
#pragma once

namespace thrust {

template <class Index>
struct counting_iterator {
  Index value;
};

}  // namespace thrust

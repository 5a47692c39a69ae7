// SPDX-License-Identifier: BSL-1.0
//
// In place of Thrust's.
#pragma once

#include <system_error>

namespace thrust {
using std::system_error;
}  // namespace thrust

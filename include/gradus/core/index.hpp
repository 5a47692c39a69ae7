// SPDX-License-Identifier: BSL-1.0
//
// The type of every index, extent and count.
#pragma once

#include <cstddef>  // std::ptrdiff_t

#include "gradus/core/config.hpp"

namespace gradus {

/// Indices, extents and counts of elements. Signed, so that differences are ordinary arithmetic.
using index_t = std::ptrdiff_t;

}  // namespace gradus

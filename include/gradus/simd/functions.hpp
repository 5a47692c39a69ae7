// SPDX-License-Identifier: BSL-1.0
//
// Functions of the numbers of element-wise loops: exp, log, comparisons.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint32_t, std::uint64_t
#include <limits>       // std::numeric_limits
#include <type_traits>  // std::conditional_t

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/simd/detail/elementary/constants.hpp"
#include "gradus/simd/transform.hpp"

#define GRADUS_TARGET_BODY "gradus/simd/functions_body.hpp"
#include "gradus/simd/for_each_target.hpp"

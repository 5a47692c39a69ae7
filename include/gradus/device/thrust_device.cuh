// SPDX-License-Identifier: BSL-1.0
//
// The mark of devices on which Thrust computes expressions.
#pragma once

#include "gradus/core/config.hpp"

namespace gradus {

namespace detail {
struct thrust_overloads {};  // a base, so that calls on the device look for overloads in this namespace
}  // namespace detail

/// The base of devices for which Thrust has a backend: expressions and reductions on them are Thrust launches. Such a
/// device D brings `thrust_policy(const D&)`, the execution policy.
struct thrust_device : detail::thrust_overloads {};

}  // namespace gradus

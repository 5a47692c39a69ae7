// SPDX-License-Identifier: BSL-1.0
//
// A base class of devices on which Thrust evaluates expressions.
#pragma once

#include "gradus/core/config.hpp"

namespace gradus {

/// A base class of devices. gradus/tensor/detail/thrust/evaluate.cuh evaluates expressions on such a device, with the
/// execution policy that thrust_policy(device) returns.
struct thrust_device {};

}  // namespace gradus

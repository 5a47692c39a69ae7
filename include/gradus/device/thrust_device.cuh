// SPDX-License-Identifier: BSL-1.0
//
// The mark of devices on which Thrust computes expressions.
#pragma once

#include "gradus/core/config.hpp"

namespace gradus {

/// Expressions on a device that derives from it are computed by gradus/tensor/detail/thrust/evaluate.cuh, with the
/// execution policy that thrust_policy(device) gives.
struct thrust_device {};

}  // namespace gradus

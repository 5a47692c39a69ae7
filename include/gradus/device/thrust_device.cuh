// SPDX-License-Identifier: BSL-1.0
//
// The mark of devices on which Thrust computes expressions.
// Module: device. Depends on: core.
#pragma once

#include "gradus/core/config.hpp"  // the compilers that will do

namespace gradus::detail {

/// Expressions on a device that derives from it are computed by gradus/tensor/detail/thrust/evaluate.cuh, with the execution
/// policy that thrust_policy(device) gives.
struct thrust_device {};

}  // namespace gradus::detail

// SPDX-License-Identifier: BSL-1.0
//
// The two halves of a training step.
#pragma once

#include "gradus/core/config.hpp"

namespace gradus::nn {

/// In which direction a network runs its layers: forward computes values, backward all gradients.
enum class phase : unsigned char { forward, backward };

}  // namespace gradus::nn

// SPDX-License-Identifier: BSL-1.0
//
// The parts of a training step.
#pragma once

#include "gradus/core/config.hpp"

namespace gradus::nn {

/// In which direction a network runs its layers: forward computes values, backward all gradients.
enum class phase : unsigned char { forward, backward };

/// What a stage of a network in stages does with one micro-batch.
enum class stage_pass : unsigned char {
  forward,           ///< stores the values that backward needs
  backward,          ///< gradients of the inputs and of the weights
  input_gradients,   ///< the first half of backward: what the stage before waits for
  weight_gradients,  ///< the second half of backward: only the update waits for it
};

}  // namespace gradus::nn

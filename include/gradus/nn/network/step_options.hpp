// SPDX-License-Identifier: BSL-1.0
//
// The position of a training step in the training, and its loss scale.
#pragma once

#include <cstdint>  // std::uint64_t

#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"

namespace gradus::nn {

/// The position of a training step in the training, and its loss scale.
struct step_options {
  std::uint64_t step = 0;           ///< counted from 0 over the whole training
  std::uint64_t first_example = 0;  ///< position of the batch's first example in the epoch over all ranks
  index_t global_examples = 0;      ///< examples of the step over all ranks; 0: those of this call
  gradus::loss_scale loss_scale{};  ///< factor of the gradients, not of the losses
};

}  // namespace gradus::nn

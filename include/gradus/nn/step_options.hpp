// SPDX-License-Identifier: BSL-1.0
//
// Where a training step stands in the training.
#pragma once

#include <cstdint>  // std::uint64_t

#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"

namespace gradus::nn {

/// One training step's place in the training.
struct step_options {
  std::uint64_t step = 0;           ///< counted from 0 over the whole training
  std::uint64_t first_example = 0;  ///< of this batch, in the order of the epoch over all ranks
  index_t global_examples = 0;      ///< of the step over all ranks; 0: those of this call
  gradus::loss_scale loss_scale{};  ///< gradients are multiplied by it, losses are not
};

}  // namespace gradus::nn

// SPDX-License-Identifier: BSL-1.0
//
// The description of a training step that update rules get.
#pragma once

#include <cstdint>  // std::uint64_t

#include "gradus/core/config.hpp"

namespace gradus::optim {

/// One training step. All calls of a rule's update for the step get the same value.
struct update_step {
  /// A learning rate by itself is the first step.
  update_step(double rate, std::uint64_t step = 0) noexcept : learning_rate{rate}, number{step} {}

  double learning_rate;  ///< the learning rate
  std::uint64_t number;  ///< steps made before, by this trainer or, on a parameter server, to this parameter
};

}  // namespace gradus::optim

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

  double learning_rate;  ///< the learning rate, before segment::learning_rate_factor
  /// Steps made before, by this trainer or, on a parameter server, to this parameter. Where the loss is scaled a rule
  /// gets the updates made before, without the steps that were skipped; on a device with memory of its own it gets all
  /// steps, and its kernels subtract numbers[skipped_steps] of the loss_scale, which is stored there.
  std::uint64_t number;
};

}  // namespace gradus::optim

// SPDX-License-Identifier: BSL-1.0
//
// What an update rule is told of the step that it makes.
#pragma once

#include <cstdint>  // std::uint64_t

#include "gradus/core/config.hpp"

namespace gradus::optim {

/// A step of training: all calls of a rule's update for it are given the same one, however many they are.
struct update_step {
  /// A learning rate alone is the first step.
  update_step(double rate, std::uint64_t step = 0) noexcept : learning_rate{rate}, number{step} {}

  double learning_rate;
  std::uint64_t number;  ///< of steps made before, by this trainer or, on a parameter server, to this parameter
};

}  // namespace gradus::optim

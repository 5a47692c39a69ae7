// SPDX-License-Identifier: BSL-1.0
//
// What a network tells while it runs a step.
#pragma once

#include <cstddef>  // std::size_t

#include "gradus/nn/phase.hpp"

namespace gradus::nn {

/// Hears of a training step as it runs: derive from it and override what is of interest. It is called by the thread
/// that runs the network, which goes on when the call returns, and in the order of the layers. Of layers that run side
/// by side on the streams of a device it hears when all of them are done: their calls follow each other without a
/// pause.
class step_hooks {
 public:
  step_hooks() = default;
  step_hooks(const step_hooks&) = delete;
  step_hooks& operator=(const step_hooks&) = delete;

  /// @param layer  the number of the layer, counted in the order of add
  /// @param which  phase::forward or phase::backward
  ///
  /// Layers that run side by side (cpu_options::inter_op_threads) are all announced before the first of them runs.
  virtual void before_layer(std::size_t /*layer*/, phase /*which*/) {}
  virtual void after_layer(std::size_t /*layer*/, phase /*which*/) {}

  /// The gradients of `count` parameters of network::parameters(), from `first` on, are complete.
  virtual void gradients_ready(std::size_t /*first*/, std::size_t /*count*/) {}

 protected:
  ~step_hooks() = default;
};

}  // namespace gradus::nn

// SPDX-License-Identifier: BSL-1.0
//
// Functions that a network calls during a training step.
#pragma once

#include <cstddef>  // std::size_t

#include "gradus/nn/network/phase.hpp"

namespace gradus::nn {

/// The network calls these functions during a training step; derive and override the ones that you need.
///
/// The thread that runs the network makes the calls, in the order of the layers (in backward: in reverse order), and
/// waits for each call to return. For layers that run in parallel (cpu_options::inter_op_threads), it calls
/// before_layer for all of them before the first one runs, and the other functions when the last one is done.
class step_hooks {
 public:
  step_hooks() = default;
  step_hooks(const step_hooks&) = delete;
  step_hooks& operator=(const step_hooks&) = delete;

  /// Called before a layer runs, with its index in the order of network::add, and phase::forward or
  /// phase::backward.
  virtual void before_layer(std::size_t /*layer*/, phase /*which*/) {}
  /// Called after a layer has run; the parameters are those of before_layer.
  virtual void after_layer(std::size_t /*layer*/, phase /*which*/) {}

  /// Called in place of the two calls of a forward pass, in their order, in a step for which this rank has no examples:
  /// the layer computes nothing, gradients become zero when all layers have been skipped, and then they are ready. What
  /// before_layer waits for has to be complete when it returns.
  virtual void skip_layer(std::size_t layer) {
    before_layer(layer, phase::forward);
    after_layer(layer, phase::forward);
  }

  /// Called when the gradients of the parameters [first, first + count) of network::parameters() are complete.
  virtual void gradients_ready(std::size_t /*first*/, std::size_t /*count*/) {}

  /// Called before a stage of a network in stages computes with a micro-batch of the step; both are numbered from 0.
  /// The calls for its layers come between this and after_pass. Waits for other ranks are outside of both.
  virtual void before_pass(stage_pass /*which*/, std::size_t /*stage*/, std::size_t /*micro_batch*/) {}
  /// Called after it, before the results are sent.
  virtual void after_pass() {}

 protected:
  ~step_hooks() = default;
};

}  // namespace gradus::nn

// SPDX-License-Identifier: BSL-1.0
//
// The part of an execution plan that one stage of a pipeline runs, as data.
#pragma once

#include <cstddef>  // std::size_t

#include "gradus/core/dynamic_array.hpp"
#include "gradus/nn/plan/execution_plan.hpp"
#include "gradus/nn/plan/memory_plan.hpp"

namespace gradus::nn {

/// How many micro-batches a stage has under way.
struct stage_depth {
  /// Micro-batches that have run forward and not yet all of backward, at most.
  std::size_t stored = 1;
  /// Backward runs in two parts: gradients of the inputs, and later those of the weights.
  bool splits_backward = false;
  /// Micro-batches whose gradients at the cuts are in memory at a time, at least. Two let the gradients of a
  /// micro-batch come while those of the one before are sent on.
  std::size_t gradients = 2;
};

/// What a stage sends to another one for each micro-batch: the memory of a slot, or that of its gradient.
struct stage_transfer {
  std::size_t slot = 0;      ///< of the execution plan
  std::size_t peer = 0;      ///< the other stage
  std::size_t number = 0;    ///< of this transfer among those of all stages in its direction
  std::size_t value_of = 0;  ///< a value in the slot, which tells the elements of an example
};

/// Two stages between which something crosses the cuts: values from a stage to a later one, gradients to an earlier
/// one.
struct stage_route {
  std::size_t from = 0;  ///< the stage that sends
  std::size_t to = 0;    ///< the stage that receives

  /// True if all members are equal.
  friend bool operator==(const stage_route&, const stage_route&) = default;
};

/// What one stage of a network runs, as data. A stage is a piece of the steps of the whole network in time, with the
/// same fused layers and the same writers of each gradient: so its results are the same bits. What crosses a cut is the
/// memory that is in use then. It goes to the next stage that uses it, and from there to the one after.
struct stage_plan {
  execution_plan plan;    ///< of the whole network; the offsets are those of this stage, in the first copy of a region
  std::size_t first = 0;  ///< the first layer
  std::size_t end = 0;    ///< the layer after the last one

  dynamic_array<stage_transfer> values_in;      ///< before forward
  dynamic_array<stage_transfer> values_out;     ///< after forward
  dynamic_array<stage_transfer> gradients_in;   ///< before backward
  dynamic_array<stage_transfer> gradients_out;  ///< after backward, or after its first part
  dynamic_array<stage_route> routes;            ///< of all stages of the network, each once: the same in all plans

  /// Layers whose weights have their gradients in the second part of backward: stage_depth::splits_backward.
  dynamic_array<unsigned char> later_weights;

  dynamic_array<memory_region> regions;  ///< of the arena, in the order of their bytes
  std::size_t value_copies = 1;          ///< of the memory of values_in
  std::size_t gradient_copies = 1;       ///< of the memory of gradients_in and gradients_out
};

}  // namespace gradus::nn

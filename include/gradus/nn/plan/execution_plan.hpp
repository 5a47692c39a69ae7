// SPDX-License-Identifier: BSL-1.0
//
// How a layer graph runs, as data: which layers are fused or share memory, who writes which gradient, what lives when.
#pragma once

#include <cstddef>  // std::size_t
#include <limits>   // std::numeric_limits
#include <span>     // std::span

#include "gradus/core/dynamic_array.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/plan/memory_plan.hpp"

namespace gradus::nn {

/// A layer graph as the plan sees it. Value 0 is the input of the network; node i makes value i + 1 from earlier
/// values.
struct graph_description {
  struct node {
    dynamic_array<std::size_t> inputs;  ///< values
    layer_traits traits;
    bool has_parameters = false;
    std::size_t output_bytes = 0;  ///< of the largest batch
    std::size_t state_bytes = 0;   ///< kept from forward to backward
    double work = 0;               ///< of a forward pass, in any unit
  };

  dynamic_array<node> nodes;
  std::size_t scores = 0;  ///< the value that the loss reads
  bool has_loss = false;
};

/// Parts of a step whose layers run side by side.
///
/// A region is a stretch of time in which the steps fall into branches: no branch reads what another one writes. It
/// begins after the step that the branches share and ends before the one that joins them. Gradients that several
/// branches add to are written in the order of time all the same, because steps wait for each other there; a step waits
/// only for steps of branches that come before its own.
struct stream_schedule {
  struct region {
    std::size_t first_time = 0;
    std::size_t last_time = 0;
    std::size_t first_branch = 0;
    std::size_t branches = 0;
  };
  struct step {
    std::size_t time = 0;
    std::size_t first_wait = 0;
    std::size_t waits = 0;
  };

  dynamic_array<region> regions;        ///< in the order of time
  dynamic_array<std::size_t> branches;  ///< where in `steps` each begins, and at last where the last one ends
  dynamic_array<step> steps;
  dynamic_array<std::size_t> waits;  ///< times
};

/// What a compiled network does in a step, as data.
///
/// Time runs from 0 to 2 * nodes: node i runs forward at i, the loss at `nodes`, node i backward at 2 * nodes - i.
/// Values that share memory (a flattened image, a ReLU in place, a sum that the layer before it adds) share a slot. The
/// gradient of a sum is the gradient of its terms: where a term's gradient begins with it, the two share memory too.
struct execution_plan {
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  /// Who sees to something when a layer has run backward: nobody has to, the layer does, or the network right after it.
  enum class duty : unsigned char { nobody, layer, network };

  /// The gradient of a value at a layer that reads it, or at the loss.
  ///
  ///   of             | is written (or added) by                    | and masked by
  ///   an input       | the layer                                   | the layer, if it writes and
  ///   masks_input_gradients;
  ///                  |                                             | else the network
  ///   the residual   | the layer, if writes_residual_gradient;     | the network
  ///                  | else the network: it is the output's        |
  ///   the scores     | the loss                                    | the network
  ///
  /// Nobody writes where no parameter needs it, or where it begins with the gradient of the layer's output and has the
  /// same memory. It is masked by whoever makes it complete, where the value is the output of a ReLU that shares memory
  /// with what the ReLU reads: the gradient of the output that a layer gets is complete and masked.
  struct gradient_target {
    duty write = duty::nobody;
    bool accumulate = false;  ///< somebody wrote a part of it before
    duty mask = duty::nobody;
  };

  struct node {
    bool forward = true;                                             ///< runs in the forward pass
    bool backward = true;                                            ///< runs in the backward pass
    kernels::activation activation = kernels::activation::identity;  ///< fused into the layer
    std::size_t residual = none;                                     ///< the value that the layer adds to its output
    dynamic_array<gradient_target> targets;                          ///< one an input
    gradient_target residual_target;
    std::size_t state_offset = none;  ///< bytes in the arena
    std::size_t recompute_first = 0;  ///< where in `recomputed` the nodes are that run forward again just before this
    std::size_t recompute_count = 0;  ///< one runs backward, and how many
  };

  struct slot {
    std::size_t producer = none;  ///< the node that writes it first; none for the input
    bool relu = false;            ///< holds the output of a ReLU
    bool has_gradient = false;
    std::size_t value_offset = none;     ///< bytes in the arena; none for the input
    std::size_t backward_offset = none;  ///< the same for the backward pass: elsewhere if it is computed again
    std::size_t gradient_offset = none;  ///< bytes in the arena
  };

  dynamic_array<node> nodes;
  dynamic_array<slot> slots;
  dynamic_array<std::size_t> slot_of_value;
  dynamic_array<std::size_t> recomputed;  ///< nodes
  stream_schedule streams;
  gradient_target loss_target;
  std::size_t arena_bytes = 0;
  std::size_t unshared_bytes = 0;  ///< what the same buffers would take side by side
};

/// The memory that a network would take, in bytes.
struct memory_forecast {
  execution_plan plan = {};
  std::size_t arena = 0;      ///< values and their gradients
  std::size_t workspace = 0;  ///< of layers, while they run
  std::size_t parameters = 0;
  std::size_t gradients = 0;  ///< of parameters; with a micro-batch also the sums so far
  std::size_t buffers = 0;

  [[nodiscard]] std::size_t total() const noexcept { return arena + workspace + parameters + gradients + buffers; }
};

/// When the value of a slot is in use; see execution_plan for the times.
struct value_lifetime {
  std::size_t bytes = 0;
  std::size_t first = 0;                              ///< written by its producer
  std::size_t forward_last = 0;                       ///< last use until the loss,
  std::size_t backward_first = execution_plan::none;  ///< first and last use after it
  std::size_t backward_last = 0;
  // What becomes of it:
  std::size_t kept_last = 0;                       ///< its memory is given up after this time, and
  std::size_t again_first = execution_plan::none;  ///< it is computed again, elsewhere, at this time,
  std::size_t again_last = 0;                      ///< and stays until this one
};

/// Decides what runs side by side.
/// @param gradient_of  of each slot, the slot whose gradient memory it uses
using stream_rule = stream_schedule (*)(const graph_description& graph, const execution_plan& plan,
                                        std::span<const std::size_t> gradient_of, std::size_t streams);

/// Decides which values are computed again: sets node::recompute_first, node::recompute_count and recomputed, and what
/// becomes of the values.
using recompute_rule = void (*)(const graph_description& graph, execution_plan& plan, std::span<value_lifetime> values,
                                std::span<const buffer_lifetime> others);

/// What a plan may do so that a step takes less time and memory. All are on; without one of them a step makes the same
/// results to rounding, which tells whether an error is the plan's.
struct plan_optimizations {
  bool fuse_activations = true;  ///< a ReLU is computed by the layer whose output it reads
  bool relu_in_place = true;     ///< a ReLU writes over what it reads
  bool fuse_sums = true;         ///< a sum is computed by the layer whose output it reads
  bool share_gradients = true;   ///< the gradient of a sum is that of a term, in the same memory
  bool reuse_memory = true;      ///< values and gradients that are not in use at the same time share memory

  /// Every layer runs by itself, and every value and gradient has memory of its own.
  [[nodiscard]] static constexpr plan_optimizations none() noexcept {
    return {.fuse_activations = false,
            .relu_in_place = false,
            .fuse_sums = false,
            .share_gradients = false,
            .reuse_memory = false};
  }

  friend constexpr bool operator==(const plan_optimizations&, const plan_optimizations&) noexcept = default;
};

/// What a plan does beside the least.
struct plan_options {
  recompute_rule recompute = nullptr;  ///< null: nothing is computed again
  stream_rule side_by_side = nullptr;  ///< null: the layers run one after another
  std::size_t streams = 1;             ///< layers that may run at the same time
  plan_optimizations optimizations = {};
};

}  // namespace gradus::nn

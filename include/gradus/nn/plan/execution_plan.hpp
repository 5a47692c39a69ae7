// SPDX-License-Identifier: BSL-1.0
//
// How a layer graph runs, as data: fused layers, shared memory, the writer of each gradient, and lifetimes.
#pragma once

#include <cstddef>  // std::size_t
#include <limits>   // std::numeric_limits
#include <span>     // std::span

#include "gradus/core/dynamic_array.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/plan/memory_plan.hpp"

namespace gradus::nn {

/// A layer graph as input of the planner. Value 0 is the network's input; node i makes value i + 1 from earlier values.
struct graph_description {
  /// A layer.
  struct node {
    dynamic_array<std::size_t> inputs;  ///< values
    layer_traits traits;                ///< what the layer reads backward and what it can fuse
    bool trains = false;                ///< it has parameters that are trained: it needs the gradient of its output
    std::size_t output_bytes = 0;       ///< bytes of the output for the largest batch
    std::size_t state_bytes = 0;        ///< kept from forward to backward
    double work = 0;                    ///< cost of a forward pass, in any unit
    bool multiplies = false;            ///< it has multiply-adds: its gradients of the weights take time
  };

  dynamic_array<node> nodes;    ///< in the order in which they run forward
  std::size_t scores = 0;       ///< the value that the loss reads
  bool has_loss = false;        ///< false: no layer runs backward
  std::size_t input_bytes = 0;  ///< bytes of the network's input for the largest batch
};

/// Parts of a step whose layers run in parallel on streams.
///
/// A region is a range of times whose steps form branches: no branch reads a value that another one writes. The region
/// begins after the step that the branches share and ends before the step that joins them. Several branches may add to
/// one gradient; these writes keep the order of time because steps wait for each other. A step waits only for steps of
/// earlier branches.
struct stream_schedule {
  /// The times [first_time, last_time] and their branches, as a range of `branches`.
  struct region {
    std::size_t first_time = 0;    ///< time of the first step
    std::size_t last_time = 0;     ///< time of the last step
    std::size_t first_branch = 0;  ///< index of its first branch in stream_schedule::branches
    std::size_t branches = 0;      ///< number of branches
  };
  /// A step of a branch, and the steps that it waits for, as a range of stream_schedule::waits.
  struct step {
    std::size_t time = 0;        ///< as execution_plan defines times
    std::size_t first_wait = 0;  ///< index in stream_schedule::waits
    std::size_t waits = 0;       ///< number of steps that it waits for
  };

  dynamic_array<region> regions;  ///< in the order of time
  /// Index in `steps` where each branch begins; the last entry is the end of the last branch.
  dynamic_array<std::size_t> branches;
  dynamic_array<step> steps;         ///< branch by branch, in the order of time in each
  dynamic_array<std::size_t> waits;  ///< times
};

/// The steps of a compiled network, as data.
///
/// Time runs from 0 to 2 * nodes: node i runs forward at i, the loss at `nodes`, node i backward at 2 * nodes - i.
/// Values that share memory share a slot: a flattened image, a ReLU in place, a sum that the layer before it adds. The
/// gradient of a sum is the gradient of its terms: where it is the first contribution to the gradient of a term, the
/// two share memory.
struct execution_plan {
  /// Stands for a node, value, time or offset that does not exist.
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  /// Who does a task of a layer's backward pass: the layer, the network right after it, or neither.
  enum class duty : unsigned char { none, layer, network };

  /// The gradient of a value at a layer that reads it, or at the loss.
  ///
  ///   gradient of    | written or added by                             | masked by
  ///   an input       | the layer                                       | the layer if it writes and
  ///                  |                                                 | masks_input_gradients (for any_activation,
  ///                  |                                                 | or ReLU), else the network
  ///   the residual   | the layer if writes_residual_gradient, else the | the network
  ///                  | network: it equals the output's gradient        |
  ///   the scores     | the loss                                        | the network
  ///
  /// The gradient is not written where no parameter needs it, or where it begins as the gradient of the layer's output
  /// in the same memory. If the value is the output of an activation, fused or in place, the last writer of the
  /// gradient multiplies it by the derivative: it masks it. So the output gradient that a layer receives is complete
  /// and masked.
  struct gradient_target {
    duty write = duty::none;  ///< who writes the gradient or adds to it
    bool accumulate = false;  ///< an earlier writer has written a part of it
    duty mask = duty::none;   ///< who multiplies it by the derivative of the activation whose output the value is
  };

  /// What is planned for a layer.
  struct node {
    bool forward = true;                                             ///< runs in the forward pass
    bool backward = true;                                            ///< runs in the backward pass
    kernels::activation activation = kernels::activation::identity;  ///< fused into the layer
    std::size_t residual = none;                                     ///< the value that the layer adds to its output
    std::size_t folded = none;  ///< the affine layer behind this one whose factors are in its weights; inference only
    dynamic_array<gradient_target> targets;  ///< one for each input
    gradient_target residual_target;         ///< the gradient of the residual
    std::size_t state_offset = none;         ///< bytes in the arena
    std::size_t recompute_first = 0;         ///< first index in `recomputed` of the nodes that run forward
    std::size_t recompute_count = 0;         ///< again just before this one runs backward, and their number
  };

  /// The memory of one or more values and of their gradient.
  struct slot {
    std::size_t producer = none;  ///< the node that writes it first; none for the input
    /// The value is the output of this activation, fused or in place.
    kernels::activation activation = kernels::activation::identity;
    bool has_gradient = false;           ///< a parameter needs the gradient, and a layer or the loss contributes to it
    std::size_t value_offset = none;     ///< bytes in the arena; none for the input
    std::size_t backward_offset = none;  ///< the same in the backward pass; another offset if recomputed
    std::size_t gradient_offset = none;  ///< bytes in the arena
    std::size_t gradient_of = none;      ///< the slot in whose memory the gradient is: this one, or that of a sum
  };

  dynamic_array<node> nodes;                 ///< one for each layer
  dynamic_array<slot> slots;                 ///< the first holds the network's input
  dynamic_array<std::size_t> slot_of_value;  ///< index in `slots` for each value
  dynamic_array<std::size_t> recomputed;     ///< nodes
  stream_schedule streams;                   ///< without regions: the layers run one after another
  gradient_target loss_target;               ///< the gradient of the scores at the loss
  std::size_t arena_bytes = 0;               ///< size of the arena that the offsets refer to
  std::size_t unshared_bytes = 0;            ///< arena size if no buffers shared memory
};

/// The memory that a network needs, in bytes.
struct memory_forecast {
  execution_plan plan = {};                 ///< of the largest batch that is computed at once
  std::size_t arena = 0;                    ///< values and their gradients
  std::size_t workspace = 0;                ///< the largest of any layer, for each stream
  std::size_t parameters = 0;               ///< values of parameters
  std::size_t gradients = 0;                ///< gradients of parameters; with micro-batches also their partial sums
  std::size_t buffers = 0;                  ///< statistics that are not trained, such as running means
  std::size_t copies = 0;                   ///< folded and prepared weights of a network for inference
  dynamic_array<layer_memory> layers = {};  ///< state and workspace of each layer

  /// The sum of all parts.
  [[nodiscard]] std::size_t total() const noexcept {
    return arena + workspace + parameters + gradients + buffers + copies;
  }
};

/// The times at which the value of a slot is in use; execution_plan defines the times.
struct value_lifetime {
  std::size_t bytes = 0;                              ///< size of the largest value of the slot
  std::size_t first = 0;                              ///< written by its producer
  std::size_t forward_last = 0;                       ///< last use up to the loss
  std::size_t backward_first = execution_plan::none;  ///< first use after the loss; none: never used there
  std::size_t backward_last = 0;                      ///< last use after the loss
  // Set by the recompute rule:
  std::size_t kept_last = 0;                       ///< its memory is free after this time,
  std::size_t again_first = execution_plan::none;  ///< it is recomputed at this time, at another offset,
  std::size_t again_last = 0;                      ///< and stays until this one
};

/// Decides which layers run in parallel.
/// @param gradient_of  for each slot: the slot whose gradient memory it uses
using stream_rule = stream_schedule (*)(const graph_description& graph, const execution_plan& plan,
                                        std::span<const std::size_t> gradient_of, std::size_t streams);

/// Decides which values are recomputed in the backward pass. Sets node::recompute_first, node::recompute_count,
/// `recomputed`, and the last three fields of the lifetimes.
using recompute_rule = void (*)(const graph_description& graph, execution_plan& plan, std::span<value_lifetime> values,
                                std::span<const buffer_lifetime> others);

/// Chooses offsets so that buffers that are in use at the same time do not overlap.
using memory_rule = memory_plan (*)(std::span<const buffer_lifetime> buffers);

/// Optimizations of an execution plan that save time and memory. All are on. With one of them off, a step gives the
/// same results up to rounding; this shows whether an error comes from that optimization.
struct plan_optimizations {
  bool fuse_activations = true;  ///< the layer that writes a ReLU's input computes the ReLU, or an activation like it
  bool relu_in_place = true;     ///< a ReLU, or an activation like it, overwrites its input
  bool fuse_sums = true;         ///< the layer that writes a term of a sum computes the sum
  bool share_gradients = true;   ///< the gradient of a sum and that of a term share memory
  bool reuse_memory = true;      ///< values and gradients with disjoint lifetimes share memory

  /// Every layer runs by itself, and every value and gradient has its own memory.
  [[nodiscard]] static constexpr plan_optimizations none() noexcept {
    return {.fuse_activations = false,
            .relu_in_place = false,
            .fuse_sums = false,
            .share_gradients = false,
            .reuse_memory = false};
  }

  /// Equal switches.
  friend constexpr bool operator==(const plan_optimizations&, const plan_optimizations&) noexcept = default;
};

/// Optional planning passes.
struct plan_options {
  recompute_rule recompute = nullptr;     ///< null: nothing is recomputed
  stream_rule side_by_side = nullptr;     ///< null: the layers run one after another
  std::size_t streams = 1;                ///< the number of layers that may run at the same time
  plan_optimizations optimizations = {};  ///< the optimizations that are on
  /// Only forward runs, outside training: no layer runs backward, and layers that do nothing outside training vanish.
  bool inference = false;
  bool fold_affine = false;          ///< of an inference plan: execution_plan::node::folded
  bool prepared = false;             ///< of an inference plan: layers read prepared weights
  memory_rule place = &plan_memory;  ///< the offsets of values and gradients
};

}  // namespace gradus::nn

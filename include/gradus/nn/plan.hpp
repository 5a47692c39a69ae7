// SPDX-License-Identifier: BSL-1.0
//
// How a layer graph runs: which layers are fused or share memory, who writes which gradient, what lives when.
// Module: nn. Depends on: kernels.
#pragma once

#include <algorithm>  // std::max, std::min
#include <cstddef>    // std::size_t
#include <limits>     // std::numeric_limits
#include <span>       // std::span
#include <utility>    // std::move
#include <vector>     // std::vector

#include "gradus/core/config.hpp"     // GRADUS_COLD
#include "gradus/core/vector.hpp"     // vector
#include "gradus/kernels/conv2d.hpp"  // activation
#include "gradus/nn/layer.hpp"        // layer_traits
#include "gradus/nn/memory_plan.hpp"  // buffer_lifetime, plan_memory

namespace gradus::nn {

/// A layer graph as the plan sees it. Value 0 is the input of the network; node i makes value i + 1 from earlier
/// values.
struct graph_description {
  struct node {
    gradus::detail::vector<std::size_t> inputs;  ///< values
    layer_traits traits;
    bool has_parameters = false;
    std::size_t output_bytes = 0;  ///< of the largest batch
    std::size_t state_bytes = 0;   ///< kept from forward to backward
    double work = 0;               ///< of a forward pass, in any unit
  };

  gradus::detail::vector<node> nodes;
  std::size_t scores = 0;  ///< the value that the loss reads
  bool has_loss = false;
};

/// Parts of a step whose layers run side by side.
///
/// A region is a stretch of time in which the steps fall into branches: no branch reads what another one writes. It
/// begins after the step that the branches share and ends before the one that joins them. Gradients that several
/// branches add to are written in the order of time all the same, because steps wait for each other there; a step waits
/// only for steps of branches that come before its own.
struct lane_schedule {
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

  gradus::detail::vector<region> regions;        ///< in the order of time
  gradus::detail::vector<std::size_t> branches;  ///< where in `steps` each begins, and at last where the last one ends
  gradus::detail::vector<step> steps;
  gradus::detail::vector<std::size_t> waits;  ///< times
};

/// What a frozen network does in a step, as data.
///
/// Time runs from 0 to 2 * nodes: node i runs forward at i, the loss at `nodes`, node i backward at 2 * nodes - i.
/// Values that share memory (a flattened image, a ReLU in place, a sum that the layer before it adds) share a slot. The
/// gradient of a sum is the gradient of its terms: where a term's gradient begins with it, the two share memory too.
struct execution_plan {
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  /// How a layer writes the gradient of one of its inputs.
  struct gradient_target {
    bool wanted = false;      ///< the layer writes it
    bool accumulate = false;  ///< somebody wrote a part of it before
    bool mask = false;        ///< the value is the output of a ReLU and this is its last part: the layer masks it
    bool mask_after = false;  ///< the same, but the layer cannot: the network does
  };

  struct node {
    bool forward = true;                                             ///< runs in the forward pass
    bool backward = true;                                            ///< runs in the backward pass
    kernels::activation activation = kernels::activation::identity;  ///< fused into the layer
    std::size_t residual = none;                                     ///< the value that the layer adds to its output
    gradus::detail::vector<gradient_target> targets;                 ///< one an input
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

  gradus::detail::vector<node> nodes;
  gradus::detail::vector<slot> slots;
  gradus::detail::vector<std::size_t> slot_of_value;
  gradus::detail::vector<std::size_t> recomputed;  ///< nodes
  lane_schedule lanes;
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
using lane_rule = lane_schedule (*)(const graph_description& graph, const execution_plan& plan,
                                    std::span<const std::size_t> gradient_of, std::size_t lanes);

/// Decides which values are computed again: sets node::recompute_first, node::recompute_count and recomputed, and what
/// becomes of the values.
using recompute_rule = void (*)(const graph_description& graph, execution_plan& plan, std::span<value_lifetime> values,
                                std::span<const buffer_lifetime> others);

/// What a plan does beside the least.
struct plan_options {
  recompute_rule recompute = nullptr;  ///< null: nothing is computed again
  lane_rule side_by_side = nullptr;    ///< null: the layers run one after another
  std::size_t lanes = 1;               ///< layers that may run at the same time
};

namespace detail {

/// Assigns slots and fuses activations.
class plan_builder {
 public:
  GRADUS_COLD plan_builder(const graph_description& graph, const plan_options& options)
      : graph_{graph},
        count_{graph.nodes.size()},
        options_{options},
        consumers_(count_ + 1),
        states_(count_ + 1),
        lifetimes_(count_ + 1) {}

  GRADUS_COLD execution_plan build() {
    find_consumers();
    assign_slots();
    decide_gradients();
    place_buffers();
    return std::move(plan_);
  }

 private:
  [[nodiscard]] std::size_t backward_time(std::size_t node) const { return 2 * count_ - node; }

  GRADUS_COLD void find_consumers() {
    for (const auto& node : graph_.nodes) {
      for (const std::size_t value : node.inputs) {
        ++consumers_[value];
      }
    }
    if (graph_.has_loss) {
      ++consumers_[graph_.scores];
    }
  }

  GRADUS_COLD void assign_slots() {
    plan_.nodes = gradus::detail::vector<execution_plan::node>(count_);
    plan_.slot_of_value = gradus::detail::vector<std::size_t>(count_ + 1);
    plan_.slots.push_back({});  // the input
    for (std::size_t i = 0; i < count_; ++i) {
      const auto& node = graph_.nodes[i];
      const std::size_t first_input = node.inputs.front();
      const std::size_t slot = plan_.slot_of_value[first_input];
      // A chain of single consumers from the slot's producer to here: nobody else reads what this node replaces.
      const bool sole_reader = states_[slot].exclusive && consumers_[first_input] == 1;
      if (node.traits.aliases_input) {
        plan_.nodes[i].forward = false;
        plan_.nodes[i].backward = false;
        plan_.slot_of_value[i + 1] = slot;
        states_[slot].exclusive = sole_reader;
      } else if (node.traits.is_activation == kernels::activation::relu && sole_reader && replaceable(slot)) {
        const std::size_t producer = plan_.slots[slot].producer;
        plan_.nodes[i].backward = false;
        if (plan_.slots[slot].relu) {
          plan_.nodes[i].forward = false;
        } else if (graph_.nodes[producer].traits.fuses_activation) {
          plan_.nodes[i].forward = false;
          plan_.nodes[producer].activation = kernels::activation::relu;
        }
        plan_.slots[slot].relu = true;
        plan_.slot_of_value[i + 1] = slot;
      } else if (const std::size_t term = fusable_term(i); term != execution_plan::none) {
        const std::size_t sum_slot = plan_.slot_of_value[term];
        plan_.nodes[i].forward = false;
        plan_.nodes[i].backward = false;
        plan_.nodes[plan_.slots[sum_slot].producer].residual = node.inputs[0] == term ? node.inputs[1] : node.inputs[0];
        plan_.slot_of_value[i + 1] = sum_slot;
      } else {
        plan_.slot_of_value[i + 1] = plan_.slots.size();
        states_[plan_.slots.size()].exclusive = true;
        plan_.slots.push_back({.producer = i,
                               .relu = false,
                               .has_gradient = false,
                               .value_offset = execution_plan::none,
                               .backward_offset = execution_plan::none,
                               .gradient_offset = execution_plan::none});
      }
    }
  }

  /// The term of the sum at node i whose producer can add the other term, or none.
  [[nodiscard]] GRADUS_COLD std::size_t fusable_term(std::size_t i) const {
    const auto& node = graph_.nodes[i];
    if (!node.traits.is_sum) {
      return execution_plan::none;
    }
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
      const std::size_t term = node.inputs[k];
      const std::size_t other = node.inputs[1 - k];
      const std::size_t slot = plan_.slot_of_value[term];
      const std::size_t producer = plan_.slots[slot].producer;
      // The other term must be there when the producer runs, and must not be what it reads.
      const bool fits = producer != execution_plan::none && producer + 1 == term && states_[slot].exclusive &&
                        consumers_[term] == 1 && !plan_.slots[slot].relu && other <= producer &&
                        plan_.nodes[producer].residual == execution_plan::none &&
                        graph_.nodes[producer].traits.fuses_residual && replaceable(slot);
      if (fits && plan_.slot_of_value[other] != plan_.slot_of_value[graph_.nodes[producer].inputs.front()]) {
        return term;
      }
    }
    return execution_plan::none;
  }

  /// Whether the producer's backward pass can do without the value as it wrote it.
  [[nodiscard]] bool replaceable(std::size_t slot) const {
    const std::size_t producer = plan_.slots[slot].producer;
    return producer != execution_plan::none && !graph_.nodes[producer].traits.backward_reads_output;
  }

  GRADUS_COLD void decide_gradients() {
    std::vector<unsigned char> differentiable(count_ + 1);  // of each value: whether a parameter reaches it
    for (std::size_t i = 0; i < count_; ++i) {
      bool any = graph_.nodes[i].has_parameters;
      for (const std::size_t value : graph_.nodes[i].inputs) {
        any = any || differentiable[value] != 0;
      }
      if (const std::size_t residual = plan_.nodes[i].residual; residual != execution_plan::none) {
        any = any || differentiable[residual] != 0;
      }
      differentiable[i + 1] = any ? 1 : 0;
    }
    const std::size_t slots = plan_.slots.size();
    for (std::size_t slot = 0; slot < slots; ++slot) {
      states_[slot].gradient_of = slot;
    }
    // Node `node` adds to the gradient of `value`; where that begins with the gradient of `same_as`, they share memory.
    const auto contribute = [&](execution_plan::gradient_target& target, std::size_t value, std::size_t node,
                                std::size_t time, std::size_t same_as) {
      const std::size_t slot = plan_.slot_of_value[value];
      if (differentiable[value] == 0) {
        return;
      }
      slot_state& state = states_[slot];
      target.accumulate = state.last_target != nullptr;
      target.wanted = true;
      if (same_as != execution_plan::none && !target.accumulate) {
        target.wanted = false;
        state.gradient_of = states_[same_as].gradient_of;
      }
      plan_.slots[slot].has_gradient = true;
      state.gradient_first = std::min(state.gradient_first, time);
      state.last_target = &target;
      state.last_node = node;
      state.mask_time = time;
    };
    if (graph_.has_loss) {
      contribute(plan_.loss_target, graph_.scores, count_, count_, execution_plan::none);
    }
    for (std::size_t i = count_; i-- > 0;) {
      auto& node = plan_.nodes[i];
      const auto& described = graph_.nodes[i];
      node.targets = gradus::detail::vector<execution_plan::gradient_target>(described.inputs.size());
      const std::size_t out = plan_.slot_of_value[i + 1];
      // A layer that nothing differentiable reads has no gradient to pass on.
      node.backward = node.backward && differentiable[i + 1] != 0 && states_[out].last_target != nullptr;
      if (!node.backward) {
        continue;
      }
      if (node.residual != execution_plan::none) {
        contribute(node.residual_target, node.residual, i, backward_time(i), out);
      }
      const bool distinct = described.traits.is_sum &&
                            plan_.slot_of_value[described.inputs[0]] != plan_.slot_of_value[described.inputs[1]];
      bool shared = !distinct;
      for (std::size_t k = 0; k < described.inputs.size(); ++k) {
        auto& target = node.targets[k];
        contribute(target, described.inputs[k], i, backward_time(i), shared ? execution_plan::none : out);
        shared = shared || (!target.wanted && differentiable[described.inputs[k]] != 0);
      }
    }
    for (std::size_t s = 0; s < slots; ++s) {
      if (execution_plan::gradient_target* const last = states_[s].last_target;
          plan_.slots[s].relu && last != nullptr) {
        const std::size_t node = states_[s].last_node;
        const bool by_layer = last->wanted && node < count_ && graph_.nodes[node].traits.applies_backward_mask;
        (by_layer ? last->mask : last->mask_after) = true;
      }
    }
  }

  GRADUS_COLD void place_buffers() {
    const std::size_t slots = plan_.slots.size();
    const auto use = [&](std::size_t slot, std::size_t time) {
      value_lifetime& lifetime = lifetimes_[slot];
      if (time <= count_) {
        lifetime.forward_last = std::max(lifetime.forward_last, time);
      } else {
        lifetime.backward_first = std::min(lifetime.backward_first, time);
        lifetime.backward_last = std::max(lifetime.backward_last, time);
      }
    };
    for (std::size_t i = 0; i < count_; ++i) {
      const auto& node = graph_.nodes[i];
      const std::size_t out = plan_.slot_of_value[i + 1];
      lifetimes_[out].bytes = std::max(lifetimes_[out].bytes, node.output_bytes);
      use(out, i);
      for (const std::size_t value : node.inputs) {
        use(plan_.slot_of_value[value], i);
        if (plan_.nodes[i].backward && node.traits.backward_reads_inputs) {
          use(plan_.slot_of_value[value], backward_time(i));
        }
      }
      if (plan_.nodes[i].residual != execution_plan::none) {
        use(plan_.slot_of_value[plan_.nodes[i].residual], i);
      }
      if (plan_.nodes[i].backward && node.traits.backward_reads_output) {
        use(out, backward_time(i));
      }
    }
    // What forward returns stays until the next step begins: the scores, and values that nobody reads.
    for (std::size_t value = 1; value <= count_; ++value) {
      if (consumers_[value] == 0 || (graph_.has_loss && value == graph_.scores)) {
        use(plan_.slot_of_value[value], count_);
      }
    }
    gradus::detail::vector<buffer_lifetime> others;  // beside values
    gradus::detail::vector<std::size_t*> other_places;
    for (std::size_t s = 1; s < slots; ++s) {
      auto& slot = plan_.slots[s];
      if (slot.relu && slot.has_gradient) {
        use(s, states_[s].mask_time);
      }
      lifetimes_[s].first = slot.producer;
      lifetimes_[s].kept_last = std::max(lifetimes_[s].forward_last, lifetimes_[s].backward_last);
      if (slot.has_gradient) {
        slot_state& owner = states_[states_[s].gradient_of];
        owner.gradient_last = std::max(owner.gradient_last, backward_time(slot.producer));
      }
    }
    for (std::size_t s = 1; s < slots; ++s) {
      if (plan_.slots[s].has_gradient && states_[s].gradient_of == s) {
        others.push_back(
            {.bytes = lifetimes_[s].bytes, .first = states_[s].gradient_first, .last = states_[s].gradient_last});
        other_places.push_back(&plan_.slots[s].gradient_offset);
      }
    }
    for (std::size_t i = 0; i < count_; ++i) {
      if (graph_.nodes[i].state_bytes != 0) {
        others.push_back({.bytes = graph_.nodes[i].state_bytes, .first = i, .last = backward_time(i)});
        other_places.push_back(&plan_.nodes[i].state_offset);
      }
    }
    if (options_.recompute != nullptr) {
      options_.recompute(graph_, plan_, {lifetimes_.data(), slots}, others);
    }
    if (options_.side_by_side != nullptr) {
      gradus::detail::vector<std::size_t> gradient_of;
      for (std::size_t s = 0; s < slots; ++s) {
        gradient_of.push_back(states_[s].gradient_of);
      }
      plan_.lanes = options_.side_by_side(graph_, plan_, gradient_of, options_.lanes);
    }
    gradus::detail::vector<buffer_lifetime> buffers;
    gradus::detail::vector<std::size_t*> places;
    for (std::size_t s = 1; s < slots; ++s) {
      const value_lifetime& value = lifetimes_[s];
      buffers.push_back({.bytes = value.bytes, .first = value.first, .last = value.kept_last});
      places.push_back(&plan_.slots[s].value_offset);
      if (value.again_first != execution_plan::none) {
        buffers.push_back({.bytes = value.bytes, .first = value.again_first, .last = value.again_last});
        places.push_back(&plan_.slots[s].backward_offset);
      }
    }
    for (std::size_t b = 0; b < others.size(); ++b) {
      buffers.push_back(others[b]);
      places.push_back(other_places[b]);
    }
    // What a region writes takes no memory that it gives up: its branches do not run in the order of time.
    for (const lane_schedule::region& region : plan_.lanes.regions) {
      for (buffer_lifetime& buffer : buffers) {
        if (buffer.first >= region.first_time && buffer.first <= region.last_time) {
          buffer.first = region.first_time;
        }
      }
    }
    const memory_plan memory = plan_memory(buffers);
    for (std::size_t b = 0; b < places.size(); ++b) {
      *places[b] = memory.offsets[b];
      plan_.unshared_bytes += buffers[b].bytes;
    }
    for (std::size_t s = 1; s < slots; ++s) {
      plan_.slots[s].gradient_offset = plan_.slots[states_[s].gradient_of].gradient_offset;
      if (lifetimes_[s].again_first == execution_plan::none) {
        plan_.slots[s].backward_offset = plan_.slots[s].value_offset;
      }
    }
    plan_.arena_bytes = memory.bytes;
  }

  /// What is known of a slot while the plan is made.
  struct slot_state {
    bool exclusive = false;                                  // its last value is the only one still read
    execution_plan::gradient_target* last_target = nullptr;  // who completes its gradient,
    std::size_t last_node = 0;                               // and the node or loss that this belongs to
    std::size_t mask_time = 0;                               // when its gradient is complete
    std::size_t gradient_of = 0;                             // the slot whose gradient memory it shares
    std::size_t gradient_first = execution_plan::none;       // the lifetime of its gradient memory
    std::size_t gradient_last = 0;
  };

  const graph_description& graph_;
  std::size_t count_;
  plan_options options_;
  execution_plan plan_;
  gradus::detail::vector<std::size_t> consumers_;     // of each value
  gradus::detail::vector<slot_state> states_;         // one a slot, and room for more
  gradus::detail::vector<value_lifetime> lifetimes_;  // likewise
};

}  // namespace detail

/// Plans a graph.
/// @pre every node has at least one input, and its inputs are earlier values
[[nodiscard]] GRADUS_COLD inline execution_plan plan_execution(const graph_description& graph,
                                                               const plan_options& options = {}) {
  return detail::plan_builder{graph, options}.build();
}

}  // namespace gradus::nn

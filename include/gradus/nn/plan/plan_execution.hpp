// SPDX-License-Identifier: BSL-1.0
//
// The planner: makes an execution plan from a layer graph.
#pragma once

#include <algorithm>  // std::max, std::min
#include <cstddef>    // std::size_t
#include <utility>    // std::move
#include <vector>     // std::vector

#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/plan/execution_plan.hpp"
#include "gradus/nn/plan/memory_plan.hpp"

namespace gradus::nn {

namespace detail {

/// Assigns slots, fuses layers, chooses the writer of each gradient, and assigns memory offsets.
class plan_builder {
  using duty = execution_plan::duty;

 public:
  plan_builder(const graph_description& graph, const plan_options& options);

  execution_plan build();

 private:
  [[nodiscard]] std::size_t backward_time(std::size_t node) const { return 2 * count_ - node; }

  void find_consumers();

  void assign_slots();

  /// The term of the sum at node i whose producer can add the other term, or none.
  [[nodiscard]] std::size_t fusable_term(std::size_t i) const;

  /// True if the layer at node i only scales and shifts what the producer of the slot can write scaled and shifted.
  [[nodiscard]] bool folds_affine(std::size_t i, std::size_t slot) const {
    const std::size_t producer = plan_.slots[slot].producer;
    return options_.fold_affine && graph_.nodes[i].traits.affine_outside_training && producer != execution_plan::none &&
           producer + 1 == graph_.nodes[i].inputs.front() &&
           graph_.nodes[producer].traits.folds_affine != weight_channels::none && !is_activated(slot);
  }

  /// True if the value is what the node writes, with an affine layer that is folded into it.
  [[nodiscard]] bool is_output_of(std::size_t node, std::size_t value) const {
    return node + 1 == value ||
           (plan_.nodes[node].folded != execution_plan::none && plan_.nodes[node].folded + 1 == value);
  }

  [[nodiscard]] const plan_optimizations& optimizations() const { return options_.optimizations; }

  /// True if an activation may overwrite the value, in place or fused into the producer. One that a value already has
  /// changes nothing if all its values are at least 0.
  [[nodiscard]] bool takes_activation(std::size_t slot, const kernels::activation& act) const {
    const bool unchanged = plan_.slots[slot].activation == act && act.slope == 0;
    return replaceable(slot) && (unchanged || !is_activated(slot)) &&
           (optimizations().relu_in_place || fuses(plan_.slots[slot].producer, act));
  }

  /// True if a layer may apply an activation to its output.
  [[nodiscard]] bool fuses(std::size_t node, const kernels::activation& act) const {
    const layer_traits& traits = graph_.nodes[node].traits;
    return optimizations().fuse_activations && traits.fuses_activation && knows(traits, act);
  }

  /// True if a layer that fuses or masks does so for this activation.
  [[nodiscard]] static bool knows(const layer_traits& traits, const kernels::activation& act) {
    return traits.any_activation || act == kernels::activation::relu;
  }

  /// True if the value is the output of an activation.
  [[nodiscard]] bool is_activated(std::size_t slot) const {
    return plan_.slots[slot].activation != kernels::activation::identity;
  }

  /// True if the producer's backward pass does not read the value as the producer wrote it.
  [[nodiscard]] bool replaceable(std::size_t slot) const {
    const std::size_t producer = plan_.slots[slot].producer;
    return producer != execution_plan::none && !graph_.nodes[producer].traits.backward_reads_output;
  }

  void decide_gradients();

  void place_buffers();

  /// The state of a slot during planning.
  struct slot_state {
    bool exclusive = false;                                  // only its last value is still read
    execution_plan::gradient_target* last_target = nullptr;  // the target that completes its gradient,
    duty last_masker = duty::none;                           // and who masks it then
    std::size_t mask_time = 0;                               // when its gradient is complete
    std::size_t gradient_of = 0;                             // the slot whose gradient memory it shares
    std::size_t gradient_first = execution_plan::none;       // lifetime of its gradient memory
    std::size_t gradient_last = 0;
  };

  const graph_description& graph_;
  std::size_t count_;
  plan_options options_;
  execution_plan plan_;
  dynamic_array<std::size_t> consumers_;     // of each value
  dynamic_array<slot_state> states_;         // one for each slot, with spare entries
  dynamic_array<value_lifetime> lifetimes_;  // likewise
};

}  // namespace detail

/// Makes the execution plan of a graph.
/// @pre every node has at least one input, and its inputs are earlier values
[[nodiscard]] inline execution_plan plan_execution(const graph_description& graph, const plan_options& options = {}) {
  return detail::plan_builder{graph, options}.build();
}

}  // namespace gradus::nn

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn::detail {

GRADUS_INLINE_CONSTRUCTOR plan_builder::plan_builder(const graph_description& graph, const plan_options& options)
    : graph_{graph},
      count_{graph.nodes.size()},
      options_{options},
      consumers_(count_ + 1),
      states_(count_ + 1),
      lifetimes_(count_ + 1) {}

GRADUS_INLINE execution_plan plan_builder::build() {
  find_consumers();
  assign_slots();
  decide_gradients();
  place_buffers();
  return std::move(plan_);
}

GRADUS_INLINE void plan_builder::find_consumers() {
  for (const auto& node : graph_.nodes) {
    for (const std::size_t value : node.inputs) {
      ++consumers_[value];
    }
  }
  if (graph_.has_loss) {
    ++consumers_[graph_.scores];
  }
}

GRADUS_INLINE void plan_builder::assign_slots() {
  plan_.nodes = dynamic_array<execution_plan::node>(count_);
  plan_.slot_of_value = dynamic_array<std::size_t>(count_ + 1);
  plan_.slots.push_back({});  // the input
  for (std::size_t i = 0; i < count_; ++i) {
    const auto& node = graph_.nodes[i];
    const std::size_t first_input = node.inputs.front();
    const std::size_t slot = plan_.slot_of_value[first_input];
    // True if every value from the slot's producer to here has one consumer: no other node reads the replaced value.
    const bool sole_reader = states_[slot].exclusive && consumers_[first_input] == 1;
    if (node.traits.aliases_input || (options_.inference && node.traits.identity_outside_training)) {
      plan_.nodes[i].forward = false;
      plan_.nodes[i].backward = false;
      plan_.slot_of_value[i + 1] = slot;
      states_[slot].exclusive = sole_reader;
    } else if (sole_reader && folds_affine(i, slot)) {
      plan_.nodes[i].forward = false;
      plan_.nodes[i].backward = false;
      plan_.nodes[first_input - 1].folded = i;
      plan_.slot_of_value[i + 1] = slot;
    } else if (const kernels::activation& act = node.traits.is_activation;
               act != kernels::activation::identity && sole_reader && takes_activation(slot, act)) {
      plan_.nodes[i].backward = false;
      if (plan_.slots[slot].activation == act) {
        plan_.nodes[i].forward = false;
      } else if (fuses(plan_.slots[slot].producer, act)) {
        plan_.nodes[i].forward = false;
        plan_.nodes[plan_.slots[slot].producer].activation = act;
      }
      plan_.slots[slot].activation = act;
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
                             .activation = kernels::activation::identity,
                             .has_gradient = false,
                             .value_offset = execution_plan::none,
                             .backward_offset = execution_plan::none,
                             .gradient_offset = execution_plan::none,
                             .gradient_of = execution_plan::none});
    }
  }
}

GRADUS_INLINE std::size_t plan_builder::fusable_term(std::size_t i) const {
  const auto& node = graph_.nodes[i];
  if (!node.traits.is_sum || !optimizations().fuse_sums) {
    return execution_plan::none;
  }
  for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
    const std::size_t term = node.inputs[k];
    const std::size_t other = node.inputs[1 - k];
    const std::size_t slot = plan_.slot_of_value[term];
    const std::size_t producer = plan_.slots[slot].producer;
    // The other term must be computed before the producer runs.
    const bool fits = producer != execution_plan::none && is_output_of(producer, term) && states_[slot].exclusive &&
                      consumers_[term] == 1 && !is_activated(slot) && other <= producer &&
                      plan_.nodes[producer].residual == execution_plan::none &&
                      graph_.nodes[producer].traits.fuses_residual && replaceable(slot);
    // Backward would write the gradients of the other term and of the producer's input to one memory.
    if (fits && (options_.inference ||
                 plan_.slot_of_value[other] != plan_.slot_of_value[graph_.nodes[producer].inputs.front()])) {
      return term;
    }
  }
  return execution_plan::none;
}

GRADUS_COLD GRADUS_INLINE void plan_builder::decide_gradients() {
  std::vector<unsigned char> differentiable(count_ + 1);  // for each value: 1 if a parameter reaches it
  for (std::size_t i = 0; i < count_; ++i) {
    bool any = graph_.nodes[i].trains;
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
  // `writer` adds to the gradient of `value`. If that begins as the gradient of `same_as`, the two share memory.
  // `masker` masks it if this contribution completes it.
  const auto contribute = [&, this](execution_plan::gradient_target& target, std::size_t value, std::size_t time,
                                    duty writer, duty masker, std::size_t same_as) {
    const std::size_t slot = plan_.slot_of_value[value];
    if (differentiable[value] == 0) {
      return;
    }
    slot_state& state = states_[slot];
    target.accumulate = state.last_target != nullptr;
    target.write = writer;
    state.last_masker = masker;
    if (same_as != execution_plan::none && !target.accumulate && optimizations().share_gradients) {
      target.write = duty::none;
      state.last_masker = duty::network;
      state.gradient_of = states_[same_as].gradient_of;
    }
    plan_.slots[slot].has_gradient = true;
    state.gradient_first = std::min(state.gradient_first, time);
    state.last_target = &target;
    state.mask_time = time;
  };
  // All writers and maskers are decided here: see execution_plan::gradient_target.
  if (graph_.has_loss) {
    contribute(plan_.loss_target, graph_.scores, count_, duty::layer, duty::network, execution_plan::none);
  }
  for (std::size_t i = count_; i-- > 0;) {
    auto& node = plan_.nodes[i];
    const auto& described = graph_.nodes[i];
    node.targets = dynamic_array<execution_plan::gradient_target>(described.inputs.size());
    const std::size_t out = plan_.slot_of_value[i + 1];
    // A layer whose output has no gradient does not run backward.
    node.backward = node.backward && differentiable[i + 1] != 0 && states_[out].last_target != nullptr;
    if (!node.backward) {
      continue;
    }
    const layer_traits& traits = described.traits;
    if (node.residual != execution_plan::none) {
      contribute(node.residual_target, node.residual, backward_time(i),
                 traits.writes_residual_gradient ? duty::layer : duty::network, duty::network, out);
    }
    const bool distinct =
        traits.is_sum && plan_.slot_of_value[described.inputs[0]] != plan_.slot_of_value[described.inputs[1]];
    bool shared = !distinct;
    for (std::size_t k = 0; k < described.inputs.size(); ++k) {
      auto& target = node.targets[k];
      const std::size_t in = plan_.slot_of_value[described.inputs[k]];
      const bool masks = traits.masks_input_gradients && knows(traits, plan_.slots[in].activation);
      contribute(target, described.inputs[k], backward_time(i), duty::layer, masks ? duty::layer : duty::network,
                 shared ? execution_plan::none : out);
      shared = shared || (target.write == duty::none && differentiable[described.inputs[k]] != 0);
    }
  }
  for (std::size_t s = 0; s < slots; ++s) {
    if (is_activated(s) && states_[s].last_target != nullptr) {
      states_[s].last_target->mask = states_[s].last_masker;
    }
  }
}

GRADUS_COLD GRADUS_INLINE void plan_builder::place_buffers() {
  const std::size_t slots = plan_.slots.size();
  const auto use = [&, this](std::size_t slot, std::size_t time) {
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
    if (options_.inference && !plan_.nodes[i].forward) {
      continue;  // the producer of the slot does its work
    }
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
  // Values that forward returns stay until the next step: the scores, and values without a consumer.
  for (std::size_t value = 1; value <= count_; ++value) {
    if (consumers_[value] == 0 || (graph_.has_loss && value == graph_.scores)) {
      use(plan_.slot_of_value[value], count_);
    }
  }
  dynamic_array<buffer_lifetime> others;  // all buffers except values
  dynamic_array<std::size_t*> other_offsets;
  for (std::size_t s = 1; s < slots; ++s) {
    auto& slot = plan_.slots[s];
    if (is_activated(s) && slot.has_gradient) {
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
      other_offsets.push_back(&plan_.slots[s].gradient_offset);
    }
  }
  for (std::size_t i = 0; i < count_; ++i) {
    if (graph_.nodes[i].state_bytes != 0) {
      // A layer that does not run backward needs its state only to run forward again.
      const bool kept = plan_.nodes[i].backward || options_.recompute != nullptr;
      others.push_back({.bytes = graph_.nodes[i].state_bytes, .first = i, .last = kept ? backward_time(i) : i});
      other_offsets.push_back(&plan_.nodes[i].state_offset);
    }
  }
  if (options_.recompute != nullptr) {
    options_.recompute(graph_, plan_, {lifetimes_.data(), slots}, others);
  }
  if (options_.side_by_side != nullptr) {
    dynamic_array<std::size_t> gradient_of;
    for (std::size_t s = 0; s < slots; ++s) {
      gradient_of.push_back(states_[s].gradient_of);
    }
    plan_.streams = options_.side_by_side(graph_, plan_, gradient_of, options_.streams);
  }
  dynamic_array<buffer_lifetime> buffers;
  dynamic_array<std::size_t*> offsets;
  for (std::size_t s = 1; s < slots; ++s) {
    const value_lifetime& value = lifetimes_[s];
    buffers.push_back({.bytes = value.bytes, .first = value.first, .last = value.kept_last});
    offsets.push_back(&plan_.slots[s].value_offset);
    if (value.again_first != execution_plan::none) {
      buffers.push_back({.bytes = value.bytes, .first = value.again_first, .last = value.again_last});
      offsets.push_back(&plan_.slots[s].backward_offset);
    }
  }
  for (std::size_t b = 0; b < others.size(); ++b) {
    buffers.push_back(others[b]);
    offsets.push_back(other_offsets[b]);
  }
  // A region writes no memory that it frees: its branches do not run in the order of time.
  for (const stream_schedule::region& region : plan_.streams.regions) {
    for (buffer_lifetime& buffer : buffers) {
      if (buffer.first >= region.first_time && buffer.first <= region.last_time) {
        buffer.first = region.first_time;
      }
    }
  }
  if (!optimizations().reuse_memory) {
    for (buffer_lifetime& buffer : buffers) {
      buffer.first = 0;
    }
  }
  const memory_plan memory = options_.place(buffers);
  for (std::size_t b = 0; b < offsets.size(); ++b) {
    *offsets[b] = memory.offsets[b];
    plan_.unshared_bytes += buffers[b].bytes;
  }
  for (std::size_t s = 1; s < slots; ++s) {
    plan_.slots[s].gradient_of = states_[s].gradient_of;
    plan_.slots[s].gradient_offset = plan_.slots[states_[s].gradient_of].gradient_offset;
    if (lifetimes_[s].again_first == execution_plan::none) {
      plan_.slots[s].backward_offset = plan_.slots[s].value_offset;
    }
  }
  plan_.arena_bytes = memory.bytes;
}

}  // namespace gradus::nn::detail
#endif

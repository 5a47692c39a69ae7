// SPDX-License-Identifier: BSL-1.0
//
// The planner of a stage: what it gets from other stages and sends to them, and its memory for several micro-batches.
#pragma once

#include <algorithm>  // std::find, std::max, std::min
#include <cstddef>    // std::size_t
#include <span>       // std::span
#include <utility>    // std::move

#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/nn/plan/execution_plan.hpp"
#include "gradus/nn/plan/memory_plan.hpp"
#include "gradus/nn/plan/stage_cuts.hpp"
#include "gradus/nn/plan/stage_plan.hpp"

namespace gradus::nn {

namespace detail {

/// Which stages use the memory of each slot, and that of its gradient: the same for all stages of a network.
class stage_uses {
 public:
  stage_uses(const graph_description& graph, const execution_plan& plan, const stage_cuts& cuts)
      : cuts_{cuts}, values_(plan.slots.size()), gradients_(plan.slots.size()), value_of_(plan.slots.size()) {
    const std::size_t count = plan.nodes.size();
    for (std::size_t v = 0; v <= count; ++v) {
      value_of_[plan.slot_of_value[v]] = v;
    }
    std::size_t stage = 0;
    const auto moves_to = [&, this](std::size_t layer) {
      while (stage + 1 < cuts_.stages() && layer >= cuts_.first_layers[stage + 1]) {
        ++stage;
      }
    };
    dynamic_array<std::size_t> writer(plan.slots.size());  // the stage that writes a slot
    add(values_[0], 0);                                    // it has the input, also where it only passes it on
    for (std::size_t i = 0; i < count; ++i) {
      moves_to(i);
      if (!plan.nodes[i].forward) {
        continue;
      }
      const std::size_t out = plan.slot_of_value[i + 1];
      if (plan.slots[out].producer == i) {
        writer[out] = stage;
      } else if (writer[out] != stage) {
        raise<configuration_error>(
            "network.compile_stages", "cuts between which a value is written",
            {"a cut before layer ", i, ", which overwrites the value of layer ", plan.slots[out].producer},
            "nn::cuts_allowed tells where a stage may begin");
      }
      add(values_[out], stage);
      for (const std::size_t value : graph.nodes[i].inputs) {
        add(values_[plan.slot_of_value[value]], stage);
      }
      if (plan.nodes[i].residual != execution_plan::none) {
        add(values_[plan.slot_of_value[plan.nodes[i].residual]], stage);
      }
    }
    add(values_[plan.slot_of_value[graph.scores]], cuts_.stages() - 1);
    add_gradient(plan, plan.slot_of_value[graph.scores], plan.loss_target, cuts_.stages() - 1);
    for (std::size_t i = count; i-- > 0;) {
      const execution_plan::node& node = plan.nodes[i];
      if (!node.backward) {
        continue;
      }
      const std::size_t own = cuts_.stage_of(i);
      add(gradients_[plan.slots[plan.slot_of_value[i + 1]].gradient_of], own);
      for (std::size_t k = 0; k < node.targets.size(); ++k) {
        add_gradient(plan, plan.slot_of_value[graph.nodes[i].inputs[k]], node.targets[k], own);
      }
      if (node.residual != execution_plan::none) {
        add_gradient(plan, plan.slot_of_value[node.residual], node.residual_target, own);
      }
    }
  }

  /// A value in a slot.
  [[nodiscard]] std::size_t value_of(std::size_t slot) const { return value_of_[slot]; }

  /// Calls take(slot, from, to, number) for each transfer of values, or of gradients.
  template <class Take>
  void for_each(bool values, const Take& take) const {
    std::size_t number = 0;
    for (std::size_t slot = 0; slot < values_.size(); ++slot) {
      const dynamic_array<std::size_t>& users = values ? values_[slot] : gradients_[slot];
      for (std::size_t k = 1; k < users.size(); ++k) {
        take(slot, users[k - 1], users[k], number++);
      }
    }
  }

 private:
  static void add(dynamic_array<std::size_t>& users, std::size_t stage) {
    if (users.empty() || users.back() != stage) {
      users.push_back(stage);
    }
  }

  void add_gradient(const execution_plan& plan, std::size_t slot, const execution_plan::gradient_target& target,
                    std::size_t stage) {
    using duty = execution_plan::duty;
    if (target.write != duty::none || target.mask != duty::none) {
      add(gradients_[plan.slots[slot].gradient_of], stage);
    }
  }

  const stage_cuts& cuts_;
  dynamic_array<dynamic_array<std::size_t>> values_;     // stages that use the value of a slot, ascending
  dynamic_array<dynamic_array<std::size_t>> gradients_;  // and that use the memory of its gradient, descending
  dynamic_array<std::size_t> value_of_;
};

/// Makes the plan of a stage from that of the network.
class stage_planner {
 public:
  stage_planner(const graph_description& graph, const execution_plan& whole, const stage_cuts& cuts,
                const stage_uses& uses, std::size_t stage, const stage_depth& depth, const plan_options& options)
      : graph_{graph},
        uses_{uses},
        stage_{stage},
        depth_{depth},
        options_{options},
        count_{whole.nodes.size()},
        bytes_(whole.slots.size()),
        values_(whole.slots.size()),
        sent_(whole.slots.size()),
        received_(whole.slots.size()),
        gradients_(whole.slots.size()),
        crosses_(whole.slots.size()) {
    result_.plan = whole;
    result_.plan.streams = {};
    result_.first = cuts.first_layers[stage];
    result_.end = cuts.end_of(stage, count_);
    result_.later_weights = dynamic_array<unsigned char>(count_);
  }

  stage_plan build() {
    find_transfers();
    find_lifetimes();
    if (depth_.splits_backward) {
      choose_later_weights();
    }
    place_buffers();
    return std::move(result_);
  }

 private:
  /// When the memory of a gradient is used, in the times of execution_plan. Without uses `last` is below `first`.
  struct span_of_use {
    std::size_t bytes = 0;
    std::size_t first = execution_plan::none;
    std::size_t last = 0;

    void add(std::size_t time) {
      first = std::min(first, time);
      last = std::max(last, time);
    }
    [[nodiscard]] bool used() const { return first <= last; }
  };

  [[nodiscard]] std::size_t backward_time(std::size_t node) const { return 2 * count_ - node; }
  [[nodiscard]] bool is_last() const { return result_.end == count_; }
  [[nodiscard]] bool runs(std::size_t node) const { return node >= result_.first && node < result_.end; }

  void find_transfers() {
    const auto add_route = [this](const stage_route& route) {
      if (std::find(result_.routes.begin(), result_.routes.end(), route) == result_.routes.end()) {
        result_.routes.push_back(route);
      }
    };
    uses_.for_each(true, [&, this](std::size_t slot, std::size_t from, std::size_t to, std::size_t number) {
      add_route({from, to});
      if (from == stage_) {
        result_.values_out.push_back({slot, to, number, uses_.value_of(slot)});
        sent_[slot] = 1;
      }
      if (to == stage_) {
        result_.values_in.push_back({slot, from, number, uses_.value_of(slot)});
        received_[slot] = 1;
      }
    });
    uses_.for_each(false, [&, this](std::size_t slot, std::size_t from, std::size_t to, std::size_t number) {
      add_route({from, to});
      if (from == stage_ || to == stage_) {
        auto& list = from == stage_ ? result_.gradients_out : result_.gradients_in;
        list.push_back({slot, from == stage_ ? to : from, number, uses_.value_of(slot)});
        crosses_[slot] = 1;
      }
    });
  }

  void find_lifetimes() {
    execution_plan& plan = result_.plan;
    for (std::size_t i = 0; i < count_; ++i) {
      std::size_t& bytes = bytes_[plan.slot_of_value[i + 1]];
      bytes = std::max(bytes, graph_.nodes[i].output_bytes);
    }
    bytes_[0] = graph_.input_bytes;
    // Sent and received values stay until backward is over: then their memory is not in use anywhere.
    for (std::size_t s = 0; s < plan.slots.size(); ++s) {
      if (received_[s] != 0 || sent_[s] != 0) {
        use_value(s, received_[s] != 0 ? result_.first : result_.end - 1);
        use_value(s, backward_time(result_.first));
      }
    }
    for (std::size_t i = result_.first; i < result_.end; ++i) {
      const graph_description::node& node = graph_.nodes[i];
      const execution_plan::node& planned = plan.nodes[i];
      if (planned.forward) {
        use_value(plan.slot_of_value[i + 1], i);
        for (const std::size_t value : node.inputs) {
          use_value(plan.slot_of_value[value], i);
        }
        if (planned.residual != execution_plan::none) {
          use_value(plan.slot_of_value[planned.residual], i);
        }
      }
      if (!planned.backward) {
        continue;
      }
      const std::size_t now = backward_time(i);
      use_gradient(plan.slot_of_value[i + 1], now);
      if (node.traits.backward_reads_output) {
        use_value(plan.slot_of_value[i + 1], now);
      }
      for (std::size_t k = 0; k < node.inputs.size(); ++k) {
        const std::size_t slot = plan.slot_of_value[node.inputs[k]];
        if (node.traits.backward_reads_inputs) {
          use_value(slot, now);
        }
        use_target(planned.targets[k], slot, now);
      }
      if (planned.residual != execution_plan::none) {
        use_target(planned.residual_target, plan.slot_of_value[planned.residual], now);
      }
    }
    if (is_last()) {
      const std::size_t scores = plan.slot_of_value[graph_.scores];
      use_value(scores, count_);
      use_target(plan.loss_target, scores, count_);
    }
  }

  void use_value(std::size_t slot, std::size_t time) {
    value_lifetime& value = values_[slot];
    value.first = value.bytes == 0 ? time : std::min(value.first, time);
    value.bytes = bytes_[slot];
    if (time <= count_) {
      value.forward_last = std::max(value.forward_last, time);
    } else {
      value.backward_first = std::min(value.backward_first, time);
      value.backward_last = std::max(value.backward_last, time);
    }
  }
  void use_gradient(std::size_t slot, std::size_t time) {
    span_of_use& memory = gradients_[result_.plan.slots[slot].gradient_of];
    memory.add(time);
    memory.bytes = std::max(memory.bytes, bytes_[slot]);
  }
  void use_target(const execution_plan::gradient_target& target, std::size_t slot, std::size_t time) {
    using duty = execution_plan::duty;
    if (target.write != duty::none || target.mask != duty::none) {
      use_gradient(slot, time);
    }
    if (target.mask != duty::none) {
      use_value(slot, time);
    }
  }

  /// A layer's weights can wait if nothing overwrites its output gradient before the first part of backward is over.
  void choose_later_weights() {
    execution_plan& plan = result_.plan;
    for (std::size_t i = result_.first; i < result_.end; ++i) {
      const graph_description::node& node = graph_.nodes[i];
      result_.later_weights[i] =
          node.trains && plan.nodes[i].backward && node.traits.skips_parameter_gradients && node.multiplies ? 1 : 0;
    }
    using duty = execution_plan::duty;
    const auto written = [&, this](std::size_t slot, const execution_plan::gradient_target& target, std::size_t by) {
      if (target.write == duty::none && target.mask == duty::none) {
        return;
      }
      // Layer `by` and those behind it have run backward before.
      const std::size_t memory = plan.slots[slot].gradient_of;
      for (std::size_t i = by; i < result_.end; ++i) {
        if (result_.later_weights[i] != 0 && plan.slots[plan.slot_of_value[i + 1]].gradient_of == memory) {
          result_.later_weights[i] = 0;
        }
      }
    };
    for (std::size_t i = result_.first; i < result_.end; ++i) {
      const execution_plan::node& planned = plan.nodes[i];
      if (!planned.backward) {
        continue;
      }
      for (std::size_t k = 0; k < planned.targets.size(); ++k) {
        written(plan.slot_of_value[graph_.nodes[i].inputs[k]], planned.targets[k], i);
      }
      if (planned.residual != execution_plan::none) {
        written(plan.slot_of_value[planned.residual], planned.residual_target, i);
      }
    }
    for (std::size_t i = result_.first; i < result_.end; ++i) {
      if (result_.later_weights[i] != 0) {
        for (const std::size_t value : graph_.nodes[i].inputs) {
          use_value(plan.slot_of_value[value], after_backward());
        }
        if (graph_.nodes[i].traits.backward_reads_output) {
          use_value(plan.slot_of_value[i + 1], after_backward());
        }
        use_gradient(plan.slot_of_value[i + 1], after_backward());
      }
    }
  }

  /// The time of the second part of backward.
  [[nodiscard]] std::size_t after_backward() const { return 2 * count_ + 1; }

  /// What the recompute rule drops of this stage.
  void recompute(std::span<const buffer_lifetime> others) {
    graph_description own = graph_;
    for (std::size_t i = 0; i < count_; ++i) {
      const std::size_t out = result_.plan.slot_of_value[i + 1];
      own.nodes[i].traits.recomputable = own.nodes[i].traits.recomputable && runs(i) && sent_[out] == 0 &&
                                         received_[out] == 0 && values_[out].backward_last <= 2 * count_;
    }
    result_.plan.recomputed.clear();
    options_.recompute(own, result_.plan, {values_.data(), values_.size()}, others);
  }

  void place_buffers() {
    execution_plan& plan = result_.plan;
    const std::size_t slots = plan.slots.size();
    for (std::size_t s = 0; s < slots; ++s) {
      plan.slots[s].value_offset = plan.slots[s].backward_offset = plan.slots[s].gradient_offset = execution_plan::none;
      values_[s].kept_last = std::max(values_[s].forward_last, values_[s].backward_last);
    }
    dynamic_array<buffer_lifetime> others;  // all memory except values
    dynamic_array<std::size_t*> other_offsets;
    dynamic_array<buffer_lifetime> crossing;  // gradients that come from another stage, or go there
    dynamic_array<std::size_t*> crossing_offsets;
    for (std::size_t s = 1; s < slots; ++s) {
      const span_of_use& used = gradients_[s];
      if (used.used()) {
        (crosses_[s] != 0 ? crossing : others).push_back({.bytes = used.bytes, .first = used.first, .last = used.last});
        (crosses_[s] != 0 ? crossing_offsets : other_offsets).push_back(&plan.slots[s].gradient_offset);
      }
    }
    for (std::size_t i = 0; i < count_; ++i) {
      plan.nodes[i].state_offset = execution_plan::none;
      if (runs(i) && plan.nodes[i].forward && graph_.nodes[i].state_bytes != 0) {
        const bool kept = plan.nodes[i].backward || options_.recompute != nullptr;
        others.push_back({.bytes = graph_.nodes[i].state_bytes,
                          .first = i,
                          .last = !kept                           ? i
                                  : result_.later_weights[i] != 0 ? after_backward()
                                                                  : backward_time(i)});
        other_offsets.push_back(&plan.nodes[i].state_offset);
      }
    }
    if (options_.recompute != nullptr) {
      recompute({others.data(), others.size()});
    }
    dynamic_array<buffer_lifetime> received;
    dynamic_array<std::size_t*> received_offsets;
    for (std::size_t s = 0; s < slots; ++s) {
      const value_lifetime& value = values_[s];
      if (value.bytes == 0 || (s == 0 && received_[s] == 0)) {
        continue;  // not used here, or the batch itself
      }
      (received_[s] != 0 ? received : others)
          .push_back({.bytes = value.bytes, .first = value.first, .last = value.kept_last});
      (received_[s] != 0 ? received_offsets : other_offsets).push_back(&plan.slots[s].value_offset);
      if (value.again_first != execution_plan::none) {
        others.push_back({.bytes = value.bytes, .first = value.again_first, .last = value.again_last});
        other_offsets.push_back(&plan.slots[s].backward_offset);
      }
    }
    place_regions(others, other_offsets);
    result_.value_copies = depth_.stored + 1;
    result_.gradient_copies = std::max(depth_.gradients, depth_.splits_backward ? depth_.stored + 1 : std::size_t{1});
    place_together(received, received_offsets, result_.value_copies);
    place_together(crossing, crossing_offsets, result_.gradient_copies);
    for (std::size_t s = 0; s < slots; ++s) {
      execution_plan::slot& slot = plan.slots[s];
      if (slot.gradient_of != execution_plan::none) {
        slot.gradient_offset = plan.slots[slot.gradient_of].gradient_offset;
      }
      if (slot.backward_offset == execution_plan::none) {
        slot.backward_offset = slot.value_offset;
      }
    }
    plan.arena_bytes = end_;
  }

  /// Places what no other stage sees. With one micro-batch at a time all of it shares memory; with more, what is kept
  /// from forward to backward has a copy for each, and what is not is there once.
  void place_regions(const dynamic_array<buffer_lifetime>& buffers, const dynamic_array<std::size_t*>& offsets) {
    const std::size_t backward = is_last() ? count_ : backward_time(result_.end - 1);
    dynamic_array<buffer_lifetime> lists[2];
    dynamic_array<std::size_t*> list_offsets[2];
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      // The first part of backward may be over for several micro-batches whose second part has not begun.
      const bool stored =
          (buffers[b].first < backward && buffers[b].last >= backward) || (buffers[b].last == after_backward());
      const std::size_t list = stored && depth_.stored > 1 ? 1 : 0;
      lists[list].push_back(buffers[b]);
      list_offsets[list].push_back(offsets[b]);
    }
    for (const std::size_t list : {std::size_t{0}, std::size_t{1}}) {
      const memory_rule rule = list == 0 ? options_.place : &plan_memory;
      add_region(rule({lists[list].data(), lists[list].size()}), list_offsets[list], list == 0 ? 1 : depth_.stored);
    }
  }

  /// Places buffers that are in use at the same time, as a region with some copies.
  void place_together(const dynamic_array<buffer_lifetime>& buffers, const dynamic_array<std::size_t*>& offsets,
                      std::size_t copies) {
    memory_plan memory;
    for (const buffer_lifetime& buffer : buffers) {
      memory.offsets.push_back(memory.bytes);
      memory.bytes = sum_of_bytes(memory.bytes, memory_plan::aligned(buffer.bytes));
    }
    add_region(memory, offsets, copies);
  }

  void add_region(const memory_plan& memory, const dynamic_array<std::size_t*>& offsets, std::size_t copies) {
    for (std::size_t b = 0; b < offsets.size(); ++b) {
      *offsets[b] = end_ + memory.offsets[b];
    }
    result_.regions.push_back({.begin = end_, .bytes = memory.bytes, .copies = copies});
    end_ = sum_of_bytes(end_, bytes_of_copies(copies, memory.bytes));
  }

  const graph_description& graph_;
  const stage_uses& uses_;
  std::size_t stage_;
  stage_depth depth_;
  plan_options options_;
  std::size_t count_;
  stage_plan result_;
  dynamic_array<std::size_t> bytes_;       // of the largest value of each slot
  dynamic_array<value_lifetime> values_;   // of each slot, in this stage; 0 bytes where it is not used
  dynamic_array<unsigned char> sent_;      // 1: the value of the slot goes to another stage
  dynamic_array<unsigned char> received_;  // 1: it comes from one
  dynamic_array<span_of_use> gradients_;   // of the memory of each slot's gradient, in this stage
  dynamic_array<unsigned char> crosses_;   // 1: that memory comes from another stage or goes there
  std::size_t end_ = 0;                    // of the regions so far
};

}  // namespace detail

/// The plan of a stage of a network.
/// @param graph    the whole network
/// @param whole    its execution plan; the offsets do not matter
/// @param options  as for the execution plan
/// @throws configuration_error when a cut separates the layers that write one value
[[nodiscard]] inline stage_plan plan_stage(const graph_description& graph, const execution_plan& whole,
                                           const stage_cuts& cuts, std::size_t stage, const stage_depth& depth,
                                           const plan_options& options = {}) {
  const detail::stage_uses uses{graph, whole, cuts};
  return detail::stage_planner{graph, whole, cuts, uses, stage, depth, options}.build();
}

}  // namespace gradus::nn

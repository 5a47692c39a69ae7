// SPDX-License-Identifier: BSL-1.0
//
// Which values are recomputed in the backward pass instead of being kept for it.
#pragma once

#include <algorithm>  // std::max, std::min
#include <cstddef>    // std::ptrdiff_t, std::size_t
#include <span>       // std::span

#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/plan/execution_plan.hpp"
#include "gradus/nn/plan/memory_plan.hpp"

namespace gradus::nn {

namespace detail {

/// Chooses the slots of a plan that are recomputed; `recomputation` states the rule.
class recompute_chooser {
 public:
  recompute_chooser(const graph_description& graph, std::span<const value_lifetime> values,
                    std::span<const buffer_lifetime> others, const execution_plan& plan);

  /// Writes the choice into the execution plan and the lifetimes.
  void choose(execution_plan& plan, std::span<value_lifetime> lifetimes);

 private:
  struct slot {
    dynamic_array<std::size_t> writers;  // nodes, in the order in which they run
    dynamic_array<std::size_t> sources;  // slots that they read, except this one and the input
    bool eligible = false;               // all writers are recomputable
    bool dropped = false;
    std::size_t chain = 0;  // number of dropped slots from a kept one to here
    // As in value_lifetime.
    std::size_t kept_last = 0;
    std::size_t again_first = execution_plan::none;
    std::size_t again_last = 0;
  };

  /// The largest number of bytes in use at a time, and the sum over all times.
  struct load {
    std::size_t peak = 0;
    std::size_t sum = 0;

    friend bool operator<(const load& a, const load& b) noexcept {
      return a.peak != b.peak ? a.peak < b.peak : a.sum < b.sum;
    }
  };

  void drop_greedily(std::size_t longest_chain);

  /// True if slot s, when dropped, ends a chain that is short enough.
  bool fits(std::size_t s, std::size_t longest_chain);

  /// Sets the lifetimes for the current choice and returns their cost.
  load measure();

  [[nodiscard]] std::size_t arena_bytes() {
    measure();
    dynamic_array<buffer_lifetime> buffers;
    for_each_buffer([&](const buffer_lifetime& buffer) { buffers.push_back(buffer); });
    return plan_memory(buffers).bytes;
  }

  template <class Function>
  void for_each_buffer(const Function& function) const {
    for (std::size_t s = 1; s < slots_.size(); ++s) {
      const slot& each = slots_[s];
      function({.bytes = values_[s].bytes, .first = values_[s].first, .last = each.kept_last});
      if (each.again_first != execution_plan::none) {
        function({.bytes = values_[s].bytes, .first = each.again_first, .last = each.again_last});
      }
    }
    for (const buffer_lifetime& other : others_) {
      function(other);
    }
  }

  const graph_description& graph_;
  std::span<const value_lifetime> values_;
  std::span<const buffer_lifetime> others_;
  dynamic_array<slot> slots_;
  dynamic_array<std::ptrdiff_t> changes_;  // of the bytes in use, at every time
};

inline void choose_recomputed(const graph_description& graph, execution_plan& plan, std::span<value_lifetime> lifetimes,
                              std::span<const buffer_lifetime> others) {
  recompute_chooser{graph, lifetimes, others, plan}.choose(plan, lifetimes);
}

}  // namespace detail

/// The option to recompute cheap values in the backward pass instead of keeping them: true or false.
///
/// A value is cheap if the layers that write it are recomputable (layer_traits::recomputable): batch normalization with
/// fused layers, ReLU, sums, concatenation, pooling, local response normalization, dropout. A dropped value is freed
/// after its last reader in the forward pass. It is recomputed once, just before the first backward pass that reads it,
/// from values that are kept or recomputed themselves, and stays until its last reader.
///
/// The rule goes through the values in the order of the layers. It drops a value if that lowers the peak number of
/// bytes in use, or keeps the peak and lowers the sum over all times (Chen et al. 2016, "Training deep nets with
/// sublinear memory cost", with the choice made by measuring the plan). It tries chains of at most 1, 2, 4 and 8
/// dropped values that are computed from each other, and takes the smallest arena. Where no layers run in parallel, the
/// arena is never larger than without recomputation. The results of a step are bitwise the same.
///
/// Only programs that set the option compile the code that chooses.
struct recomputation {
  recomputation() = default;
  /// True: cheap values are recomputed.
  recomputation(bool wanted) noexcept : choose{wanted ? &detail::choose_recomputed : nullptr} {}

  recompute_rule choose = nullptr;  ///< null: every value is kept
};

}  // namespace gradus::nn

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn::detail {

GRADUS_INLINE_CONSTRUCTOR recompute_chooser::recompute_chooser(const graph_description& graph,
                                                               std::span<const value_lifetime> values,
                                                               std::span<const buffer_lifetime> others,
                                                               const execution_plan& plan)
    : graph_{graph}, values_{values}, others_{others}, slots_(values.size()) {
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    if (!plan.nodes[i].forward) {
      continue;
    }
    const std::size_t out = plan.slot_of_value[i + 1];
    slot& written = slots_[out];
    written.writers.push_back(i);
    written.eligible = (written.writers.size() == 1 || written.eligible) && graph.nodes[i].traits.recomputable;
    const auto reads = [&](std::size_t value) {
      if (const std::size_t s = plan.slot_of_value[value]; s != 0 && s != out) {
        written.sources.push_back(s);
      }
    };
    for (const std::size_t value : graph.nodes[i].inputs) {
      reads(value);
    }
    if (plan.nodes[i].residual != execution_plan::none) {
      reads(plan.nodes[i].residual);
    }
  }
}

GRADUS_INLINE void recompute_chooser::choose(execution_plan& plan, std::span<value_lifetime> lifetimes) {
  std::size_t least = arena_bytes();
  dynamic_array<slot> best = slots_;
  for (std::size_t longest_chain = 1; longest_chain <= 8; longest_chain *= 2) {
    drop_greedily(longest_chain);
    if (const std::size_t bytes = arena_bytes(); bytes < least) {
      least = bytes;
      best = slots_;
    }
  }
  for (std::size_t s = 1; s < slots_.size(); ++s) {
    const slot& chosen = best[s];
    lifetimes[s].kept_last = chosen.kept_last;
    lifetimes[s].again_first = chosen.again_first;
    lifetimes[s].again_last = chosen.again_last;
  }
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    plan.nodes[i].recompute_first = plan.recomputed.size();
    for (const slot& chosen : best) {
      for (std::size_t w = 0; chosen.again_first == 2 * plan.nodes.size() - i && w < chosen.writers.size(); ++w) {
        plan.recomputed.push_back(chosen.writers[w]);
        ++plan.nodes[i].recompute_count;
      }
    }
  }
}

GRADUS_INLINE void recompute_chooser::drop_greedily(std::size_t longest_chain) {
  for (std::size_t s = 1; s < slots_.size(); ++s) {
    // A value that no backward pass reads costs nothing unless another slot is recomputed from it.
    slots_[s].dropped =
        slots_[s].eligible && values_[s].backward_first == execution_plan::none && fits(s, longest_chain);
  }
  load least = measure();
  for (std::size_t s = 1; s < slots_.size(); ++s) {
    slot& candidate = slots_[s];
    if (candidate.dropped || !candidate.eligible || !fits(s, longest_chain)) {
      continue;
    }
    candidate.dropped = true;
    if (const load now = measure(); now < least) {
      least = now;
    } else {
      candidate.dropped = false;
    }
  }
  measure();
}

GRADUS_INLINE bool recompute_chooser::fits(std::size_t s, std::size_t longest_chain) {
  slot& candidate = slots_[s];
  candidate.chain = 1;
  for (const std::size_t source : candidate.sources) {
    if (slots_[source].dropped) {
      candidate.chain = std::max(candidate.chain, slots_[source].chain + 1);
    }
  }
  return candidate.chain <= longest_chain;
}

GRADUS_INLINE recompute_chooser::load recompute_chooser::measure() {
  for (std::size_t s = 1; s < slots_.size(); ++s) {
    slot& each = slots_[s];
    each.kept_last =
        each.dropped ? values_[s].forward_last : std::max(values_[s].forward_last, values_[s].backward_last);
    each.again_first = each.dropped ? values_[s].backward_first : execution_plan::none;
    each.again_last = each.dropped ? values_[s].backward_last : 0;
  }
  for (std::size_t s = slots_.size(); s-- > 1;) {  // readers before their sources
    const std::size_t time = slots_[s].again_first;
    for (std::size_t k = 0; time != execution_plan::none && k < slots_[s].sources.size(); ++k) {
      slot& source = slots_[slots_[s].sources[k]];
      if (source.dropped) {
        source.again_first = std::min(source.again_first, time);
        source.again_last = std::max(source.again_last, time);
      } else {
        source.kept_last = std::max(source.kept_last, time);
      }
    }
  }
  changes_ = dynamic_array<std::ptrdiff_t>(2 * graph_.nodes.size() + 3);  // stage_plan has one time more
  for_each_buffer([&, this](const buffer_lifetime& buffer) {
    changes_[buffer.first] += static_cast<std::ptrdiff_t>(buffer.bytes);
    changes_[buffer.last + 1] -= static_cast<std::ptrdiff_t>(buffer.bytes);
  });
  load result;
  std::ptrdiff_t bytes = 0;
  for (const std::ptrdiff_t change : changes_) {
    bytes += change;
    result.peak = std::max(result.peak, static_cast<std::size_t>(bytes));
    result.sum += static_cast<std::size_t>(bytes);
  }
  return result;
}

}  // namespace gradus::nn::detail
#endif

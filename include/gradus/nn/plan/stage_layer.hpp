// SPDX-License-Identifier: BSL-1.0
//
// The layers of a network as stages see them: where it may be cut, and what each layer takes.
#pragma once

#include <algorithm>  // std::fill
#include <cstddef>    // std::size_t

#include "gradus/core/dynamic_array.hpp"
#include "gradus/nn/plan/execution_plan.hpp"

namespace gradus::nn {

/// A layer, for the decision where to cut a network into stages. Bytes of values are those of the largest micro-batch.
struct stage_layer {
  std::size_t parameter_bytes = 0;  ///< values of its parameters
  std::size_t trained_bytes = 0;    ///< of those that are trained
  std::size_t buffer_bytes = 0;     ///< statistics, such as running means
  std::size_t stored_bytes = 0;     ///< what backward needs of a micro-batch
  std::size_t output_bytes = 0;     ///< its output
  double work = 0;                  ///< of a forward pass over one example, about in multiply-adds
  bool runs_backward = true;        ///< false: nothing of it is trained, nor of layers before it
  bool may_begin = true;            ///< a stage may begin with it
};

/// What a micro-batch keeps of each layer from forward to backward, in bytes: its output, unless backward does not read
/// it, and its state. With recomputation it is less.
[[nodiscard]] inline dynamic_array<std::size_t> stored_bytes(const graph_description& graph,
                                                             const execution_plan& whole) {
  using duty = execution_plan::duty;
  const std::size_t count = whole.nodes.size();
  dynamic_array<unsigned char> read(whole.slots.size());  // by backward
  const auto reads = [&](std::size_t value) { read[whole.slot_of_value[value]] = 1; };
  dynamic_array<std::size_t> bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    const execution_plan::node& planned = whole.nodes[i];
    if (!planned.backward) {
      continue;
    }
    bytes[i] = graph.nodes[i].state_bytes;
    if (graph.nodes[i].traits.backward_reads_output) {
      reads(i + 1);
    }
    for (std::size_t k = 0; k < planned.targets.size(); ++k) {
      if (graph.nodes[i].traits.backward_reads_inputs || planned.targets[k].mask != duty::none) {
        reads(graph.nodes[i].inputs[k]);
      }
    }
    if (planned.residual != execution_plan::none && planned.residual_target.mask != duty::none) {
      reads(planned.residual);
    }
  }
  reads(graph.scores);
  for (std::size_t s = 1; s < whole.slots.size(); ++s) {
    if (read[s] != 0) {
      bytes[whole.slots[s].producer] += graph.nodes[whole.slots[s].producer].output_bytes;
    }
  }
  return bytes;
}

/// Where a stage may begin: for each layer 1, or 0 where it overwrites the value of a layer before it.
[[nodiscard]] inline dynamic_array<unsigned char> cuts_allowed(const execution_plan& whole) {
  const std::size_t count = whole.nodes.size();
  dynamic_array<unsigned char> allowed(count);
  std::fill(allowed.begin(), allowed.end(), static_cast<unsigned char>(1));
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t producer = whole.slots[whole.slot_of_value[i + 1]].producer;
    if (whole.nodes[i].forward && producer != i && producer != execution_plan::none) {
      for (std::size_t k = producer + 1; k <= i; ++k) {
        allowed[k] = 0;
      }
    }
  }
  return allowed;
}

}  // namespace gradus::nn

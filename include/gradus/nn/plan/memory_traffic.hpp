// SPDX-License-Identifier: BSL-1.0
//
// The bytes that a training step reads from memory and writes to it, layer by layer, as its execution plan says.
#pragma once

#include <cstddef>  // std::size_t
#include <span>     // std::span

#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/index.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/parameter.hpp"
#include "gradus/nn/plan/execution_plan.hpp"
#include "gradus/nn/plan/graph.hpp"

namespace gradus::nn {

/// Bytes that are read and written.
struct byte_count {
  std::size_t read = 0;     ///< bytes
  std::size_t written = 0;  ///< bytes

  /// Both.
  [[nodiscard]] std::size_t total() const noexcept { return read + written; }
  /// Adds both.
  byte_count& operator+=(const byte_count& other) noexcept {
    read += other.read;
    written += other.written;
    return *this;
  }
};

/// The bytes of one pass of a layer, or of several.
struct pass_bytes {
  byte_count run;    ///< as the library runs it: each pass of a kernel over a value in memory counts
  byte_count least;  ///< the lower bound: each value is read once by each layer that needs it, and written once

  /// Adds both.
  pass_bytes& operator+=(const pass_bytes& other) noexcept {
    run += other.run;
    least += other.least;
    return *this;
  }
};

/// The bytes of a layer in a step.
struct layer_bytes {
  pass_bytes forward;   ///< nothing where the layer before computes this one
  pass_bytes backward;  ///< with what the network does right after it, and what is recomputed before it
  pass_bytes update;    ///< of its trained parameters

  /// All of them.
  [[nodiscard]] pass_bytes total() const noexcept {
    pass_bytes sum = forward;
    sum += backward;
    return sum += update;
  }
  /// Adds all of them.
  layer_bytes& operator+=(const layer_bytes& other) noexcept {
    forward += other.forward;
    backward += other.backward;
    update += other.update;
    return *this;
  }
};

/// What memory_traffic needs to know beside the plan.
struct traffic_options {
  index_t examples = 0;             ///< of the step
  std::size_t element_bytes = 0;    ///< of values: 4 of float, 2 of bfloat16
  std::size_t parameter_bytes = 4;  ///< of parameters, their gradients and buffers
  std::size_t target_bytes = 0;     ///< what the loss reads besides the scores: labels, in the whole step
  /// Of an element of the parameters: what the update rule reads, such as value, gradient and velocity.
  std::size_t update_read_bytes = 0;
  std::size_t update_written_bytes = 0;  ///< likewise: what it writes, such as value and velocity
};

namespace detail {

/// Counts the bytes of one step.
class traffic_counter {
  using duty = execution_plan::duty;

 public:
  traffic_counter(const graph& net, const execution_plan& plan, std::span<const layer_memory> memory,
                  const traffic_options& options)
      : net_{net}, plan_{plan}, memory_{memory}, options_{options} {}

  [[nodiscard]] layer_bytes of_layer(std::size_t i) const {
    layer_bytes result;
    if (plan_.nodes[i].forward) {
      result.forward = forward(i, false);
    }
    if (plan_.nodes[i].backward) {
      result.backward = backward(i);
    }
    std::size_t trained = 0;
    for (const parameter_description& p : net_.nodes()[i].trained_here()) {
      trained += static_cast<std::size_t>(p.shape.size());
    }
    result.update.run = {trained * options_.update_read_bytes, trained * options_.update_written_bytes};
    result.update.least = result.update.run;
    return result;
  }

  [[nodiscard]] pass_bytes of_loss() const {
    pass_bytes result;
    const execution_plan::gradient_target& target = plan_.loss_target;
    const std::size_t scores = bytes(net_.scores());
    const bool writes = target.write == duty::layer;
    result.run = {scores + options_.target_bytes, writes ? scores : 0};
    result.least = result.run;
    add_network_mask(result, target, net_.scores(), true);
    return result;
  }

 private:
  [[nodiscard]] std::size_t slot(std::size_t value) const { return plan_.slot_of_value[value]; }
  [[nodiscard]] std::size_t bytes(std::size_t value) const {
    return static_cast<std::size_t>(net_.batch_extents(value, options_.examples).size()) * options_.element_bytes;
  }
  /// A derivative of an activation that can be masked is one of two numbers: a bit.
  [[nodiscard]] std::size_t mask_bytes(std::size_t value) const {
    return (bytes(value) / options_.element_bytes + 7) / 8;
  }
  [[nodiscard]] std::size_t parameter_bytes(std::size_t i) const {
    return static_cast<std::size_t>(net_.nodes()[i].parameter_count()) * options_.parameter_bytes;
  }

  /// The values of a layer's inputs that are in different memory.
  template <class Body>
  void for_each_distinct_input(std::size_t i, const Body& body) const {
    const auto& inputs = net_.nodes()[i].inputs;
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      bool first = true;
      for (std::size_t before = 0; before < k; ++before) {
        first = first && slot(inputs[before]) != slot(inputs[k]);
      }
      if (first) {
        body(inputs[k]);
      }
    }
  }

  [[nodiscard]] pass_bytes forward(std::size_t i, bool again) const {
    const graph::node& n = net_.nodes()[i];
    const value_reads reads = n.layer->traits().reads;
    const std::size_t out = slot(i + 1);
    const bool keeps_state = !again;
    const std::size_t state = memory_[i].state;
    pass_bytes result;
    for (const std::size_t input : n.inputs) {
      result.run.read += bytes(input) * (again || n.evaluates ? 1 : reads.forward);
    }
    for_each_distinct_input(i, [&, this](std::size_t input) {
      result.least.read += slot(input) == out ? 0 : bytes(input);  // in place it could be the producer's work
    });
    byte_count both;  // the same in both counts
    if (plan_.nodes[i].residual != execution_plan::none) {
      both.read += bytes(plan_.nodes[i].residual);
    }
    both.read += parameter_bytes(i) + (keeps_state ? 0 : state);
    both.written += keeps_state ? state : 0;
    for (const buffer_description& each : n.layer->buffers()) {
      const std::size_t buffer = static_cast<std::size_t>(each.size) * options_.parameter_bytes;
      both.read += buffer;
      both.written += each.fixed || n.evaluates || again ? 0 : buffer;
    }
    result.run += both;
    result.least += both;
    result.run.written += bytes(i + 1);
    result.least.written += plan_.slots[out].producer == i ? bytes(i + 1) : 0;
    if (again) {
      result.least = {};  // the value could have been kept
    }
    return result;
  }

  [[nodiscard]] pass_bytes backward(std::size_t i) const {
    const graph::node& n = net_.nodes()[i];
    const execution_plan::node& planned = plan_.nodes[i];
    const layer_traits traits = n.layer->traits();
    const value_reads& reads = traits.reads;
    pass_bytes result;
    for (std::size_t k = 0; k < planned.recompute_count; ++k) {
      result += forward(plan_.recomputed[planned.recompute_first + k], true);
    }
    std::size_t written = 0;  // gradients of inputs that the layer writes
    for (const execution_plan::gradient_target& target : planned.targets) {
      written += target.write == duty::layer ? 1 : 0;
    }
    const bool for_inputs = written != 0;
    // A layer that reads the inputs for both has sums over the batch, which the gradients of the inputs need too.
    const bool has_sums = reads.inputs_for_inputs != 0 && reads.inputs_for_parameters != 0 && !n.evaluates;
    const bool for_parameters = !n.trained().empty() || (for_inputs && has_sums) ||
                                (!n.parameters.empty() && !traits.skips_parameter_gradients);

    const std::size_t gradient = bytes(i + 1);
    const std::size_t gradient_reads = (for_inputs ? reads.gradient_for_inputs : 0U) * (traits.is_sum ? written : 1) +
                                       (for_parameters ? reads.gradient_for_parameters : 0U);
    result.run.read += gradient * gradient_reads;
    result.least.read += gradient_reads != 0 ? gradient : 0;

    const std::size_t input_reads =
        !traits.backward_reads_inputs
            ? 0
            : (for_inputs ? reads.inputs_for_inputs : 0U) + (for_parameters ? reads.inputs_for_parameters : 0U);
    for (const std::size_t input : n.inputs) {
      result.run.read += bytes(input) * input_reads;
    }
    if (input_reads != 0) {
      for_each_distinct_input(i, [&, this](std::size_t input) { result.least.read += bytes(input); });
    }
    const std::size_t state =
        memory_[i].state + (traits.backward_reads_output ? bytes(i + 1) : 0) + (for_inputs ? parameter_bytes(i) : 0);
    const std::size_t parameter_gradients =
        !n.trained().empty() || !traits.skips_parameter_gradients ? parameter_bytes(i) : 0;
    result.run += {state, parameter_gradients};
    result.least += {state, parameter_gradients};

    // The kernel that writes the gradient of an input has the input at hand if it reads it too.
    const bool at_hand = traits.backward_reads_inputs && reads.inputs_for_inputs != 0;
    for (std::size_t k = 0; k < n.inputs.size(); ++k) {
      const execution_plan::gradient_target& target = planned.targets[k];
      const std::size_t size = bytes(n.inputs[k]);
      if (target.write == duty::layer) {
        add_written(result, target, size);
        if (target.mask == duty::layer) {
          result.run.read += at_hand ? 0 : size;
          result.least.read += input_reads != 0 ? 0 : mask_bytes(n.inputs[k]);
        }
      }
      add_network_mask(result, target, n.inputs[k], input_reads == 0);
    }
    if (planned.residual != execution_plan::none) {
      const execution_plan::gradient_target& target = planned.residual_target;
      if (target.write != duty::none) {
        add_written(result, target, bytes(planned.residual));
        result.run.read += target.write == duty::network ? gradient : 0;
      }
      add_network_mask(result, target, planned.residual, true);
    }
    return result;
  }

  /// A gradient that is written, or added to what an earlier layer has written.
  static void add_written(pass_bytes& result, const execution_plan::gradient_target& target, std::size_t size) {
    result.run += {target.accumulate ? size : 0, size};
    result.least.written += target.accumulate ? 0 : size;
  }

  /// The network's own pass over a gradient, which the layer could have done.
  /// @param reads_mask  the bound has the derivative too: the layer does not read the value
  void add_network_mask(pass_bytes& result, const execution_plan::gradient_target& target, std::size_t value,
                        bool reads_mask) const {
    if (target.mask == duty::network) {
      result.run += {2 * bytes(value), bytes(value)};
      result.least.read += reads_mask ? mask_bytes(value) : 0;
    }
  }

  const graph& net_;
  const execution_plan& plan_;
  std::span<const layer_memory> memory_;
  const traffic_options& options_;
};

}  // namespace detail

/// The bytes of a training step between processor and memory.
///
/// Values, their gradients, parameters, their gradients, buffers, and what layers keep for the backward pass count.
/// Workspaces do not: kernels pack blocks into them that stay in a cache. What the plan fuses counts as fused. A value
/// that is read twice by one layer counts twice in `run`, even if a cache holds it. layer_traits::reads says how often
/// a layer reads its values; the counts are those of the CPU's kernels.
///
/// The lower bound is that of the mathematics of each layer: each operand is read once from memory and each result is
/// written once. A gradient with several contributions is written once, a mask of an activation is a bit, and a fused
/// layer costs nothing.
struct memory_traffic {
  dynamic_array<layer_bytes> layers;  ///< in the order of network::add
  pass_bytes loss;                    ///< the loss reads the scores and writes their gradient

  /// All layers.
  [[nodiscard]] layer_bytes of_layers() const noexcept {
    layer_bytes sum;
    for (const layer_bytes& each : layers) {
      sum += each;
    }
    return sum;
  }
  /// The whole step.
  [[nodiscard]] pass_bytes total() const noexcept {
    pass_bytes sum = of_layers().total();
    return sum += loss;
  }
};

/// Counts the bytes of a training step.
///
///   const nn::memory_forecast planned = net.forecast({.max_batch_size = 16});
///   const nn::memory_traffic step = nn::count_traffic(net.structure(), planned.plan, planned.layers,
///                                                     {.examples = 16, .element_bytes = sizeof(float)});
/// @param plan    of training
/// @param memory  memory_forecast::layers
/// @pre options.element_bytes is not 0
[[nodiscard]] inline memory_traffic count_traffic(const graph& net, const execution_plan& plan,
                                                  std::span<const layer_memory> memory,
                                                  const traffic_options& options) {
  const detail::traffic_counter count{net, plan, memory, options};
  memory_traffic result;
  for (std::size_t i = 0; i < net.nodes().size(); ++i) {
    result.layers.push_back(count.of_layer(i));
  }
  result.loss = count.of_loss();
  return result;
}

}  // namespace gradus::nn

// SPDX-License-Identifier: BSL-1.0
//
// One pass over the layers of a compiled network: the arguments of each layer, from the plan and the memory.
#pragma once

#include <algorithm>  // std::max
#include <cstddef>    // std::size_t
#include <span>       // std::span

#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/kernels/elementwise.hpp"
#include "gradus/nn/detail/network/run_pass.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/network/image_batch.hpp"
#include "gradus/nn/network/memory.hpp"
#include "gradus/nn/network/phase.hpp"
#include "gradus/nn/network/step_hooks.hpp"
#include "gradus/nn/plan/execution_plan.hpp"
#include "gradus/nn/plan/graph.hpp"

namespace gradus::nn::detail {

/// Which gradients a backward pass writes.
enum class backward_part : unsigned char {
  all,     ///< those of the inputs and of the parameters
  inputs,  ///< of layers whose parameters have theirs later: only those of the inputs
  weights  ///< of the parameters
};

/// The device that runs the layers of a stream.
template <class Device>
[[nodiscard]] Device& device_of_stream(Device& device, [[maybe_unused]] std::size_t stream) {
  if constexpr (has_device_streams<Device>) {
    if (stream != pass_steps::alone) {
      return device.stream(stream);
    }
  }
  return device;
}

/// The layers of a network as it runs them, and the arrays of their arguments for the layer that runs on each stream.
/// They are kept between steps, so that a step allocates nothing.
template <class Element, class Device>
class runnable_layers {
 public:
  /// Appends a layer, which outlives this object. @throws std::bad_alloc; then nothing changes
  void append(layer_passes<Element, Device>* layer) { layers_.push_back(layer); }
  /// Removes the last layer.
  void remove_last() noexcept { layers_.pop_back(); }

  /// A layer. @pre it was appended
  [[nodiscard]] layer_passes<Element, Device>& operator[](std::size_t i) const noexcept { return *layers_[i]; }

  /// Makes room for the arguments of the layers of `net` on `streams` streams.
  void make_room(const graph& net, std::size_t streams) {
    most_inputs_ = 0;
    for (const graph::node& n : net.nodes()) {
      most_inputs_ = std::max(most_inputs_, n.inputs.size());
    }
    inputs_ = dynamic_array<image_batch<const Element, Device>>(streams * most_inputs_);
    gradients_ = dynamic_array<input_gradient<Element, Device>>(streams * most_inputs_);
  }

  /// Room for the inputs of the layer that runs on a stream.
  [[nodiscard]] image_batch<const Element, Device>* inputs(std::size_t stream) noexcept {
    return inputs_.data() + stream * most_inputs_;
  }
  /// Room for the gradients of these inputs.
  [[nodiscard]] input_gradient<Element, Device>* gradients(std::size_t stream) noexcept {
    return gradients_.data() + stream * most_inputs_;
  }

 private:
  dynamic_array<layer_passes<Element, Device>*> layers_;
  std::size_t most_inputs_ = 0;  // the largest number of inputs of a layer
  dynamic_array<image_batch<const Element, Device>> inputs_;
  dynamic_array<input_gradient<Element, Device>> gradients_;
};

/// A forward or backward pass over the layers for one batch.
template <class Element, class Device>
class layer_pass final : public pass_steps {
  using const_images = image_batch<const Element, Device>;
  using duty = execution_plan::duty;

 public:
  layer_pass(Device& device, const graph& net, runnable_layers<Element, Device>& layers,
             network_memory<Element, Device>& memory, region_runner* regions, phase which, const const_images& batch,
             const step_context& context) noexcept
      : device_{device},
        graph_{net},
        layers_{layers},
        memory_{memory},
        regions_{regions},
        phase_{which},
        batch_{batch},
        context_{context} {}

  /// Before the first layer runs.
  void begin() { memory_.begin(phase_); }

  /// Runs all layers. @param hooks  may be null
  void run_all(step_hooks* hooks) {
    begin();
    run_pass(graph_, memory_.plan(), regions_, phase_, *this, hooks);
  }

  /// Runs a layer that exchanges data with other ranks, on a rank without examples.
  void run_communicating(std::size_t layer) {
    phase_ == phase::forward ? forward(layer, alone, context_) : backward(layer, alone);
  }

  void run(std::size_t layer, std::size_t stream) override {
    if (phase_ == phase::forward) {
      forward(layer, stream, context_);
      return;
    }
    recompute_for(layer, stream);
    backward(layer, stream);
  }

  /// Runs a part of the backward pass of one layer, on the device itself. @pre the phase is backward
  void run_part(std::size_t layer, backward_part part) {
    if (part != backward_part::weights) {
      recompute_for(layer, alone);
    }
    backward(layer, alone, part);
  }

  void on_all_streams([[maybe_unused]] void (*body)(void* object, std::size_t stream),
                      [[maybe_unused]] void* object) override {
    if constexpr (has_device_streams<Device>) {
      device_.parallel_streams([=](index_t stream) { body(object, static_cast<std::size_t>(stream)); });
    }
  }

  /// The elements of a value; value 0 is the batch.
  [[nodiscard]] const_images value(std::size_t v) const {
    const Element* const data = memory_.value(v);
    return {device_, data == nullptr ? batch_.data() : data, extents_of(v)};
  }
  /// The gradient of a value, without memory where no layer needs it.
  [[nodiscard]] image_batch<Element, Device> gradient(std::size_t v) const {
    return {device_, memory_.gradient(v), extents_of(v)};
  }

  /// Multiplies the gradient of an activation's output by the derivative, if the plan leaves that to the network.
  void mask_if_planned(Device& device, const execution_plan::gradient_target& target, std::size_t v) {
    if (target.mask == duty::network) {
      Element* const gradient = memory_.gradient(v);
      relu_backward(device, extents_of(v).size(), gradient, memory_.value(v), gradient, false, activation_of(v));
    }
  }

 private:
  /// The activation whose output a value is, or the identity.
  [[nodiscard]] const kernels::activation& activation_of(std::size_t v) const {
    const execution_plan& plan = memory_.plan();
    return plan.slots[plan.slot_of_value[v]].activation;
  }

  [[nodiscard]] extents<4> extents_of(std::size_t v) const { return graph_.batch_extents(v, batch_.examples()); }

  /// The images of a batch on the device of a stream.
  template <class Any>
  [[nodiscard]] static image_batch<Any, Device> on(Device& device, const image_batch<Any, Device>& images) noexcept {
    return {device, images.data(), images.extents()};
  }

  /// The index of a stream in the arrays of arguments and workspaces.
  [[nodiscard]] static std::size_t index_of(std::size_t stream) noexcept { return stream == alone ? 0 : stream; }

  /// The inputs of layer i, valid until the next layer of the stream.
  [[nodiscard]] std::span<const const_images> inputs_of(std::size_t i, std::size_t stream, Device& device) {
    const graph::node& n = graph_.nodes()[i];
    const_images* const inputs = layers_.inputs(index_of(stream));
    for (std::size_t k = 0; k < n.inputs.size(); ++k) {
      inputs[k] = on(device, value(n.inputs[k]));
    }
    return {inputs, n.inputs.size()};
  }

  /// What a layer gets of the step.
  [[nodiscard]] static step_context context_of(const graph::node& n, step_context context) noexcept {
    context.evaluates = n.evaluates;
    return context;
  }

  void forward(std::size_t i, std::size_t stream, const step_context& of_step) {
    Device& device = device_of_stream(device_, stream);
    const graph::node& n = graph_.nodes()[i];
    const step_context context = context_of(n, of_step);
    const std::size_t residual = memory_.plan().nodes[i].residual;
    layers_[i].forward({.device = device,
                        .inputs = inputs_of(i, stream, device),
                        .output = {device, memory_.value(i + 1), extents_of(i + 1)},
                        .residual = residual == execution_plan::none ? nullptr : value(residual).data(),
                        .parameters = memory_.parameters_of(i, n),
                        .buffers = memory_.buffer_memory().subspan(n.first_buffer, n.buffers.size()),
                        .state = memory_.state(i),
                        .workspace = memory_.workspace(index_of(stream)),
                        .context = context,
                        .prepared = memory_.prepared(i)});
  }

  /// Where and how a layer writes the gradient of a value.
  [[nodiscard]] input_gradient<Element, Device> planned_gradient(Device& device,
                                                                 const execution_plan::gradient_target& target,
                                                                 std::size_t v) const {
    return {{device, target.write == duty::layer ? memory_.gradient(v) : nullptr, extents_of(v)},
            {.accumulate = target.accumulate,
             .relu_output = target.mask == duty::layer ? memory_.value(v) : nullptr,
             .mask = activation_of(v)}};
  }

  GRADUS_COLD void backward(std::size_t i, std::size_t stream, backward_part part = backward_part::all) {
    Device& device = device_of_stream(device_, stream);
    const graph::node& n = graph_.nodes()[i];
    const execution_plan::node& planned = memory_.plan().nodes[i];
    const step_context context = context_of(n, context_);
    const bool adds = planned.residual != execution_plan::none && part != backward_part::weights;
    input_gradient<Element, Device>* const gradients = layers_.gradients(index_of(stream));
    for (std::size_t k = 0; k < n.inputs.size(); ++k) {
      gradients[k] = part == backward_part::weights
                         ? input_gradient<Element, Device>{{device, nullptr, extents_of(n.inputs[k])}, {}}
                         : planned_gradient(device, planned.targets[k], n.inputs[k]);
    }
    input_gradient<Element, Device> residual_gradient;
    if (adds) {
      residual_gradient = planned_gradient(device, planned.residual_target, planned.residual);
    }
    const std::span<const parameter_memory<parameter_element_t<Element>>> parameters =
        part == backward_part::inputs ? memory_.parameters_without_gradients() : memory_.parameters();
    layers_[i].backward({.device = device,
                         .inputs = inputs_of(i, stream, device),
                         .output = {device, memory_.value(i + 1), extents_of(i + 1)},
                         .output_gradient = on(device, gradient(i + 1)),
                         .input_gradients = {gradients, n.inputs.size()},
                         .residual_gradient = residual_gradient,
                         .parameters = parameters.subspan(n.first_parameter, n.parameters.size()),
                         .buffers = memory_.buffer_memory().subspan(n.first_buffer, n.buffers.size()),
                         .state = memory_.state(i),
                         .workspace = memory_.workspace(index_of(stream)),
                         .context = context});
    if (part == backward_part::weights) {
      return;
    }
    for (std::size_t k = 0; k < n.inputs.size(); ++k) {
      mask_if_planned(device, planned.targets[k], n.inputs[k]);
    }
    if (adds) {
      if (planned.residual_target.write == duty::network) {
        copy_or_add(device, extents_of(i + 1).size(), memory_.gradient(i + 1), memory_.gradient(planned.residual),
                    planned.residual_target.accumulate);
      }
      mask_if_planned(device, planned.residual_target, planned.residual);
    }
  }

  /// Recomputes the values that the backward pass of layer i reads first.
  void recompute_for(std::size_t i, std::size_t stream) {
    const execution_plan::node& planned = memory_.plan().nodes[i];
    step_context again = context_;
    again.again = true;
    for (std::size_t k = 0; k < planned.recompute_count; ++k) {
      forward(memory_.plan().recomputed[planned.recompute_first + k], stream, again);
    }
  }

  Device& device_;
  const graph& graph_;
  runnable_layers<Element, Device>& layers_;
  network_memory<Element, Device>& memory_;
  region_runner* regions_;  // null where the layers run one after another
  phase phase_;
  const const_images& batch_;
  const step_context& context_;
};

}  // namespace gradus::nn::detail

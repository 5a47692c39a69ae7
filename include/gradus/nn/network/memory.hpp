// SPDX-License-Identifier: BSL-1.0
//
// The memory of a compiled network: values, gradients, parameters and buffers. The same for all layouts.
#pragma once

#include <algorithm>  // std::max
#include <array>      // std::array
#include <cstddef>    // std::byte, std::size_t
#include <cstdint>    // std::uint8_t, std::uintptr_t
#include <span>       // std::span
#include <string>     // std::string
#include <utility>    // std::move

#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/random.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/network/phase.hpp"
#include "gradus/nn/parameter.hpp"
#include "gradus/nn/plan/execution_plan.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/nn/plan/memory_plan.hpp"
#include "gradus/nn/plan/plan_execution.hpp"
#include "gradus/tensor/tensor.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::nn {

/// The first value that is not finite.
struct non_finite {
  /// "parameter conv1.weight", "the input", "the target", "the weight", "layer 'conv1' (conv2d)"; empty if all is
  /// finite
  std::string where;
  index_t example = -1;  ///< of the batch, from 0, to which an input, a target or a weight belongs; -1 for the others
};

/// A buffer of a layer: elements that it keeps from step to step and does not train, such as a running mean.
template <class Element, class Device>
struct buffer {
  std::string name;                                     ///< "layer.running_mean"
  tensor_view<Element, 1, row_major, Device> elements;  ///< in the memory of the device
};

namespace detail {

/// The copies of the parameters of a layer that a network for inference reads instead of the parameters.
template <class Number>
struct layer_for_inference {
  bool folded = false;                                 ///< the layer reads `parameters`
  std::array<parameter_memory<Number>, 2> parameters;  ///< weight and bias
  std::span<const std::byte> prepared;                 ///< forward_arguments::prepared
};

/// The strides of a dense tensor of four axes in the layout of a network, in elements.
using strides_of_extents = std::array<index_t, 4> (*)(const extents<4>&) noexcept;

/// All device memory of a compiled network, and the execution plan with its offsets.
template <class Element, class Device>
class network_memory {
  using parameter_element = parameter_element_t<Element>;

 public:
  /// Plans the graph, allocates the memory and sets parameters and buffers to their initial values.
  /// @param layers   memory of each layer
  /// @param strides  strides of the parameters
  /// @param options  options of the plan, such as the number of streams
  /// @throws device_error when there is too little memory
  GRADUS_COLD network_memory(Device& device, const graph& net, dynamic_array<layer_memory> layers,
                             strides_of_extents strides, const plan_options& options)
      : device_{&device},
        layers_{std::move(layers)},
        plan_{plan_execution(net.describe_for_plan(layers_, sizeof(Element)), options)},
        arena_{take(device, plan_.arena_bytes)},
        values_in_{reinterpret_cast<std::byte*>(arena_.data())},
        workspace_bytes_{largest_workspace()},
        workspace_{take(device, options.streams * workspace_bytes_)},
        values_{take(device, static_cast<std::size_t>(net.parameter_elements()) * sizeof(parameter_element))},
        trained_{static_cast<std::size_t>(net.trained_elements())},
        gradients_{take(device, static_cast<std::size_t>(net.gradient_elements()) * sizeof(parameter_element))},
        buffer_values_{take(device, static_cast<std::size_t>(net.buffer_elements()) * sizeof(parameter_element))},
        partial_gradients_{take(
            device, net.examples_at_once() < net.options().max_batch_size ? trained_ * sizeof(parameter_element) : 0)} {
    set_activations(net);
    make_parameters(net, strides);
    make_buffers(net);
  }

  /// The parameters, gradients and buffers of a network of which this rank runs some stages, without values, with the
  /// plan of the whole network. What the stages run is in memories of their own, which share these.
  /// @param whole  the plan
  network_memory(Device& device, const graph& net, strides_of_extents strides, execution_plan whole)
      : device_{&device},
        plan_{std::move(whole)},
        arena_{take(device, 0)},
        values_in_{reinterpret_cast<std::byte*>(arena_.data())},
        workspace_bytes_{0},
        workspace_{take(device, 0)},
        values_{take(device, static_cast<std::size_t>(net.parameter_elements()) * sizeof(parameter_element))},
        trained_{static_cast<std::size_t>(net.trained_elements())},
        gradients_{take(device, static_cast<std::size_t>(net.gradient_elements()) * sizeof(parameter_element))},
        buffer_values_{take(device, static_cast<std::size_t>(net.buffer_elements()) * sizeof(parameter_element))},
        partial_gradients_{take(device, trained_ * sizeof(parameter_element))} {
    for (std::size_t i = 0; i < net.nodes().size(); ++i) {
      net.nodes()[i].layer->set_activation(plan_.nodes[i].activation);
    }
    make_parameters(net, strides);
    make_buffers(net);
  }

  /// The memory of a stage for some micro-batches, with the parameters, gradients and buffers of `shared`, which
  /// outlives this object.
  /// @param layers   memory of each layer; the workspace is that of the layers of the stage
  /// @param regions  of the arena
  network_memory(Device& device, dynamic_array<layer_memory> layers, execution_plan plan,
                 dynamic_array<memory_region> regions, const network_memory& shared)
      : device_{&device},
        layers_{std::move(layers)},
        plan_{std::move(plan)},
        regions_{std::move(regions)},
        shifts_(regions_.size()),
        arena_{take(device, plan_.arena_bytes)},
        values_in_{reinterpret_cast<std::byte*>(arena_.data())},
        workspace_bytes_{largest_workspace()},
        workspace_{take(device, workspace_bytes_)},
        values_{take(device, 0)},
        trained_{0},
        gradients_{take(device, 0)},
        buffer_values_{take(device, 0)},
        partial_gradients_{take(device, 0)} {
    share(shared);
    parameters_without_gradients_ = parameters_;
    parameters_ = shared.parameters_;
  }

  /// The memory of forward passes for inference, without parameters and buffers: call make_own, share or take_over.
  /// @param values  where values are stored; empty: in memory that this object allocates
  /// @throws configuration_error when `values` is too small or not aligned
  /// @throws device_error when there is too little memory
  network_memory(Device& device, const graph& net, dynamic_array<layer_memory> layers, const plan_options& options,
                 std::span<std::byte> values)
      : device_{&device},
        layers_{std::move(layers)},
        plan_{plan_execution(net.describe_for_plan(layers_, sizeof(Element)), options)},
        arena_{take(device, values.empty() ? plan_.arena_bytes : 0)},
        values_in_{values.empty() ? reinterpret_cast<std::byte*>(arena_.data()) : values.data()},
        workspace_bytes_{largest_workspace()},
        workspace_{take(device, options.streams * workspace_bytes_)},
        values_{take(device, 0)},
        trained_{0},
        gradients_{take(device, 0)},
        buffer_values_{take(device, 0)},
        partial_gradients_{take(device, 0)} {
    require_room(values, plan_.arena_bytes);
  }

  /// Parameters and buffers of its own, with their initial values.
  void make_own(const graph& net, strides_of_extents strides) {
    const auto bytes = [](index_t elements) { return static_cast<std::size_t>(elements) * sizeof(parameter_element); };
    values_ = take(*device_, bytes(net.parameter_elements()));
    buffer_values_ = take(*device_, bytes(net.buffer_elements()));
    make_parameters(net, strides);
    make_buffers(net);
  }

  /// The parameters and buffers of `other`, which outlives this object.
  void share(const network_memory& other) {
    parameters_ = other.parameters_;
    buffer_memory_ = other.buffer_memory_;
    buffers_ = other.buffers_;
    for (parameter_memory<parameter_element>& each : parameters_) {
      each.gradient = nullptr;
    }
    for_inference_ = other.for_inference_;
  }

  /// Takes the memory of parameters and buffers from `other`, after share.
  void take_over(network_memory& other) noexcept {
    values_ = std::move(other.values_);
    buffer_values_ = std::move(other.buffer_values_);
  }

  /// Gives the layers their activations.
  void set_activations(const graph& net) const {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      net.nodes()[i].layer->set_activation(plan_.nodes[i].activation);
    }
  }

  /// What the layers read instead of parameters: an entry for each, or null.
  void set_copies(const layer_for_inference<parameter_element>* of_layers) noexcept { for_inference_ = of_layers; }

  [[nodiscard]] const execution_plan& plan() const noexcept { return plan_; }

  /// Sets the phase. A recomputed value has another offset in backward.
  void begin(phase which) noexcept { forward_ = which == phase::forward; }
  /// Of a stage: chooses the memory of a micro-batch.
  void choose(std::size_t micro_batch) noexcept {
    for (std::size_t r = 0; r < regions_.size(); ++r) {
      shifts_[r] = micro_batch % regions_[r].copies * regions_[r].bytes;
    }
  }

  /// The elements of a value; null for the network's input.
  [[nodiscard]] Element* value(std::size_t v) noexcept {
    const execution_plan::slot& slot = plan_.slots[plan_.slot_of_value[v]];
    return at(forward_ ? slot.value_offset : slot.backward_offset);
  }
  /// The gradient of a value, or null.
  [[nodiscard]] Element* gradient(std::size_t v) noexcept {
    const execution_plan::slot& slot = plan_.slots[plan_.slot_of_value[v]];
    return slot.has_gradient ? at(slot.gradient_offset) : nullptr;
  }
  /// The memory of a slot's gradient.
  [[nodiscard]] Element* gradient_memory(std::size_t slot) noexcept { return at(plan_.slots[slot].gradient_offset); }
  [[nodiscard]] std::span<std::byte> state(std::size_t layer) noexcept {
    const std::size_t offset = plan_.nodes[layer].state_offset;
    return offset == execution_plan::none ? std::span<std::byte>{}
                                          : std::span{values_in_ + shifted(offset), layers_[layer].state};
  }
  [[nodiscard]] std::span<std::byte> workspace(std::size_t stream) noexcept {
    return {reinterpret_cast<std::byte*>(workspace_.data()) + stream * workspace_bytes_, workspace_bytes_};
  }

  [[nodiscard]] std::span<const parameter_memory<parameter_element>> parameters() const noexcept { return parameters_; }
  /// The same without memory for gradients, of a stage.
  [[nodiscard]] std::span<const parameter_memory<parameter_element>> parameters_without_gradients() const noexcept {
    return parameters_without_gradients_;
  }
  /// The parameters that a layer reads.
  [[nodiscard]] std::span<const parameter_memory<parameter_element>> parameters_of(
      std::size_t layer, const graph::node& n) const noexcept {
    if (for_inference_ != nullptr && for_inference_[layer].folded) {
      return for_inference_[layer].parameters;
    }
    return parameters().subspan(n.first_parameter, n.parameters.size());
  }
  /// forward_arguments::prepared
  [[nodiscard]] std::span<const std::byte> prepared(std::size_t layer) const noexcept {
    return for_inference_ == nullptr ? std::span<const std::byte>{} : for_inference_[layer].prepared;
  }
  [[nodiscard]] std::span<const buffer<parameter_element, Device>> buffers() const noexcept { return buffers_; }
  /// Pointers to the first element of each of buffers().
  [[nodiscard]] std::span<parameter_element* const> buffer_memory() const noexcept { return buffer_memory_; }

  [[nodiscard]] std::span<parameter_element> values() noexcept { return elements(values_); }
  [[nodiscard]] std::span<parameter_element> gradients() noexcept { return elements(gradients_).first(trained_); }
  [[nodiscard]] std::span<parameter_element> buffer_values() noexcept { return elements(buffer_values_); }

  /// The gradients summed over the micro-batches so far; empty where a batch is computed at once.
  [[nodiscard]] std::span<parameter_element> partial_gradients() noexcept { return elements(partial_gradients_); }

  /// Bytes of arena, workspace, parameters and gradients.
  [[nodiscard]] std::size_t bytes() const {
    return static_cast<std::size_t>(arena_.size() + workspace_.size() + values_.size() + gradients_.size() +
                                    partial_gradients_.size());
  }

  /// The name of the first parameter with a value that is not finite, or an empty string.
  [[nodiscard]] GRADUS_COLD std::string first_non_finite_parameter(const graph& net) const {
    for (std::size_t k = 0; k < parameters_.size(); ++k) {
      if (!all_finite(parameters_[k].value, net.parameters()[k]->shape.size())) {
        return net.parameters()[k]->name;
      }
    }
    return {};
  }

  /// The first element that is not finite; `count` if all are.
  template <class Any>
  [[nodiscard]] index_t first_non_finite(const Any* data, index_t count) const {
    dynamic_array<Any> host(static_cast<std::size_t>(count));
    device_->copy_to_host(host.data(), data, host.size() * sizeof(Any));
    for (index_t i = 0; i < count; ++i) {
      if (!is_finite(static_cast<parameter_element>(host[static_cast<std::size_t>(i)]))) {
        return i;
      }
    }
    return count;
  }
  template <class Any>
  [[nodiscard]] bool all_finite(const Any* data, index_t count) const {
    return first_non_finite(data, count) == count;
  }

 private:
  using bytes_tensor = tensor<std::uint8_t, 1, row_major, Device>;

  static bytes_tensor take(Device& device, std::size_t bytes) {
    return {device, extents<1>{static_cast<index_t>(bytes)}};
  }

  static std::span<parameter_element> elements(bytes_tensor& memory) {
    return {reinterpret_cast<parameter_element*>(memory.data()),
            static_cast<std::size_t>(memory.size()) / sizeof(parameter_element)};
  }

  [[nodiscard]] Element* at(std::size_t offset) noexcept {
    return offset == execution_plan::none ? nullptr : reinterpret_cast<Element*>(values_in_ + shifted(offset));
  }

  /// The offset in the copy of the micro-batch that was chosen.
  [[nodiscard]] std::size_t shifted(std::size_t offset) const noexcept {
    for (std::size_t r = regions_.size(); r-- > 0;) {
      if (offset >= regions_[r].begin) {
        return offset + shifts_[r];
      }
    }
    return offset;
  }

  static void require_room(std::span<const std::byte> values, std::size_t bytes) {
    const std::size_t off = reinterpret_cast<std::uintptr_t>(values.data()) % memory_plan::alignment;
    if (!values.empty() && (values.size() < bytes || off != 0)) {
      raise<configuration_error>("network.compile_for_inference",
                                 {"memory of ", bytes, " bytes or more at a multiple of ", memory_plan::alignment},
                                 {values.size(), " bytes, ", off, " bytes after such a multiple"},
                                 "network.forecast_for_inference tells how much the values need (arena)");
    }
  }

  [[nodiscard]] std::size_t largest_workspace() const {
    std::size_t bytes = 0;
    for (const layer_memory& needed : layers_) {
      bytes = std::max(bytes, needed.workspace);
    }
    return memory_plan::aligned(bytes);
  }

  GRADUS_COLD void make_parameters(const graph& net, strides_of_extents strides) {
    parameters_ = dynamic_array<parameter_memory<parameter_element>>(net.parameters().size());
    for (std::size_t k = 0; k < parameters_.size(); ++k) {
      const parameter_description& described = *net.parameters()[k];
      const bool has_gradient = gradients_.size() != 0 && described.offset < net.gradient_elements();
      parameters_[k] = {values().data() + described.offset,
                        has_gradient ? gradients().data() + described.offset : nullptr};
      const random_stream stream{net.options().seed, described.name};
      dynamic_array<parameter_element> logical(static_cast<std::size_t>(described.shape.size()));
      const auto draw = [&](index_t begin, index_t end) {
        for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
          logical[i] = static_cast<parameter_element>(described.initial(stream, i, described.sizes));
        }
      };
      if constexpr (requires { device_->parallel_for(index_t{}, index_t{}, draw); }) {
        draw(0, std::min<index_t>(1, described.shape.size()));  // on this thread, so that an exception is thrown here
        device_->parallel_for(described.shape.size(), 4096, draw);
      } else {
        draw(0, described.shape.size());
      }
      assign_logical<parameter_element>(*device_, parameters_[k].value, described, strides(described.shape),
                                        logical.data());
    }
  }

  void make_buffers(const graph& net) {
    parameter_element* memory = buffer_values().data();
    for (const graph::node& n : net.nodes()) {
      for (const buffer_description& b : n.buffers) {
        dynamic_array<parameter_element> initial(static_cast<std::size_t>(b.size));
        for (index_t i = 0; i < b.size; ++i) {
          initial[static_cast<std::size_t>(i)] = static_cast<parameter_element>(b.initial_value(i));
        }
        device_->copy_from_host(memory, initial.data(), initial.size() * sizeof(parameter_element));
        buffer_memory_.push_back(memory);
        buffers_.push_back({b.name, {*device_, memory, extents<1>{b.size}}});
        memory += b.size;
      }
    }
  }

  Device* device_;
  bool forward_ = true;  // false in the backward pass
  dynamic_array<layer_memory> layers_;
  execution_plan plan_;
  dynamic_array<memory_region> regions_;  // of a stage; else none
  dynamic_array<std::size_t> shifts_;     // to the copies of the micro-batch that was chosen
  bytes_tensor arena_;
  std::byte* values_in_;         // begins the memory of arena_, or of the caller
  std::size_t workspace_bytes_;  // of one stream
  bytes_tensor workspace_;
  bytes_tensor values_;
  std::size_t trained_;     // elements
  bytes_tensor gradients_;  // also those that frozen layers write
  bytes_tensor buffer_values_;
  bytes_tensor partial_gradients_;
  dynamic_array<parameter_memory<parameter_element>> parameters_;
  dynamic_array<parameter_memory<parameter_element>> parameters_without_gradients_;  // of a stage
  dynamic_array<parameter_element*> buffer_memory_;
  dynamic_array<buffer<parameter_element, Device>> buffers_;
  const layer_for_inference<parameter_element>* for_inference_ = nullptr;
};

}  // namespace detail
}  // namespace gradus::nn

// SPDX-License-Identifier: BSL-1.0
//
// Compiling a network, for training or inference, and the parameters that it has then. The same for all layouts.
#pragma once

#include <cstddef>      // std::byte, std::size_t
#include <memory>       // std::make_unique, std::unique_ptr
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/kernels/elementwise.hpp"
#include "gradus/nn/detail/network/inference_weights.hpp"
#include "gradus/nn/detail/network/layer_execution.hpp"
#include "gradus/nn/detail/network/summary.hpp"
#include "gradus/nn/detail/network/use.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/network/image_batch.hpp"
#include "gradus/nn/network/memory.hpp"
#include "gradus/nn/network/phase.hpp"
#include "gradus/nn/network/structure.hpp"
#include "gradus/nn/plan/compile_options.hpp"
#include "gradus/nn/plan/execution_plan.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/nn/plan/inference_options.hpp"
#include "gradus/nn/plan/stage_cuts.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::nn {

/// The base of network<Element, Layout, Device> that has its layers and their memory.
template <class Element, class Device>
class compiled_network : public network_structure {
  static_assert(explain_network_element<Element>());
  static_assert(explain_device_policy<Device>());
  static_assert(kernels::explain_elementwise<Device, Element>());

  using memory_type = detail::network_memory<Element, Device>;
  using weights_type = detail::inference_weights<Element, Device>;
  using execution_type = detail::layer_execution<Element, Device>;

 public:
  /// Type of parameters, their gradients and buffers.
  using parameter_element_type = parameter_element_t<Element>;

  /// The memory that compile would allocate, without allocating it. Also works for networks that do not fit this
  /// machine. Afterwards structure() has the offsets of the parameters.
  /// @throws configuration_error as compile does
  [[nodiscard]] memory_forecast forecast(const compile_options& options,
                                         error_location where = error_location::current()) {
    at_call(where, [&, this] { graph_.compile(options, sizeof(parameter_element_type)); });
    memory_forecast result = forecast(execution_type::training_plan(graph_));
    result.gradients = bytes_of(graph_.gradient_elements()) +
                       (graph_.examples_at_once() < options.max_batch_size ? bytes_of(graph_.trained_elements()) : 0);
    graph_.undo_compile();
    return result;
  }

  /// The memory that compile_for_inference would allocate, without allocating it.
  /// @throws configuration_error as compile_for_inference does, and when the network is compiled
  [[nodiscard]] memory_forecast forecast_for_inference(const inference_options& options,
                                                       error_location where = error_location::current()) {
    at_call(where, [&, this] {
      graph_.require_building("network.forecast_for_inference");
      graph_.compile(as_compile_options(options), sizeof(parameter_element_type), true);
    });
    const detail::copy_options copied{options.fold_batch_norm, options.prepare_weights};
    memory_forecast result = forecast(detail::inference_plan(copied));
    result.copies = weights_type{device(), graph_, execution_.layers(), result.plan, copied, nullptr}.bytes();
    graph_.undo_compile();
    return result;
  }

  /// The device that the network runs on.
  [[nodiscard]] Device& device() const noexcept { return execution_.device(); }
  /// The execution plan of a step. @throws configuration_error unless the network is compiled
  [[nodiscard]] const execution_plan& plan(error_location where = error_location::current()) const {
    return compiled_memory("network.plan", where).plan();
  }

  /// The flat buffer of all parameter values, on the device; those of frozen layers come last.
  /// @throws configuration_error unless the network is compiled
  [[nodiscard]] std::span<parameter_element_type> values(error_location where = error_location::current()) {
    set_stale();
    return compiled_memory("network.values", where).values();
  }
  /// The part of values() that is trained: its first elements, as many as there are gradients.
  /// @throws configuration_error unless the network is compiled
  [[nodiscard]] std::span<parameter_element_type> trained_values(error_location where = error_location::current()) {
    auto& memory = compiled_memory("network.trained_values", where);
    graph_.require_training("network.trained_values", where);
    return memory.values().first(memory.gradients().size());
  }
  /// The flat buffer of all gradients, on the device, at the offsets of trained_values().
  /// @throws configuration_error unless the network is compiled
  [[nodiscard]] std::span<parameter_element_type> gradients(error_location where = error_location::current()) {
    auto& memory = compiled_memory("network.gradients", where);
    graph_.require_training("network.gradients", where);
    return memory.gradients();
  }

  /// The buffers of all layers, such as running means. In distributed training each rank has its own.
  /// @throws configuration_error unless the network is compiled
  [[nodiscard]] std::span<const buffer<parameter_element_type, Device>> buffers(
      error_location where = error_location::current()) const {
    set_stale();
    return compiled_memory("network.buffers", where).buffers();
  }
  /// The flat buffer of all buffers(), on the device. @throws configuration_error unless the network is compiled
  [[nodiscard]] std::span<parameter_element_type> buffer_values(error_location where = error_location::current()) {
    set_stale();
    return compiled_memory("network.buffer_values", where).buffer_values();
  }

  /// Computes the folded and prepared weights of a network for inference from its parameters and buffers. forward does
  /// it too, of the network and of its sessions, once after values(), buffers(), parameters() or find_parameter() were
  /// called, so that new weights hold. Call it after writing through views of before, and so that the first forward
  /// pass does not wait for it. It waits until no session runs.
  /// @throws configuration_error unless the network is compiled for inference
  void update_weights(error_location where = error_location::current()) {
    (void)compiled_memory("network.update_weights", where);
    if (weights_ == nullptr) {
      raise<configuration_error>("network.update_weights", "a network that is compiled for inference",
                                 "one that is compiled for training", "call compile_for_inference", where);
    }
    at_call(where, [&, this] {
      weights_->set_stale();
      weights_->update(device(), graph_, execution_.layers(), memory());
    });
  }

  /// Bytes of a compiled network: arena, workspace, parameters and gradients, and copies of weights for inference.
  /// @throws configuration_error unless the network is compiled
  [[nodiscard]] std::size_t memory_bytes(error_location where = error_location::current()) const {
    return compiled_memory("network.memory_bytes", where).bytes() + (weights_ == nullptr ? 0 : weights_->bytes());
  }

  /// A table for people: name, kind and output of each layer, its parameters, and its multiply-adds for one example.
  /// Of a compiled network also the memory of its values for the examples that are computed at once; "shared" is a
  /// value in the memory of an earlier one. Values whose lifetimes do not overlap share memory, too: the last line has
  /// what the network takes. Frozen layers are marked, and their parameters counted.
  [[nodiscard]] std::string summary() const {
    detail::summary_memory memory;
    if (execution_.memory() != nullptr) {
      memory = {.plan = &execution_.memory()->plan(), .element_bytes = sizeof(Element), .total = memory_bytes()};
    }
    return detail::summary_table{graph_, memory}.text();
  }

 protected:
  using batch_type = image_batch<const Element, Device>;  ///< images of a step
  using passes_type = layer_passes<Element, Device>;      ///< a layer

  /// As the constructor of network.
  compiled_network(Device& device, const value_shape& input) : network_structure{input}, execution_{device} {}
  /// As network.
  compiled_network(compiled_network&& other) noexcept = default;
  /// As network.
  compiled_network& operator=(compiled_network&& other) noexcept = default;
  GRADUS_COLD ~compiled_network() = default;

  /// Appends a layer.
  value append(std::string_view name, detail::made_layer<Element, Device> made, std::span<const value> inputs,
               error_location where) {
    execution_.layers().append(made.passes);
    try {
      return graph_.append(name, std::move(made.owned), inputs, where);
    } catch (...) {
      execution_.layers().remove_last();
      throw;
    }
  }

  /// @throws configuration_error unless the network is compiled
  [[nodiscard]] memory_type& compiled_memory(std::string_view asked_by, error_location where) const {
    if (execution_.memory() == nullptr) {
      graph::raise_not_compiled(asked_by, where);
    }
    return *execution_.memory();
  }
  /// The memory of parameters, values and gradients. @pre compiled
  [[nodiscard]] memory_type& memory() const noexcept { return *execution_.memory(); }

  /// As network::compile.
  /// @param strides  strides of parameters in the network's layout
  void compile(const compile_options& options, detail::strides_of_extents strides, error_location where) {
    at_call(where, [&, this] {
      const floating_point_scope arithmetic{flushes_denormals_on(device())};
      graph_.compile(options, sizeof(parameter_element_type));
      try {
        execution_.allocate(graph_, strides);
      } catch (...) {
        graph_.undo_compile();
        throw;
      }
    });
  }

  /// As network::compile_for_inference.
  void compile_for_inference(const inference_options& options, detail::strides_of_extents strides,
                             error_location where) {
    at_call(where, [&, this] {
      const floating_point_scope arithmetic{flushes_denormals_on(device())};
      sessions_.require_none("network.compile_for_inference");
      const compile_options before = graph_.options();
      const bool was_inference = graph_.inference();
      graph_.compile(as_compile_options(options), sizeof(parameter_element_type), true);
      try {
        allocate_for_inference(options, strides);
      } catch (...) {
        graph_.undo_compile();
        if (execution_.memory() != nullptr) {
          graph_.compile(before, sizeof(parameter_element_type), was_inference);
          memory().set_activations(graph_);
        }
        throw;
      }
    });
  }

  /// As network::compile_stages.
  void compile_stages(const compile_options& options, const stage_cuts& stages, detail::strides_of_extents strides,
                      error_location where) {
    at_call(where, [&, this] {
      const floating_point_scope arithmetic{flushes_denormals_on(device())};
      if (compiled()) {
        graph_.require_training("network.compile_stages");
      }
      const compile_options before = graph_.options();
      const stage_cuts stages_before = graph_.stages();
      const parameter_pointers kept{graph_, execution_.memory()};
      graph_.compile(options, sizeof(parameter_element_type), false, &stages);
      execution_type made{device(), execution_.layers()};
      try {
        made.allocate_for_stages(graph_, strides);
      } catch (...) {
        graph_.undo_compile();
        if (execution_.memory() != nullptr) {
          graph_.compile(before, sizeof(parameter_element_type), false,
                         stages_before.stages() > 0 ? &stages_before : nullptr);
          memory().set_activations(graph_);
        }
        throw;
      }
      kept.copy_to(device(), graph_, *made.memory());
      execution_ = std::move(made);
    });
  }

  /// The parameters or buffers of a network for inference may change.
  void set_stale() const noexcept {
    if (weights_ != nullptr) {
      weights_->set_stale();
    }
  }

  /// A pass over the layers. It refers to the arguments. @pre compiled
  [[nodiscard]] auto pass_over(phase which, const batch_type& batch, const step_context& context) {
    return execution_.pass_over(graph_, which, batch, context);
  }
  /// The scores of a batch, outside training. They are valid until the network runs again. @pre compiled
  batch_type run_forward(const batch_type& batch) {
    const detail::readers_or_writer::reading weights = current_weights();
    return execution_.score(graph_, batch);
  }
  /// A network for inference reads copies of its parameters: computes them where the parameters may have changed.
  /// No thread computes them while the result exists.
  [[nodiscard]] detail::readers_or_writer::reading current_weights() {
    while (weights_ != nullptr) {
      detail::readers_or_writer::reading result = weights_->read();
      if (!weights_->stale()) {
        return result;
      }
      { const detail::readers_or_writer::reading ended = std::move(result); }
      weights_->update(device(), graph_, execution_.layers(), memory());
    }
    return {};
  }

 private:
  template <class, class, class>
  friend class inference_session;
  template <class, class>
  friend class network_stage;
  template <class, class>
  friend class stage_forecast;
  friend struct detail::use_of;

  /// Where the values of parameters and buffers are, while the graph gets other offsets.
  class parameter_pointers {
   public:
    /// @param memory  null: nowhere
    parameter_pointers(const graph& net, memory_type* memory) {
      if (memory == nullptr) {
        return;
      }
      layers_ = dynamic_array<layer_pointers>(net.nodes().size());
      for (std::size_t i = 0; i < layers_.size(); ++i) {
        const graph::node& n = net.nodes()[i];
        if (n.here) {
          layers_[i] = {memory->parameters().data() + n.first_parameter,
                        memory->buffer_memory().data() + n.first_buffer};
        }
      }
    }

    /// Copies the values of layers that this rank has run, and runs.
    void copy_to(Device& device, const graph& net, memory_type& memory) const {
      for (std::size_t i = 0; i < layers_.size(); ++i) {
        const graph::node& n = net.nodes()[i];
        if (!n.here || layers_[i].parameters == nullptr) {
          continue;
        }
        for (std::size_t k = 0; k < n.parameters.size(); ++k) {
          copy_or_add(device, n.parameters[k].shape.size(),
                      static_cast<const parameter_element_type*>(layers_[i].parameters[k].value),
                      memory.parameters()[n.first_parameter + k].value, false);
        }
        for (std::size_t k = 0; k < n.buffers.size(); ++k) {
          copy_or_add(device, n.buffers[k].size, static_cast<const parameter_element_type*>(layers_[i].buffers[k]),
                      memory.buffer_memory()[n.first_buffer + k], false);
        }
      }
    }

   private:
    struct layer_pointers {
      const parameter_memory<parameter_element_type>* parameters = nullptr;
      parameter_element_type* const* buffers = nullptr;
    };
    dynamic_array<layer_pointers> layers_;  // of each layer
  };

  [[nodiscard]] static std::size_t bytes_of(index_t elements) noexcept {
    return static_cast<std::size_t>(elements) * sizeof(parameter_element_type);
  }

  /// The memory without that of gradients. @pre graph_.compiled()
  [[nodiscard]] memory_forecast forecast(const plan_options& planning) const {
    memory_forecast result = execution_.forecast(graph_, planning);
    result.parameters = bytes_of(graph_.parameter_elements());
    result.buffers = bytes_of(graph_.buffer_elements());
    return result;
  }

  [[nodiscard]] compile_options as_compile_options(const inference_options& options) const {
    compile_options all;
    all.max_batch_size = options.max_batch_size;
    all.seed = compiled() ? seed() : options.seed;
    all.parallel_branches = options.parallel_branches;
    all.optimizations = options.optimizations;
    all.convolution_algorithm = options.convolution_algorithm;
    return all;
  }

  void allocate_for_inference(const inference_options& options, detail::strides_of_extents strides) {
    const detail::copy_options copied{options.fold_batch_norm, options.prepare_weights};
    execution_type made{device(), execution_.layers()};
    made.allocate_for_inference(graph_, copied, options.memory);
    memory_type* const before = execution_.memory();
    if (before == nullptr) {
      made.memory()->make_own(graph_, strides);
    } else {
      made.memory()->share(*before);
    }
    auto weights =
        std::make_unique<weights_type>(device(), graph_, made.layers(), made.memory()->plan(), copied, strides);
    weights->update(device(), graph_, made.layers(), *made.memory());
    made.memory()->set_copies(weights->of_layers());
    made.memory()->set_activations(graph_);
    if (before != nullptr) {
      made.memory()->take_over(*before);
    }
    sessions_.open();
    execution_ = std::move(made);
    weights_ = std::move(weights);
  }

  /// What runs the layers for a session: values of its own, and the weights of this network.
  /// @param values  as session_options::memory
  [[nodiscard]] execution_type execution_of_session(Device& device, std::span<std::byte> values) {
    const detail::readers_or_writer::reading weights = current_weights();
    execution_type made{device, execution_.layers()};
    made.allocate_for_inference(graph_, weights_->options(), values);
    made.memory()->share(memory());
    return made;
  }

  execution_type execution_;
  std::unique_ptr<weights_type> weights_;  // null unless compiled for inference
  detail::session_link sessions_;
  detail::single_use in_use_;
};

}  // namespace gradus::nn

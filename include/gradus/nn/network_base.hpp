// SPDX-License-Identifier: BSL-1.0
//
// The part of a network that does not depend on its image layout: structure, memory, and how a step runs the layers.
// It is compiled once for all layouts.
#pragma once

#include <algorithm>    // std::max, std::min
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::int32_t, std::uint64_t
#include <memory>       // std::make_unique, std::shared_ptr, std::unique_ptr
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move

#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/kernels/elementwise.hpp"
#include "gradus/kernels/softmax.hpp"
#include "gradus/nn/detail/network/inference_weights.hpp"
#include "gradus/nn/detail/network/layer_pass.hpp"
#include "gradus/nn/detail/network/summary.hpp"
#include "gradus/nn/image_batch.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/loss.hpp"
#include "gradus/nn/network_memory.hpp"
#include "gradus/nn/parameter_options.hpp"
#include "gradus/nn/phase.hpp"
#include "gradus/nn/plan/compile_options.hpp"
#include "gradus/nn/plan/execution_plan.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/nn/plan/inference_options.hpp"
#include "gradus/nn/plan/micro_batches.hpp"
#include "gradus/nn/plan/plan_execution.hpp"
#include "gradus/nn/plan/tight_memory_plan.hpp"
#include "gradus/nn/score_observer.hpp"
#include "gradus/nn/step_hooks.hpp"
#include "gradus/nn/step_options.hpp"
#include "gradus/nn/targets.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::nn {

/// The base of network<Element, Layout, Device> that all layouts share.
template <class Element, class Device>
class network_base {
  using memory_type = detail::network_memory<Element, Device>;
  using copies_type = detail::inference_weights<Element, Device>;

  static_assert(explain_network_element<Element>());
  static_assert(explain_device_policy<Device>());
  static_assert(kernels::explain_elementwise<Device, Element>());

 public:
  /// Type of parameters, their gradients and buffers.
  using parameter_element_type = parameter_element_t<Element>;

  // ---- structure

  /// The memory that compile would allocate, without allocating it. Also works for networks that do not fit this
  /// machine. Afterwards structure() has the offsets of the parameters.
  /// @throws configuration_error as compile does
  [[nodiscard]] memory_forecast forecast(const compile_options& options,
                                         error_location where = error_location::current()) {
    at_call(where, [&] { graph_.compile(options, sizeof(parameter_element_type)); });
    memory_forecast result = forecast(plan_options{.recompute = options.recompute.choose});
    result.gradients = bytes_of(graph_.gradient_elements()) +
                       (graph_.examples_at_once() < options.max_batch_size ? bytes_of(graph_.trained_elements()) : 0);
    graph_.undo_compile();
    return result;
  }

  /// The memory that compile_for_inference would allocate, without allocating it.
  /// @throws configuration_error as compile_for_inference does, and when the network is compiled
  [[nodiscard]] memory_forecast forecast_for_inference(const inference_options& options,
                                                       error_location where = error_location::current()) {
    at_call(where, [&] {
      graph_.require_building("network.forecast_for_inference");
      graph_.compile(as_compile_options(options), sizeof(parameter_element_type), true);
    });
    memory_forecast result = forecast(inference_plan({options.fold_batch_norm, options.prepare_weights}));
    result.copies =
        copies_type{*device_, graph_, layers_, result.plan, {options.fold_batch_norm, options.prepare_weights}}.bytes();
    graph_.undo_compile();
    return result;
  }

  /// True after compile.
  [[nodiscard]] bool compiled() const noexcept { return graph_.compiled(); }
  /// The device that the network runs on.
  [[nodiscard]] Device& device() const noexcept { return *device_; }
  /// The largest batch, in examples. @pre compiled
  [[nodiscard]] index_t max_batch_size() const noexcept { return graph_.options().max_batch_size; }
  /// The seed of the initial values and of layers such as dropout. @pre compiled
  [[nodiscard]] std::uint64_t seed() const noexcept { return graph_.options().seed; }
  /// The shape of one example of the input.
  [[nodiscard]] const value_shape& input_shape() const noexcept { return graph_.shape(0); }
  /// The shape of one example of the scores that forward returns.
  [[nodiscard]] const value_shape& output_shape() const { return graph_.shape(graph_.scores()); }
  /// Which targets of an example the loss reads; none without a loss.
  [[nodiscard]] nn::target_description target_description() const {
    return loss_ == nullptr ? nn::target_description{} : loss_->targets();
  }
  /// The kind of the loss in messages, such as "softmax_cross_entropy"; empty without a loss.
  [[nodiscard]] std::string_view loss_kind() const noexcept {
    return loss_ == nullptr ? std::string_view{} : loss_->kind();
  }
  /// The number of layers.
  [[nodiscard]] std::size_t layers() const noexcept { return graph_.nodes().size(); }
  /// The name of a layer. @throws std::out_of_range when there is no such layer
  [[nodiscard]] const std::string& layer_name(std::size_t layer) const { return graph_.name(layer); }
  /// The graph of layers, values and parameters, without memory.
  [[nodiscard]] const graph& structure() const noexcept { return graph_; }
  /// The execution plan of a step. @throws configuration_error unless the network is compiled
  [[nodiscard]] const execution_plan& plan(error_location where = error_location::current()) const {
    return compiled_memory("network.plan", where).plan();
  }

  /// The range of a layer's parameters in parameters(). @pre compiled
  [[nodiscard]] parameter_range parameters_of(std::size_t layer) const noexcept {
    const graph::node& n = graph_.nodes()[layer];
    return {.first = n.first_parameter, .count = n.parameters.size()};
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

  /// True after compile_for_inference.
  [[nodiscard]] bool inference() const noexcept { return compiled() && graph_.inference(); }

  /// Computes the folded and prepared weights of a network for inference from its parameters and buffers. forward does
  /// it too, once after values(), buffers(), parameters() or find_parameter() were called, so that new weights hold.
  /// Call it after writing through views of before, and so that the first forward pass does not wait for it. Sessions
  /// read the new weights from then on; none may run meanwhile.
  /// @throws configuration_error unless the network is compiled for inference
  void update_weights(error_location where = error_location::current()) {
    (void)compiled_memory("network.update_weights", where);
    if (copies_ == nullptr) {
      raise<configuration_error>("network.update_weights", "a network that is compiled for inference",
                                 "one that is compiled for training", "call compile_for_inference", where);
    }
    at_call(where, [&] { copies_->update(*device_, graph_, layers_, *memory_, strides_); });
  }

  // ---- what is trained

  /// Excludes the layers whose names fit a pattern from training: their parameters keep their values. Their gradients
  /// are neither computed nor sent, and layers from which no trained parameter is reached do not run backward. Call it
  /// before compile. The last call for a layer counts.
  ///
  ///   net.freeze("encoder.*");
  ///   net.freeze("encoder.norm?", {.evaluates = true});  // with running statistics
  ///
  /// @param pattern  of whole names: * stands for any characters, ? for one
  /// @throws configuration_error when no layer fits, with the nearest names, or the network is compiled
  void freeze(std::string_view pattern, const freeze_options& options = {},
              error_location where = error_location::current()) {
    at_call(where, [&] { graph_.freeze(pattern, options); });
  }

  /// Sets hyper-parameters of the parameters whose names, "layer.weight", fit a pattern. A trainer takes them when it
  /// is made, for any update rule. What a later call sets for a parameter replaces what an earlier one has set.
  ///
  ///   net.group("head.*", {.learning_rate_factor = 10});
  ///   net.group("*.bias", {.weight_decay = false});
  ///
  /// @param pattern  of whole names: * stands for any characters, ? for one
  /// @throws configuration_error when no parameter fits, with the nearest names, or a factor is not above 0
  void group(std::string_view pattern, const parameter_options& options,
             error_location where = error_location::current()) {
    at_call(where, [&] { graph_.group(pattern, options); });
  }

  /// The number of elements of all parameters.
  [[nodiscard]] index_t parameter_count() const { return graph_.parameter_count(); }
  /// Multiply-adds of one forward pass over one example.
  [[nodiscard]] index_t multiply_adds() const { return graph_.multiply_adds(); }
  /// Bytes of a compiled network: arena, workspace, parameters and gradients, and copies of weights for inference.
  /// @throws configuration_error unless the network is compiled
  [[nodiscard]] std::size_t memory_bytes(error_location where = error_location::current()) const {
    return compiled_memory("network.memory_bytes", where).bytes() + (copies_ == nullptr ? 0 : copies_->bytes());
  }

  /// A text with one line for each layer (name, kind, output shape, parameters, multiply-adds) and the totals. Networks
  /// with equal texts compute the same.
  [[nodiscard]] std::string describe() const { return graph_.describe(); }

  /// A table for people: name, kind and output of each layer, its parameters, and its multiply-adds for one example.
  /// Of a compiled network also the memory of its values for the examples that are computed at once; "shared" is a
  /// value in the memory of an earlier one. Values whose lifetimes do not overlap share memory, too: the last line has
  /// what the network takes. Frozen layers are marked, and their parameters counted.
  [[nodiscard]] std::string summary() const {
    detail::summary_memory memory;
    if (memory_ != nullptr) {
      memory = {.plan = &memory_->plan(), .element_bytes = sizeof(Element), .total = memory_bytes()};
    }
    return detail::summary_table{graph_, memory}.text();
  }

 protected:
  using batch_type = image_batch<const Element, Device>;  ///< images of a step
  using passes_type = layer_passes<Element, Device>;      ///< a layer
  using loss_type = loss_base<Element, Device>;           ///< the loss
  using targets_type = targets<Element, Device>;          ///< what the scores of a step are batch_targets with

  /// As the constructor of network.
  network_base(Device& device, const value_shape& input) : device_{&device}, graph_{input} {}
  /// As network.
  network_base(network_base&& other) noexcept = default;
  /// As network.
  network_base& operator=(network_base&& other) noexcept = default;
  GRADUS_COLD ~network_base() = default;

  /// Appends a layer and takes ownership of `owned`; `layer` is the same object. Both types are passed so that this
  /// function is not compiled for each kind of layer.
  value append(std::string_view name, layer_base* owned, passes_type* layer, std::span<const value> inputs,
               error_location where) {
    std::unique_ptr<layer_base> keep{owned};
    layers_.append(layer);
    try {
      return graph_.append(name, std::move(keep), inputs, where);
    } catch (...) {
      layers_.remove_last();
      throw;
    }
  }

  /// As network::loss.
  void end(std::unique_ptr<loss_type> made, value scores, error_location where) {
    graph_.require_scores(scores, where);
    at_call(where, [&] {
      made->infer(graph_.shape(scores));
      made->prepare(*device_);
    });
    loss_ = std::move(made);
    graph_.end(scores);
  }

  /// @throws configuration_error unless the network is compiled
  [[nodiscard]] detail::network_memory<Element, Device>& compiled_memory(std::string_view asked_by,
                                                                         error_location where) const {
    if (memory_ == nullptr) {
      graph::raise_not_compiled(asked_by, where);
    }
    return *memory_;
  }
  /// The memory of parameters, values and gradients. @pre compiled
  [[nodiscard]] detail::network_memory<Element, Device>& memory() const noexcept { return *memory_; }

  /// As network::compile.
  /// @param strides  strides of parameters in the network's layout
  void compile(const compile_options& options, detail::strides_of_extents strides, error_location where) {
    at_call(where, [&] {
      graph_.compile(options, sizeof(parameter_element_type));
      try {
        take_memory(options, strides);
      } catch (...) {
        graph_.undo_compile();
        throw;
      }
    });
  }

  /// As network::compile_for_inference.
  void compile_for_inference(const inference_options& options, detail::strides_of_extents strides,
                             error_location where) {
    at_call(where, [&] {
      const compile_options before = graph_.options();
      const bool was_inference = graph_.inference();
      graph_.compile(as_compile_options(options), sizeof(parameter_element_type), true);
      try {
        take_inference_memory(options, strides);
      } catch (...) {
        graph_.undo_compile();
        if (memory_ != nullptr) {
          graph_.compile(before, sizeof(parameter_element_type), was_inference);
          memory_->set_activations(graph_);
        }
        throw;
      }
    });
  }

  /// The parameters or buffers of a network for inference may change.
  void set_stale() const noexcept {
    if (copies_ != nullptr) {
      copies_->set_stale();
    }
  }

  /// As network::train_step.
  kernels::loss_sums train(const batch_type& batch, const targets_type& batch_targets, const step_options& options,
                           step_hooks* observer, error_location where) {
    return at_call(where, [&] { return train(batch, batch_targets, options, observer); });
  }

  /// As network::forward.
  batch_type score(const batch_type& batch, error_location where) {
    return at_call(where, [&] { return score(batch); });
  }

  /// As network::evaluate. @param observer  may be null
  kernels::loss_sums sum_losses(const batch_type& batch, const targets_type& batch_targets,
                                score_observer<Element, Device>* observer, error_location where) {
    return at_call(where, [&] {
      check("network.evaluate", batch, batch_targets);
      kernels::loss_sums total;
      for (index_t first = 0; first < batch.examples(); first += graph_.examples_at_once()) {
        const index_t count = at_once(batch, first);
        const batch_type scores = score(part_of(batch, first, count));
        const targets_type part = targets_of(batch_targets, first, count);
        total += with_late(loss_->compute(scores, part, 0.0, {*device_, nullptr, scores.extents()}));
        if (observer != nullptr) {
          observer->scored(scores, part);
        }
      }
      return total;
    });
  }

  /// As network::find_non_finite.
  non_finite find_non_finite(const batch_type& batch, const step_options& options, error_location where) {
    return at_call(where, [&] { return find_non_finite(batch, options); });
  }

 private:
  /// Checks every layer's output before its memory is reused.
  class finder final : public step_hooks {
   public:
    finder(network_base& net, index_t examples) noexcept : net_{net}, examples_{examples} {}

    void after_layer(std::size_t layer, phase /*which*/) override {
      const Element* const output = net_.memory_->value(layer + 1);
      if (place.empty() && output != nullptr &&
          !net_.memory_->all_finite(output, net_.graph_.batch_extents(layer + 1, examples_).size())) {
        place = net_.graph_.describe(layer);
      }
    }

    std::string place;

   private:
    network_base& net_;
    index_t examples_;
  };

  /// A step in micro-batches, as compile_options::micro_batch_size says.
  class parts_of_network final : public detail::partial_steps {
   public:
    parts_of_network(network_base& net, const batch_type& batch, const targets_type& batch_targets) noexcept
        : net_{net}, batch_{batch}, targets_{batch_targets} {}

    kernels::loss_sums train(index_t first, index_t count, const step_options& options, step_hooks* observer) override {
      return net_.train_at_once(net_.part_of(batch_, first, count), net_.targets_of(targets_, first, count), options,
                                observer);
    }
    void keep_gradients(index_t begin, index_t end, bool add) override {
      add_gradients(begin, end, net_.gradients(), net_.memory_->partial_gradients(), add);
    }
    void complete_gradients(index_t begin, index_t end) override {
      add_gradients(begin, end, net_.memory_->partial_gradients(), net_.gradients(), true);
    }

   private:
    void add_gradients(index_t begin, index_t end, std::span<const parameter_element_type> from,
                       std::span<parameter_element_type> to, bool add) {
      copy_or_add(net_.device(), end - begin, from.data() + begin, to.data() + begin, add);
    }

    network_base& net_;
    const batch_type& batch_;
    const targets_type& targets_;
  };

  kernels::loss_sums train(const batch_type& batch, const targets_type& batch_targets, const step_options& options,
                           step_hooks* observer) {
    graph_.require_training("network.train_step");
    check("network.train_step", batch, batch_targets);
    if (batch.examples() == 0) {
      if (graph_.communicates()) {
        const step_context context = training_context(options);
        pass_over(phase::forward, batch, context).run_communicating();
        pass_over(phase::backward, batch, context).run_communicating();
      }
      device_->fill_zero(memory_->gradients().data(), memory_->gradients().size_bytes());
      if (observer != nullptr) {
        observer->gradients_ready(0, graph_.trained_parameters().size());
      }
      return {};
    }
    if (batch.examples() > graph_.examples_at_once()) {
      parts_of_network parts{*this, batch, batch_targets};
      return graph_.options().micro_batch_size.train(
          parts, {batch.examples(), graph_.examples_at_once(), graph_.trained_parameters()}, options, observer);
    }
    return train_at_once(batch, batch_targets, options, observer);
  }

  batch_type score(const batch_type& batch) {
    graph_.check_batch("network.forward", batch.extents(), graph_.examples_at_once());
    const step_context context{.training = false, .seed = seed(), .step = 0, .first_example = 0};
    update_stale_weights();
    auto pass = pass_over(phase::forward, batch, context);
    pass.run_all(regions_.get(), nullptr);
    return pass.value(graph_.scores());
  }

  non_finite find_non_finite(const batch_type& batch, step_options options) {
    const auto& memory = compiled_memory("network.find_non_finite", error_location::current());
    if (std::string name = memory.first_non_finite_parameter(graph_); !name.empty()) {
      return {gradus::join({"parameter ", name})};
    }
    if (!memory.all_finite(batch.data(), batch.extents().size())) {
      return {"the input"};
    }
    update_stale_weights();
    std::string place;
    for (index_t first = 0; first < batch.examples() && place.empty(); first += graph_.examples_at_once()) {
      const batch_type part = part_of(batch, first, at_once(batch, first));
      finder observer{*this, part.examples()};
      step_context context = training_context(options);
      context.communicates = false;
      context.training = !graph_.inference();
      pass_over(phase::forward, part, context).run_all(regions_.get(), &observer);
      place = std::move(observer.place);
      options.first_example += static_cast<std::uint64_t>(part.examples());
    }
    return {std::move(place)};
  }

  void check(std::string_view operation, const batch_type& batch, const targets_type& batch_targets) const {
    graph_.require_loss(operation);
    graph_.check_batch(operation, batch.extents(), max_batch_size());
    detail::require_targets(operation, loss_->targets(), batch.examples(),
                            {.labels = static_cast<index_t>(batch_targets.labels.size()),
                             .values = batch_targets.values.extents(),
                             .weights = static_cast<index_t>(batch_targets.weights.size())});
  }

  /// Fills the options of the plan and the memory of each layer on a device.
  GRADUS_ALWAYS_INLINE void prepare_plan(Device& device, plan_options& planning,
                                         dynamic_array<layer_memory>& needed) const {
    const compile_options& options = graph_.options();
    planning.optimizations = options.optimizations;
    if constexpr (has_device_streams<Device>) {
      if (device.streams() > 1) {
        planning.side_by_side = options.parallel_branches.plan;
        planning.streams = planning.side_by_side == nullptr ? 1 : static_cast<std::size_t>(device.streams());
      }
    }
    const index_t batch = graph_.examples_at_once();
    const auto memory_on = [&](std::size_t i, Device& on) {
      return planning.inference ? layers_[i].inference_memory(on, batch, planning.prepared)
                                : layers_[i].memory(on, batch);
    };
    for (std::size_t i = 0; i < layers(); ++i) {
      needed[i] = memory_on(i, device);
      if (planning.streams > 1) {
        needed[i].workspace =
            std::max(needed[i].workspace, memory_on(i, detail::device_of_stream(device, 0)).workspace);
      }
    }
  }

  [[nodiscard]] static std::size_t bytes_of(index_t elements) noexcept {
    return static_cast<std::size_t>(elements) * sizeof(parameter_element_type);
  }

  /// The memory without that of gradients. @pre graph_.compiled()
  [[nodiscard]] memory_forecast forecast(plan_options planning) const {
    dynamic_array<layer_memory> needed(layers());
    prepare_plan(*device_, planning, needed);
    memory_forecast result;
    result.plan = plan_execution(graph_.describe_for_plan(needed, sizeof(Element)), planning);
    for (const layer_memory& each : needed) {
      result.workspace = std::max(result.workspace, planning.streams * each.workspace);
    }
    result.arena = result.plan.arena_bytes;
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

  [[nodiscard]] static plan_options inference_plan(const detail::copy_options& options) noexcept {
    plan_options planning;
    planning.inference = true;
    planning.fold_affine = options.folds;
    planning.prepared = options.prepares;
    planning.place = &plan_memory_tightly;
    return planning;
  }

  /// The memory of forward passes for inference on a device, without parameters.
  [[nodiscard]] std::unique_ptr<memory_type> make_inference_memory(Device& device, const detail::copy_options& options,
                                                                   std::span<std::byte> values) const {
    dynamic_array<layer_memory> needed(layers());
    plan_options planning = inference_plan(options);
    prepare_plan(device, planning, needed);
    return std::make_unique<memory_type>(device, graph_, std::move(needed), planning, values);
  }

  [[nodiscard]] std::shared_ptr<detail::region_runner> make_regions(const memory_type& memory) const {
    return memory.plan().streams.regions.empty() ? nullptr
                                                 : graph_.options().parallel_branches.make_runner(memory.plan());
  }

  void take_inference_memory(const inference_options& options, detail::strides_of_extents strides) {
    const detail::copy_options copied{options.fold_batch_norm, options.prepare_weights};
    std::unique_ptr<memory_type> made = make_inference_memory(*device_, copied, options.memory);
    if (memory_ == nullptr) {
      made->make_own(graph_, strides);
    } else {
      made->share(*memory_);
    }
    auto copies = std::make_unique<copies_type>(*device_, graph_, layers_, made->plan(), copied);
    std::shared_ptr<detail::region_runner> regions = make_regions(*made);
    layers_.make_room(graph_, streams_of(*device_));
    copies->update(*device_, graph_, layers_, *made, strides);
    made->set_copies(copies->of_layers());
    made->set_activations(graph_);
    if (memory_ != nullptr) {
      made->take_over(*memory_);
    }
    memory_ = std::move(made);
    copies_ = std::move(copies);
    regions_ = std::move(regions);
    strides_ = strides;
  }

  [[nodiscard]] static std::size_t streams_of([[maybe_unused]] Device& device) {
    if constexpr (has_device_streams<Device>) {
      return static_cast<std::size_t>(std::max(1, device.streams()));
    }
    return 1;
  }

  /// A network for inference reads copies of its parameters.
  void update_stale_weights() {
    if (copies_ != nullptr && copies_->stale()) {
      copies_->update(*device_, graph_, layers_, *memory_, strides_);
    }
  }

  GRADUS_COLD void take_memory(const compile_options& options, detail::strides_of_extents strides) {
    dynamic_array<layer_memory> needed(layers());
    plan_options planning{.recompute = options.recompute.choose};
    prepare_plan(*device_, planning, needed);
    memory_ = std::make_unique<detail::network_memory<Element, Device>>(*device_, graph_, std::move(needed), strides,
                                                                        planning);
    regions_ = make_regions(*memory_);
    layers_.make_room(graph_, planning.streams);
  }

  [[nodiscard]] detail::layer_pass<Element, Device> pass_over(phase which, const batch_type& batch,
                                                              const step_context& context) {
    return {*device_, graph_, layers_, *memory_, which, batch, context};
  }

  [[nodiscard]] step_context training_context(const step_options& options) const noexcept {
    return {.training = true, .seed = seed(), .step = options.step, .first_example = options.first_example};
  }

  /// The examples [first, first + count).
  [[nodiscard]] batch_type part_of(const batch_type& batch, index_t first, index_t count) const {
    return {*device_, batch.data() + first * graph_.batch_extents(0, 1).size(), graph_.batch_extents(0, count)};
  }
  /// The targets of the examples [first, first + count).
  [[nodiscard]] targets_type targets_of(const targets_type& all, index_t first, index_t count) const noexcept {
    return part_of_targets(all, loss_->targets(), first, count);
  }
  /// The number of examples to compute at once, starting at `first`.
  [[nodiscard]] index_t at_once(const batch_type& batch, index_t first) const noexcept {
    return std::min(graph_.examples_at_once(), batch.examples() - first);
  }

  kernels::loss_sums train_at_once(const batch_type& batch, const targets_type& batch_targets,
                                   const step_options& options, step_hooks* observer) {
    const step_context context = training_context(options);
    auto forward = pass_over(phase::forward, batch, context);
    forward.run_all(regions_.get(), observer);
    const batch_type scores = forward.value(graph_.scores());
    const execution_plan::gradient_target& target = memory_->plan().loss_target;
    const double scale = options.loss_scale.factor /
                         static_cast<double>(options.global_examples > 0 ? options.global_examples : batch.examples());
    if constexpr (kernels::has_loss_scale_use<Device>) {
      use_loss_scale(*device_, options.loss_scale);
    }
    const image_batch<Element, Device> gradient{
        *device_, target.write == execution_plan::duty::layer ? memory_->gradient(graph_.scores()) : nullptr,
        scores.extents()};
    const kernels::loss_sums sums = loss_->compute(scores, batch_targets, scale, gradient);
    if constexpr (kernels::has_loss_scale_application<Device, Element>) {
      apply_loss_scale(*device_, gradient.size(), gradient.data());
    }
    forward.mask_if_planned(*device_, target, graph_.scores());
    pass_over(phase::backward, batch, context).run_all(regions_.get(), observer);
    return with_late(sums);
  }

  /// The loss's result plus the sums that are still on the device (kernels/softmax.hpp).
  [[nodiscard]] kernels::loss_sums with_late(kernels::loss_sums sums) {
    if constexpr (kernels::has_deferred_loss_sums<Device>) {
      sums += take_loss_sums(*device_);
    }
    return sums;
  }

  template <class, class, class>
  friend class inference_session;

  Device* device_;
  graph graph_;
  detail::runnable_layers<Element, Device> layers_;
  std::unique_ptr<loss_type> loss_;
  std::unique_ptr<detail::network_memory<Element, Device>> memory_;  // null until compiled
  std::shared_ptr<detail::region_runner> regions_;                   // null where the layers run one after another
  std::unique_ptr<copies_type> copies_;                              // null unless compiled for inference
  detail::strides_of_extents strides_ = nullptr;                     // of parameters; likewise
};

}  // namespace gradus::nn

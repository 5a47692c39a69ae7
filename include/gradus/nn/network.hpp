// SPDX-License-Identifier: BSL-1.0
//
// A network: a graph of layers that is built by calls, frozen once, and run many times without allocating.
// Module: nn. Depends on: kernels.
#pragma once

#include <algorithm>        // std::max, std::min
#include <cstddef>          // std::size_t
#include <cstdint>          // std::int32_t, std::uint64_t
#include <memory>           // std::unique_ptr
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string>           // std::string
#include <string_view>      // std::string_view
#include <utility>          // std::move

#include "gradus/core/config.hpp"          // GRADUS_ALWAYS_INLINE, GRADUS_COLD, GRADUS_NEVER_INLINE
#include "gradus/core/element.hpp"         // explain_network_element, parameter_element_t
#include "gradus/core/index.hpp"           // index_t
#include "gradus/core/text.hpp"            // text
#include "gradus/core/vector.hpp"          // vector
#include "gradus/device/cpu.hpp"           // cpu
#include "gradus/kernels/cpu.hpp"          // the kernels of the default device
#include "gradus/kernels/elementwise.hpp"  // relu_backward
#include "gradus/layout/layouts.hpp"       // nchw
#include "gradus/layout/mapping.hpp"       // dense_strides
#include "gradus/nn/graph.hpp"             // graph, input_list, freeze_options
#include "gradus/nn/lanes.hpp"             // lane_runner, plan_lanes, run_pass
#include "gradus/nn/layer.hpp"             // layer_passes, step_context
#include "gradus/nn/loss.hpp"              // loss_function
#include "gradus/nn/network_memory.hpp"    // network_memory, buffer
#include "gradus/nn/parameter.hpp"         // parameter
#include "gradus/nn/plan.hpp"              // execution_plan, plan_options
#include "gradus/nn/step_observer.hpp"     // step_observer
#include "gradus/nn/value.hpp"             // value, value_shape
#include "gradus/tensor/tensor_view.hpp"   // image_view

namespace gradus::nn {

/// One training step's place in the training.
struct step_options {
  std::uint64_t step = 0;           ///< counted from 0 over the whole training
  std::uint64_t first_example = 0;  ///< of this batch, in the order of the epoch over all ranks
  index_t global_examples = 0;      ///< of the step over all ranks; 0: those of this call
};

/// Parameters [first, first + count) of a network.
struct parameter_range {
  std::size_t first = 0;
  std::size_t count = 0;
};

/// Where a value that is not finite was first seen.
struct non_finite {
  std::string place;  ///< "parameter conv1.weight", "layer 'conv1' (conv2d)", "the input", or empty: everything finite
};

/// The memory that a network would take, in bytes.
struct memory_forecast {
  execution_plan plan;
  std::size_t arena = 0;      ///< values and their gradients
  std::size_t workspace = 0;  ///< of layers, while they run
  std::size_t parameters = 0;
  std::size_t gradients = 0;  ///< of parameters; with a micro-batch also the sums so far
  std::size_t buffers = 0;

  [[nodiscard]] std::size_t total() const noexcept { return arena + workspace + parameters + gradients + buffers; }
};

/// A graph of layers with its parameters and its plan.
///
///   nn::network<float, nhwc> net{device, {.channels = 1, .height = 28, .width = 28}};
///   nn::value x = net.input();
///   x = net.add("conv1", nn::conv2d{.out_channels = 32, .kernel = {5, 5}, .pad = nn::padding::same()}, x);
///   x = net.add("relu1", nn::relu{}, x);
///   x = net.add("scores", nn::dense{.out_features = 10}, x);
///   net.loss(nn::softmax_cross_entropy{}, x);
///   net.freeze({.batch_size = 64, .seed = 1});
///
/// Shapes are inferred, and checked, as layers are added. After freeze, train_step, forward and evaluate take batches
/// of up to batch_size examples and allocate nothing. The values of all parameters lie in one flat buffer, their
/// gradients in another, in the order in which backward completes them (the last layer first), each on a 64-byte
/// boundary; what lies between them is zero. With `bfloat16` as Element, images, values and their gradients are stored
/// in 16 bits; parameters, their gradients and buffers are float, products round parameters to bfloat16 and sum in
/// float, and everything else computes in float. Not safe for several threads at once; it uses the threads of its
/// device, and on a device with lanes (cpu_options::inter_op_threads) independent branches run side by side, each lane
/// with workspace of its own. The results are the same bits for any number of threads and lanes.
template <class Element, class Layout = nchw, class Device = cpu>
class network {
  static_assert(explain_network_element<Element>());
  static_assert(explain_layout_policy<Layout>());
  static_assert(explain_device_policy<Device>());

 public:
  using element_type = Element;
  using layout_type = Layout;
  using device_type = Device;
  /// Of parameters, their gradients and buffers.
  using parameter_element_type = parameter_element_t<Element>;
  using parameter_type = parameter<parameter_element_type, Layout, Device>;
  using view = image_view<Element, Layout, Device>;
  using const_view = image_view<const Element, Layout, Device>;

  /// @param input  the shape of one example
  /// @throws shape_error when an extent is below 1
  network(Device& device, value_shape input) : device_{&device}, graph_{input} {}

  network(network&&) noexcept = default;
  network& operator=(network&&) noexcept = default;

  // ---- building

  /// The images that the network is given.
  [[nodiscard]] value input() const noexcept { return {0}; }

  /// Appends a layer that reads `inputs`, and returns its output.
  ///
  /// @param name         unique in the network; the parameters are called "name.weight" and so on
  /// @param description  the options of the layer: nn::conv2d{...}, nn::relu{}, ...
  /// @throws shape_error, configuration_error naming the layer, when the inputs do not fit it; then nothing is added
  template <class Description>
  GRADUS_NEVER_INLINE value add(std::string_view name, const Description& description, const input_list& inputs,
                                std::source_location where = std::source_location::current()) {
    auto* const made = new typename Description::template layer<Element, Layout, Device>(description);
    return append(name, made, made, inputs.values(), where);
  }

  /// Appends a layer that reads one value.
  template <class Description>
  GRADUS_NEVER_INLINE value add(std::string_view name, const Description& description, value input,
                                std::source_location where = std::source_location::current()) {
    auto* const made = new typename Description::template layer<Element, Layout, Device>(description);
    return append(name, made, made, {&input, 1}, where);
  }

  /// Ends the network with a loss over `scores`.
  /// @throws shape_error when the scores have a shape that the loss cannot use
  template <class Description>
  void loss(const Description& description, value scores,
            std::source_location where = std::source_location::current()) {
    graph_.require_scores(scores, where);
    auto implementation = std::make_unique<typename Description::template loss<Element, Layout, Device>>(description);
    implementation->infer(graph_.shape(scores.index));
    loss_ = std::move(implementation);
    graph_.end(scores);
  }

  /// The shape of one example of a value.
  [[nodiscard]] const value_shape& shape(value v) const { return graph_.shape(v.index); }

  /// Plans the network, takes its memory, and sets the parameters to their initial values.
  /// @throws configuration_error when there is nothing to freeze, a value is never used, or batch_size is below 1
  /// @throws device_error when the memory does not suffice; then it may be frozen with a smaller batch
  void freeze(const freeze_options& options) {
    graph_.freeze(options, sizeof(parameter_element_type));
    try {
      take_memory(options);
    } catch (...) {
      graph_.thaw();
      throw;
    }
  }

  /// What freeze would take, without taking it: also of networks that are larger than the machine. From then on
  /// structure() says where parameters would lie.
  /// @throws configuration_error as freeze does
  [[nodiscard]] GRADUS_COLD memory_forecast forecast(const freeze_options& options) {
    graph_.freeze(options, sizeof(parameter_element_type));
    plan_options planning{.recompute = options.recompute.choose, .side_by_side = nullptr, .lanes = 1};
    gradus::detail::vector<layer_memory> needed(layers());
    prepare_plan(planning, needed);
    memory_forecast result{.plan = plan_execution(graph_.describe_for_plan(needed, sizeof(Element)), planning)};
    for (const layer_memory& each : needed) {
      result.workspace = std::max(result.workspace, planning.lanes * each.workspace);
    }
    const std::size_t bytes = static_cast<std::size_t>(graph_.parameter_elements()) * sizeof(parameter_element_type);
    result.arena = result.plan.arena_bytes;
    result.parameters = bytes;
    result.gradients = graph_.examples_at_once() < options.batch_size ? 2 * bytes : bytes;
    result.buffers = static_cast<std::size_t>(graph_.buffer_elements()) * sizeof(parameter_element_type);
    graph_.thaw();
    return result;
  }

  // ---- running

  /// Forward, loss and backward of one batch; the gradients are those of the sum of losses / global_examples.
  /// @param images    (n, channels, height, width) with 0 <= n <= batch_size; without examples all gradients are zero
  /// @param labels    n class indices
  /// @param observer  is told what the step does, or nullptr
  /// @throws shape_error when shapes disagree or a label is no class
  kernels::loss_sums train_step(const_view images, std::span<const std::int32_t> labels,
                                const step_options& options = {}, step_observer* observer = nullptr) {
    graph_.require_loss("network.train_step");
    graph_.check_batch("network.train_step", images.extents(), labels.size(), batch_size());
    if (images.extent(0) == 0) {
      device_->fill_zero(memory_->gradients().data(), memory_->gradients().size_bytes());
      if (observer != nullptr) {
        observer->gradients_ready(0, parameters_.size());
      }
      return {};
    }
    return images.extent(0) > graph_.examples_at_once() ? train_in_parts(images, labels, options, observer)
                                                        : train_at_once(images, labels, options, observer);
  }

  /// The scores of a batch, outside training. The view is valid until the network runs again.
  /// @throws shape_error when there are more images than are computed at once
  const_view forward(const_view images) {
    graph_.check_batch("network.forward", images.extents(), static_cast<std::size_t>(images.extent(0)),
                       graph_.examples_at_once());
    const step_context context{.training = false, .seed = seed(), .step = 0, .first_example = 0};
    run_pass(kernels::pass::forward, images, context, nullptr);
    return value_view(graph_.scores(), images);
  }

  /// The sums of losses and of right answers over a batch, outside training.
  kernels::loss_sums evaluate(const_view images, std::span<const std::int32_t> labels) {
    graph_.require_loss("network.evaluate");
    graph_.check_batch("network.evaluate", images.extents(), labels.size(), batch_size());
    kernels::loss_sums total;
    for (index_t first = 0; first < images.extent(0); first += graph_.examples_at_once()) {
      const const_view part = part_of(images, first);
      const kernels::loss_sums sums =
          loss_->compute(*device_, forward(part), labels_of(labels, first, part), 0.0, nullptr);
      total.loss += sums.loss;
      total.correct += sums.correct;
    }
    return total;
  }

  /// Runs forward as train_step does and names the first thing that is not finite: for the diagnosis of a loss that is
  /// NaN or infinite. Allocates.
  [[nodiscard]] GRADUS_COLD non_finite find_non_finite(const_view images, const step_options& options) {
    if (std::string name = memory_->first_non_finite_parameter(graph_); !name.empty()) {
      return {gradus::detail::text({"parameter ", name})};
    }
    if (!memory_->all_finite(images.data(), images.size())) {
      return {"the input"};
    }
    std::string place;
    for (index_t first = 0; first < images.extent(0) && place.empty(); first += graph_.examples_at_once()) {
      const const_view part = part_of(images, first);
      finder observer{*this, part.extent(0)};
      step_options place_of_part = options;
      place_of_part.first_example += static_cast<std::uint64_t>(first);
      const step_context context = training_context(place_of_part);
      run_pass(kernels::pass::forward, part, context, &observer);
      place = std::move(observer.place);
    }
    return {std::move(place)};
  }

  // ---- what it consists of

  [[nodiscard]] bool frozen() const noexcept { return graph_.frozen(); }
  [[nodiscard]] Device& device() const noexcept { return *device_; }
  /// The largest batch, in examples. @pre frozen
  [[nodiscard]] index_t batch_size() const noexcept { return graph_.options().batch_size; }
  [[nodiscard]] std::uint64_t seed() const noexcept { return graph_.options().seed; }
  [[nodiscard]] const value_shape& input_shape() const noexcept { return graph_.shape(0); }
  /// The shape of what forward returns, for one example.
  [[nodiscard]] const value_shape& output_shape() const { return graph_.shape(graph_.scores()); }
  [[nodiscard]] std::size_t layers() const noexcept { return graph_.nodes().size(); }
  [[nodiscard]] const std::string& layer_name(std::size_t layer) const { return graph_.name(layer); }
  /// Layers, the values between them, and parameters, without memory.
  [[nodiscard]] const graph& structure() const noexcept { return graph_; }
  /// What a step does. @pre frozen
  [[nodiscard]] const execution_plan& plan() const noexcept { return memory_->plan(); }

  /// All parameters, in the order in which backward completes their gradients. @pre frozen
  [[nodiscard]] std::span<const parameter_type> parameters() const noexcept { return parameters_; }
  /// The parameter "layer.name". @throws configuration_error when there is none
  [[nodiscard]] const parameter_type& find_parameter(std::string_view name) const {
    return parameters_[graph_.find_parameter(name)];
  }
  /// Those of a layer in parameters(). @pre frozen
  [[nodiscard]] parameter_range parameters_of(std::size_t layer) const noexcept {
    const graph::node& n = graph_.nodes()[layer];
    return {.first = n.first_parameter, .count = n.parameters.size()};
  }
  /// The flat buffers behind parameters(). @pre frozen
  [[nodiscard]] std::span<parameter_element_type> values() noexcept { return memory_->values(); }
  [[nodiscard]] std::span<parameter_element_type> gradients() noexcept { return memory_->gradients(); }

  /// What layers keep from step to step beside parameters. In distributed training each rank has its own. @pre frozen
  [[nodiscard]] std::span<const buffer<parameter_element_type, Device>> buffers() const noexcept {
    return memory_->buffers();
  }
  /// The flat buffer behind buffers().
  [[nodiscard]] std::span<parameter_element_type> buffer_values() noexcept { return memory_->buffer_values(); }

  /// Learnable numbers.
  [[nodiscard]] index_t parameter_count() const { return graph_.parameter_count(); }
  /// Multiply-adds of one forward pass over one example.
  [[nodiscard]] index_t multiply_adds() const { return graph_.multiply_adds(); }
  /// Bytes that the frozen network holds: arena, workspace, parameters and gradients.
  [[nodiscard]] std::size_t memory_bytes() const { return memory_->bytes(); }

  /// One line a layer: name, kind, output shape, parameters, multiply-adds; then the totals. Equal texts mean networks
  /// that compute the same.
  [[nodiscard]] std::string describe() const { return graph_.describe(); }

 private:
  using passes = layer_passes<Element, Layout, Device>;
  using gradient_type = input_gradient<Element, Layout, Device>;

  /// Looks at every layer's output before its memory is used again.
  class finder final : public step_observer {
   public:
    finder(network& net, index_t examples) noexcept : net_{net}, examples_{examples} {}

    void after_layer(std::size_t layer, kernels::pass /*which*/) override {
      const Element* const output = net_.memory_->value(layer + 1);
      if (place.empty() && output != nullptr &&
          !net_.memory_->all_finite(output, net_.graph_.batch_extents(layer + 1, examples_).size())) {
        place = net_.graph_.describe(layer);
      }
    }

    std::string place;

   private:
    network& net_;
    index_t examples_;
  };

  /// Tells of a step that is computed in parts: layers as they run, gradients when those of all parts are added up.
  class parts_observer final : public step_observer {
   public:
    parts_observer(network& net, step_observer* observer) noexcept : net_{net}, observer_{observer} {}

    void before_layer(std::size_t layer, kernels::pass which) override {
      if (observer_ != nullptr) {
        observer_->before_layer(layer, which);
      }
    }
    void after_layer(std::size_t layer, kernels::pass which) override {
      if (observer_ != nullptr) {
        observer_->after_layer(layer, which);
      }
    }
    void gradients_ready(std::size_t first, std::size_t count) override {
      if (!last_part || count == 0) {
        return;
      }
      const std::span<const parameter_description* const> described = net_.graph_.parameters();
      const parameter_description& end = *described[first + count - 1];
      net_.add_gradients(described[first]->offset, end.offset + end.shape.size(), net_.memory_->partial_gradients(),
                         net_.gradients(), true);
      if (observer_ != nullptr) {
        observer_->gradients_ready(first, count);
      }
    }

    bool last_part = false;

   private:
    network& net_;
    step_observer* observer_;
  };

  /// Elements [begin, end) of the flat buffers: to = from, or to = to + from.
  GRADUS_NEVER_INLINE void add_gradients(index_t begin, index_t end, std::span<const parameter_element_type> from,
                                         std::span<parameter_element_type> to, bool add) {
    copy_or_add(*device_, end - begin, from.data() + begin, to.data() + begin, add);
  }

  /// The images that are computed at once, from `first` on.
  [[nodiscard]] GRADUS_NEVER_INLINE const_view part_of(const const_view& images, index_t first) const {
    const index_t count = std::min(graph_.examples_at_once(), images.extent(0) - first);
    return {*device_, images.data() + first * graph_.batch_extents(0, 1).size(), graph_.batch_extents(0, count)};
  }
  [[nodiscard]] static std::span<const std::int32_t> labels_of(std::span<const std::int32_t> labels, index_t first,
                                                               const const_view& part) noexcept {
    return labels.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(part.extent(0)));
  }

  kernels::loss_sums train_at_once(const const_view& images, std::span<const std::int32_t> labels,
                                   const step_options& options, step_observer* observer) {
    const step_context context = training_context(options);
    run_pass(kernels::pass::forward, images, context, observer);
    const kernels::loss_sums sums = run_loss(images, labels, options);
    run_pass(kernels::pass::backward_data, images, context, observer);
    return sums;
  }

  GRADUS_NEVER_INLINE kernels::loss_sums train_in_parts(const const_view& images, std::span<const std::int32_t> labels,
                                                        step_options options, step_observer* observer) {
    const index_t examples = images.extent(0);
    options.global_examples = options.global_examples > 0 ? options.global_examples : examples;
    parts_observer parts{*this, observer};
    kernels::loss_sums total;
    for (index_t first = 0; first < examples; first += graph_.examples_at_once()) {
      const const_view part = part_of(images, first);
      parts.last_part = first + part.extent(0) == examples;
      const kernels::loss_sums sums = train_at_once(part, labels_of(labels, first, part), options, &parts);
      total.loss += sums.loss;
      total.correct += sums.correct;
      if (!parts.last_part) {
        add_gradients(0, graph_.parameter_elements(), gradients(), memory_->partial_gradients(), first > 0);
      }
      options.first_example += static_cast<std::uint64_t>(part.extent(0));
    }
    return total;
  }

  /// Takes over `owned`. The layer comes in both of its forms, so that no code of this is compiled for each kind.
  value append(std::string_view name, layer_base* owned, passes* layer, std::span<const value> inputs,
               const std::source_location& where) {
    return graph_.append(name, std::unique_ptr<layer_base>{owned}, layer, inputs, where);
  }

  [[nodiscard]] passes& layer_at(std::size_t i) const noexcept {
    return *static_cast<passes*>(graph_.nodes()[i].passes);
  }

  /// What freeze plans with: the options of the plan and the memory of each layer. Returns the most inputs of a layer.
  GRADUS_ALWAYS_INLINE std::size_t prepare_plan(plan_options& planning, gradus::detail::vector<layer_memory>& needed) {
    if constexpr (has_device_lanes<Device>) {
      if (device_->lanes() > 1) {
        planning.side_by_side = &detail::plan_lanes;
        planning.lanes = static_cast<std::size_t>(device_->lanes());
      }
    }
    std::size_t most_inputs = 0;
    for (std::size_t i = 0; i < layers(); ++i) {
      needed[i] = layer_at(i).memory(*device_, graph_.examples_at_once());
      if (planning.lanes > 1) {
        needed[i].workspace =
            std::max(needed[i].workspace, layer_at(i).memory(lane_device(0), graph_.examples_at_once()).workspace);
      }
      most_inputs = std::max(most_inputs, graph_.nodes()[i].inputs.size());
    }
    return most_inputs;
  }

  GRADUS_COLD void take_memory(const freeze_options& options) {
    gradus::detail::vector<layer_memory> needed(layers());
    plan_options planning{.recompute = options.recompute.choose, .side_by_side = nullptr, .lanes = 1};
    most_inputs_ = prepare_plan(planning, needed);
    memory_ = std::make_unique<detail::network_memory<Element, Device>>(*device_, graph_, std::move(needed),
                                                                        &dense_strides<Layout, 4>, planning);
    lanes_ = plan().lanes.regions.empty() ? nullptr : std::make_unique<detail::lane_runner>(plan());
    parameters_.clear();
    for (std::size_t k = 0; k < graph_.parameters().size(); ++k) {
      const parameter_description& described = *graph_.parameters()[k];
      const parameter_memory<parameter_element_type>& place = memory_->parameters()[k];
      using parameter_view = image_view<parameter_element_type, Layout, Device>;
      parameters_.emplace_back(described, parameter_view{*device_, place.value, described.shape},
                               parameter_view{*device_, place.gradient, described.shape});
    }
    inputs_ = gradus::detail::vector<const_view>(planning.lanes * most_inputs_, const_view{*device_, nullptr, {}});
    input_gradients_ = gradus::detail::vector<gradient_type>(planning.lanes * most_inputs_,
                                                             gradient_type{view{*device_, nullptr, {}}, {}});
  }

  [[nodiscard]] step_context training_context(const step_options& options) const noexcept {
    return {.training = true, .seed = seed(), .step = options.step, .first_example = options.first_example};
  }

  [[nodiscard]] GRADUS_NEVER_INLINE const_view value_view(std::size_t v, const const_view& images) const {
    const Element* const data = memory_->value(v);
    return {*device_, data == nullptr ? images.data() : data, graph_.batch_extents(v, images.extent(0))};
  }

  [[nodiscard]] GRADUS_NEVER_INLINE view gradient_view(std::size_t v, index_t examples) const {
    return {*device_, memory_->gradient(v), graph_.batch_extents(v, examples)};
  }

  /// What a layer writes of the gradient of a value.
  [[nodiscard]] GRADUS_NEVER_INLINE gradient_type planned_gradient(const execution_plan::gradient_target& target,
                                                                   std::size_t v, index_t examples) const {
    return {view{*device_, target.wanted ? memory_->gradient(v) : nullptr, graph_.batch_extents(v, examples)},
            {.accumulate = target.accumulate, .relu_output = target.mask ? memory_->value(v) : nullptr}};
  }

  /// The values that a layer reads. Valid until the next call for the lane.
  GRADUS_NEVER_INLINE std::span<const const_view> read_inputs(const graph::node& n, const const_view& images,
                                                              std::size_t place) {
    const_view* const views = inputs_.data() + place * most_inputs_;
    for (std::size_t k = 0; k < n.inputs.size(); ++k) {
      views[k] = value_view(n.inputs[k], images);
    }
    return {views, n.inputs.size()};
  }

  GRADUS_NEVER_INLINE void forward_layer(std::size_t i, const const_view& images, const step_context& context,
                                         std::size_t lane) {
    const std::size_t place = lane == detail::pass_steps::alone ? 0 : lane;
    const graph::node& n = graph_.nodes()[i];
    const std::size_t residual = plan().nodes[i].residual;
    layer_at(i).forward({lane_device(lane), read_inputs(n, images, place),
                         view{*device_, memory_->value(i + 1), graph_.batch_extents(i + 1, images.extent(0))},
                         residual == execution_plan::none ? nullptr : value_view(residual, images).data(),
                         memory_->parameters().subspan(n.first_parameter, n.parameters.size()),
                         memory_->buffer_memory().subspan(n.first_buffer, n.buffers.size()), memory_->state(i),
                         memory_->workspace(place), context});
  }

  kernels::loss_sums run_loss(const const_view& images, std::span<const std::int32_t> labels,
                              const step_options& options) {
    const index_t examples = images.extent(0);
    const std::size_t scores = graph_.scores();
    const execution_plan::gradient_target& target = plan().loss_target;
    const double scale = 1.0 / static_cast<double>(options.global_examples > 0 ? options.global_examples : examples);
    const kernels::loss_sums sums = loss_->compute(*device_, value_view(scores, images), labels, scale,
                                                   target.wanted ? memory_->gradient(scores) : nullptr);
    mask_if_planned(*device_, target, scores, examples);
    return sums;
  }

  void backward_layer(std::size_t i, const const_view& images, const step_context& context, std::size_t lane) {
    Device& device = lane_device(lane);
    const std::size_t place = lane == detail::pass_steps::alone ? 0 : lane;
    gradient_type* const input_gradients = input_gradients_.data() + place * most_inputs_;
    const index_t examples = images.extent(0);
    const graph::node& n = graph_.nodes()[i];
    const execution_plan::node& planned = plan().nodes[i];
    for (std::size_t k = 0; k < n.inputs.size(); ++k) {
      input_gradients[k] = planned_gradient(planned.targets[k], n.inputs[k], examples);
    }
    const bool adds = planned.residual != execution_plan::none;
    layer_at(i).backward({device, read_inputs(n, images, place), value_view(i + 1, images),
                          gradient_view(i + 1, examples), std::span{input_gradients, n.inputs.size()},
                          adds ? planned_gradient(planned.residual_target, planned.residual, examples)
                               : gradient_type{view{*device_, nullptr, {}}, {}},
                          memory_->parameters().subspan(n.first_parameter, n.parameters.size()),
                          memory_->buffer_memory().subspan(n.first_buffer, n.buffers.size()), memory_->state(i),
                          memory_->workspace(place), context});
    for (std::size_t k = 0; k < n.inputs.size(); ++k) {
      mask_if_planned(device, planned.targets[k], n.inputs[k], examples);
    }
    if (adds) {
      mask_if_planned(device, planned.residual_target, planned.residual, examples);
    }
  }

  /// Sets the gradient of a ReLU's output to 0 where the ReLU was, if the layer that completed it could not.
  GRADUS_NEVER_INLINE void mask_if_planned(Device& device, const execution_plan::gradient_target& target, std::size_t v,
                                           index_t examples) {
    if (target.mask_after) {
      const view gradient = gradient_view(v, examples);
      relu_backward(device, gradient.size(), gradient.data(), memory_->value(v), gradient.data(), false);
    }
  }

  /// Computes again what the backward pass of layer i is the first to read.
  GRADUS_NEVER_INLINE void recompute_for(std::size_t i, const const_view& images, step_context context,
                                         std::size_t lane) {
    context.again = true;
    const execution_plan::node& planned = plan().nodes[i];
    for (std::size_t k = 0; k < planned.recompute_count; ++k) {
      forward_layer(plan().recomputed[planned.recompute_first + k], images, context, lane);
    }
  }

  /// One pass over the layers, as detail::run_pass asks for it.
  class pass_of_network final : public detail::pass_steps {
   public:
    pass_of_network(network& net, kernels::pass which, const const_view& images, const step_context& context) noexcept
        : net_{net}, forward_{which == kernels::pass::forward}, images_{images}, context_{context} {}

    void run(std::size_t layer, std::size_t lane) override {
      if (forward_) {
        net_.forward_layer(layer, images_, context_, lane);
        return;
      }
      net_.recompute_for(layer, images_, context_, lane);
      net_.backward_layer(layer, images_, context_, lane);
    }

    void on_all_lanes([[maybe_unused]] void (*body)(void* object, std::size_t lane),
                      [[maybe_unused]] void* object) override {
      if constexpr (has_device_lanes<Device>) {
        net_.device_->parallel_lanes([=](index_t lane) { body(object, static_cast<std::size_t>(lane)); });
      }
    }

   private:
    network& net_;
    bool forward_;
    const const_view& images_;
    const step_context& context_;
  };

  GRADUS_NEVER_INLINE void run_pass(kernels::pass which, const const_view& images, const step_context& context,
                                    step_observer* observer) {
    memory_->begin(which);
    pass_of_network steps{*this, which, images, context};
    detail::run_pass(graph_, plan(), lanes_.get(), which, steps, observer);
  }

  /// What runs the layers of a lane.
  [[nodiscard]] Device& lane_device([[maybe_unused]] std::size_t lane) const noexcept {
    if constexpr (has_device_lanes<Device>) {
      if (lane != detail::pass_steps::alone) {
        return device_->lane(lane);
      }
    }
    return *device_;
  }

  Device* device_;
  graph graph_;
  std::unique_ptr<loss_function<Element, Layout, Device>> loss_;
  std::unique_ptr<detail::network_memory<Element, Device>> memory_;  // of a frozen network
  gradus::detail::vector<parameter_type> parameters_;
  std::unique_ptr<detail::lane_runner> lanes_;  // null where the layers run one after another
  // Of the layer that runs on each lane; kept, so that a step allocates nothing.
  std::size_t most_inputs_ = 0;  // of a layer
  gradus::detail::vector<const_view> inputs_;
  gradus::detail::vector<gradient_type> input_gradients_;
};

}  // namespace gradus::nn

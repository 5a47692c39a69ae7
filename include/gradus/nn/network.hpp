// SPDX-License-Identifier: BSL-1.0
//
// A network: a graph of layers that is built by calls, frozen once, and run many times without allocating.
// Module: nn. Depends on: kernels.
#pragma once

#include <algorithm>         // std::max
#include <cmath>             // std::isfinite
#include <cstddef>           // std::byte, std::size_t
#include <cstdint>           // std::int32_t, std::uint64_t, std::uint8_t
#include <initializer_list>  // std::initializer_list
#include <iomanip>           // std::setw
#include <memory>            // std::unique_ptr
#include <source_location>   // std::source_location
#include <span>              // std::span
#include <sstream>           // std::ostringstream
#include <string>            // std::string
#include <string_view>       // std::string_view
#include <utility>           // std::move
#include <vector>            // std::vector

#include "gradus/core/error.hpp"           // configuration_error, shape_error
#include "gradus/core/extents.hpp"         // image_extents
#include "gradus/core/index.hpp"           // index_t
#include "gradus/core/random.hpp"          // random_stream
#include "gradus/device/cpu.hpp"           // cpu
#include "gradus/kernels/cpu.hpp"          // the kernels of the default device
#include "gradus/kernels/elementwise.hpp"  // relu_backward
#include "gradus/layout/layouts.hpp"       // nchw
#include "gradus/nn/layer.hpp"             // layer, step_context
#include "gradus/nn/loss.hpp"              // loss_function
#include "gradus/nn/parameter.hpp"         // parameter
#include "gradus/nn/plan.hpp"              // plan_execution
#include "gradus/nn/value.hpp"             // value, value_shape
#include "gradus/tensor/tensor.hpp"        // tensor
#include "gradus/tensor/tensor_view.hpp"   // image_view

namespace gradus::nn {

/// The values that a layer reads: one, or a list in braces.
class input_list {
 public:
  input_list(value single) : values_{single} {}
  input_list(std::initializer_list<value> several) : values_{several} {}
  input_list(std::vector<value> several) : values_{std::move(several)} {}

  [[nodiscard]] const std::vector<value>& values() const noexcept { return values_; }

 private:
  std::vector<value> values_;
};

/// How a network is frozen.
struct freeze_options {
  index_t batch_size = 0;  ///< the largest number of examples that one step gets
  std::uint64_t seed = 0;  ///< of the initial values of parameters and of layers such as dropout
};

/// What a layer keeps from step to step beside its parameters, such as a running mean.
template <class Element, class Device>
struct buffer {
  std::string name;                                     ///< "layer.running_mean"
  tensor_view<Element, 1, row_major, Device> elements;  ///< in the memory of the device
};

/// One training step's place in the training.
struct step_options {
  std::uint64_t step = 0;           ///< counted from 0 over the whole training
  std::uint64_t first_example = 0;  ///< of this batch, in the order of the epoch over all ranks
  index_t global_examples = 0;      ///< of the step over all ranks; 0: those of this call
};

/// Where a value that is not finite was first seen.
struct non_finite {
  std::string place;  ///< "parameter conv1.weight", "layer 'conv1' (conv2d)", "the input", or empty: everything finite
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
/// boundary; what lies between them is zero. Not safe for several threads at once; it uses the threads of its device.
template <class Element, class Layout = nchw, class Device = cpu>
class network {
  static_assert(explain_real_element<Element>());
  static_assert(explain_layout_policy<Layout>());
  static_assert(explain_device_policy<Device>());

 public:
  using element_type = Element;
  using layout_type = Layout;
  using device_type = Device;
  using layer_type = layer<Element, Layout, Device>;
  using parameter_type = parameter<Element, Layout, Device>;
  using view = image_view<Element, Layout, Device>;
  using const_view = image_view<const Element, Layout, Device>;

  /// @param input  the shape of one example
  /// @throws shape_error when an extent is below 1
  network(Device& device, value_shape input) : device_{&device} {
    if (input.channels < 1 || input.height < 1 || input.width < 1) {
      throw shape_error{"network", "an input of at least 1 channel, row and column", to_string(input)};
    }
    shapes_.push_back(input);
  }

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
  value add(std::string name, const Description& description, const input_list& inputs,
            std::source_location where = std::source_location::current()) {
    return append(std::move(name),
                  std::make_unique<typename Description::template layer<Element, Layout, Device>>(description), inputs,
                  where);
  }

  /// Ends the network with a loss over `scores`.
  /// @throws shape_error when the scores have a shape that the loss cannot use
  template <class Description>
  void loss(const Description& description, value scores,
            std::source_location where = std::source_location::current()) {
    require_building("network.loss");
    if (scores.index >= shapes_.size() || scores.index == 0) {
      throw configuration_error{"network.loss", "the output of a layer of this network", "another value", {}, where};
    }
    auto implementation = std::make_unique<typename Description::template loss<Element, Layout, Device>>(description);
    implementation->infer(shapes_[scores.index]);
    loss_ = std::move(implementation);
    scores_ = scores.index;
  }

  /// The shape of one example of a value.
  [[nodiscard]] const value_shape& shape(value v) const { return shapes_.at(v.index); }

  /// Plans the network, takes its memory, and sets the parameters to their initial values.
  /// @throws configuration_error when there is nothing to freeze, a value is never used, or batch_size is below 1
  /// @throws device_error when the memory does not suffice
  void freeze(const freeze_options& options) {
    require_building("network.freeze");
    if (nodes_.empty()) {
      throw configuration_error{"network.freeze", "a network with at least one layer", "none"};
    }
    if (options.batch_size < 1) {
      throw configuration_error{"network.freeze", "a batch_size of at least 1", std::to_string(options.batch_size)};
    }
    if (!loss_) {
      scores_ = shapes_.size() - 1;
    }
    require_all_used();
    batch_size_ = options.batch_size;
    seed_ = options.seed;
    plan_ = plan_execution(describe_graph());
    take_memory();
    make_parameters();
    make_buffers();
    bind(batch_size_);
  }

  // ---- running

  /// Forward, loss and backward of one batch; the gradients are those of the sum of losses / global_examples.
  ///
  /// An `observer` may have any of the members
  ///   before_layer(std::size_t layer, pass), after_layer(std::size_t layer, pass)
  ///   gradients_ready(std::size_t first, std::size_t count)   parameters() whose gradients are now complete
  /// @param images  (n, channels, height, width) with 0 <= n <= batch_size; without examples all gradients are zero
  /// @param labels  n class indices
  /// @throws shape_error when shapes disagree or a label is no class
  template <class Observer>
  kernels::loss_sums train_step(const_view images, std::span<const std::int32_t> labels, const step_options& options,
                                Observer&& observer) {
    require_loss("network.train_step");
    check_batch("network.train_step", images, labels.size());
    const index_t examples = images.extent(0);
    if (examples == 0) {
      device_->fill_zero(gradients_->data(), static_cast<std::size_t>(gradients_->size()) * sizeof(Element));
      notify_gradients(observer, 0, parameters_.size());
      return {};
    }
    bind(examples);
    const step_context context{
        .training = true, .seed = seed_, .step = options.step, .first_example = options.first_example};
    run_forward(images, context, observer);
    const double scale = 1.0 / static_cast<double>(options.global_examples > 0 ? options.global_examples : examples);
    const auto& scores = plan_.slots[plan_.slot_of_value[scores_]];
    const view gradient = slot_gradient(scores, shapes_[scores_].batch(examples));
    const kernels::loss_sums sums = loss_->compute(*device_, value_view(scores_, images, examples), labels, scale,
                                                   plan_.loss_target.wanted ? gradient.data() : nullptr);
    mask_if_planned(plan_.loss_target, scores_);
    run_backward(images, context, observer);
    return sums;
  }

  kernels::loss_sums train_step(const_view images, std::span<const std::int32_t> labels,
                                const step_options& options = {}) {
    return train_step(images, labels, options, silent{});
  }

  /// The scores of a batch, outside training. The view is valid until the network runs again.
  const_view forward(const_view images) {
    check_batch("network.forward", images, static_cast<std::size_t>(images.extent(0)));
    bind(images.extent(0));
    silent observer;
    run_forward(images, step_context{.training = false, .seed = seed_, .step = 0, .first_example = 0}, observer);
    return value_view(scores_, images, images.extent(0));
  }

  /// The sums of losses and of right answers over a batch, outside training.
  kernels::loss_sums evaluate(const_view images, std::span<const std::int32_t> labels) {
    require_loss("network.evaluate");
    check_batch("network.evaluate", images, labels.size());
    if (images.extent(0) == 0) {
      return {};
    }
    const const_view scores = forward(images);
    return loss_->compute(*device_, scores, labels, 0.0, nullptr);
  }

  /// Runs forward as train_step does and names the first thing that is not finite: for the diagnosis of a loss that is
  /// NaN or infinite. Allocates.
  [[nodiscard]] non_finite find_non_finite(const_view images, const step_options& options) {
    for (const parameter_type& p : parameters_) {
      if (!all_finite(p.value().data(), p.size())) {
        return {"parameter " + p.name()};
      }
    }
    if (!all_finite(images.data(), images.size())) {
      return {"the input"};
    }
    bind(images.extent(0));
    const step_context context{
        .training = true, .seed = seed_, .step = options.step, .first_example = options.first_example};
    finder observer{*this, {}};
    run_forward(images, context, observer);
    return {observer.place};
  }

  // ---- what it consists of

  [[nodiscard]] bool frozen() const noexcept { return batch_size_ != 0; }
  [[nodiscard]] Device& device() const noexcept { return *device_; }
  /// The largest batch, in examples. @pre frozen
  [[nodiscard]] index_t batch_size() const noexcept { return batch_size_; }
  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }
  [[nodiscard]] const value_shape& input_shape() const noexcept { return shapes_.front(); }
  /// The shape of what forward returns, for one example.
  [[nodiscard]] const value_shape& output_shape() const { return shapes_.at(scores_); }
  [[nodiscard]] std::size_t layers() const noexcept { return nodes_.size(); }
  [[nodiscard]] const std::string& layer_name(std::size_t layer) const { return nodes_.at(layer).name; }
  [[nodiscard]] const execution_plan& plan() const noexcept { return plan_; }

  /// All parameters, in the order in which backward completes their gradients. @pre frozen
  [[nodiscard]] std::span<const parameter_type> parameters() const noexcept { return parameters_; }
  /// The parameter "layer.name". @throws configuration_error when there is none
  [[nodiscard]] const parameter_type& find_parameter(std::string_view name) const {
    for (const parameter_type& p : parameters_) {
      if (p.name() == name) {
        return p;
      }
    }
    std::string known;
    for (const parameter_type& p : parameters_) {
      known.append(known.empty() ? "" : ", ").append(p.name());
    }
    throw configuration_error{"network.find_parameter", "one of " + known, "'" + std::string{name} + "'"};
  }
  /// The flat buffers behind parameters(). @pre frozen
  [[nodiscard]] std::span<Element> values() noexcept { return flat(*values_); }
  [[nodiscard]] std::span<Element> gradients() noexcept { return flat(*gradients_); }

  /// What layers keep from step to step beside parameters. In distributed training each rank has its own. @pre frozen
  [[nodiscard]] std::span<const buffer<Element, Device>> buffers() const noexcept { return buffers_; }
  /// The flat buffer behind buffers().
  [[nodiscard]] std::span<Element> buffer_values() noexcept { return flat(*buffer_values_); }

  /// Learnable numbers.
  [[nodiscard]] index_t parameter_count() const {
    index_t total = 0;
    for (const node& n : nodes_) {
      for (const parameter_description& p : n.descriptions) {
        total += p.shape.size();
      }
    }
    return total;
  }
  /// Multiply-adds of one forward pass over one example.
  [[nodiscard]] index_t multiply_adds() const {
    index_t total = 0;
    for (const node& n : nodes_) {
      total += n.implementation->multiply_adds();
    }
    return total;
  }
  /// Bytes that the frozen network holds: arena, workspace, parameters and gradients.
  [[nodiscard]] std::size_t memory_bytes() const {
    return static_cast<std::size_t>(arena_->size() + workspace_->size()) +
           2 * static_cast<std::size_t>(values_->size()) * sizeof(Element);
  }

  /// One line a layer: name, kind, output shape, parameters, multiply-adds; then the totals. Equal texts mean networks
  /// that compute the same.
  [[nodiscard]] std::string describe() const {
    std::ostringstream text;
    text << "input" << std::setw(36) << to_string(shapes_.front()) << '\n';
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      index_t count = 0;
      for (const parameter_description& p : nodes_[i].descriptions) {
        count += p.shape.size();
      }
      text << std::left << std::setw(24) << nodes_[i].name << std::setw(24) << nodes_[i].implementation->kind()
           << std::right << std::setw(20) << to_string(shapes_[i + 1]) << std::setw(14) << count << std::setw(16)
           << nodes_[i].implementation->multiply_adds() << '\n';
    }
    text << "parameters: " << parameter_count() << ", multiply-adds an example: " << multiply_adds() << '\n';
    return text.str();
  }

 private:
  struct node {
    explicit node(const input_gradient<Element, Layout, Device>& none) : residual_gradient{none} {}

    std::string name;
    std::unique_ptr<layer_type> implementation;
    std::vector<std::size_t> inputs;  // values
    std::vector<parameter_description> descriptions;
    std::size_t first_parameter = 0;  // in parameters_
    // Bound to memory by freeze, and to the size of the batch by bind.
    std::vector<parameter_memory<Element>> memory;
    std::vector<Element*> buffers;
    std::vector<const_view> input_views;
    std::vector<input_gradient<Element, Layout, Device>> gradients;
    const Element* residual = nullptr;
    input_gradient<Element, Layout, Device> residual_gradient;
    std::span<std::byte> state;
  };

  struct silent {};

  /// Looks at every layer's output before its memory is used again.
  struct finder {
    network& net;
    std::string place;

    void after_layer(std::size_t layer, kernels::pass /*which*/) {
      const auto& slot = net.plan_.slots[net.plan_.slot_of_value[layer + 1]];
      const index_t count = net.shapes_[layer + 1].batch(net.bound_).size();
      if (place.empty() && net.plan_.slot_of_value[layer + 1] != 0 && !net.all_finite(net.slot_value(slot), count)) {
        place =
            "layer '" + net.nodes_[layer].name + "' (" + std::string{net.nodes_[layer].implementation->kind()} + ")";
      }
    }
  };

  using bytes_tensor = tensor<std::uint8_t, 1, row_major, Device>;
  using flat_tensor = tensor<Element, 1, row_major, Device>;

  static std::span<Element> flat(flat_tensor& buffer) {
    return {buffer.data(), static_cast<std::size_t>(buffer.size())};
  }

  value append(std::string name, std::unique_ptr<layer_type> implementation, const input_list& inputs,
               const std::source_location& where) {
    require_building("network.add");
    for (const node& other : nodes_) {
      if (other.name == name) {
        throw configuration_error{"network.add", "a new name for the layer", "'" + name + "' again", {}, where};
      }
    }
    node made{no_gradient()};
    std::vector<value_shape> input_shapes;
    std::string shown;
    for (const value input : inputs.values()) {
      if (input.index >= shapes_.size()) {
        throw configuration_error{
            "layer '" + name + "'", "values of this network", "a value that it did not make", {}, where};
      }
      made.inputs.push_back(input.index);
      input_shapes.push_back(shapes_[input.index]);
      shown.append(shown.empty() ? "" : ", ").append(to_string(shapes_[input.index]));
    }
    const std::string context = "layer '" + name + "' on " + (shown.empty() ? "no input" : shown);
    try {
      if (made.inputs.empty()) {
        throw configuration_error{implementation->kind(), "at least 1 input value", "0"};
      }
      const value_shape shape = implementation->infer(input_shapes);
      made.descriptions = implementation->parameters();
      shapes_.push_back(shape);
    } catch (const shape_error& failure) {
      throw shape_error{context, {}, failure.message(), {}, where};
    } catch (const configuration_error& failure) {
      throw configuration_error{context, {}, failure.message(), {}, where};
    }
    made.name = std::move(name);
    made.implementation = std::move(implementation);
    nodes_.push_back(std::move(made));
    return {shapes_.size() - 1};
  }

  void require_building(std::string_view operation) const {
    if (frozen()) {
      throw configuration_error{operation, "a network that is not frozen", "a frozen one",
                                "add layers and the loss before freeze, and freeze once"};
    }
  }

  void require_frozen(std::string_view operation) const {
    if (!frozen()) {
      throw configuration_error{operation, "a frozen network", "one that is still being built",
                                "call freeze({.batch_size = ...}) first"};
    }
  }

  void require_loss(std::string_view operation) const {
    require_frozen(operation);
    if (!loss_) {
      throw configuration_error{operation, "a network with a loss", "none",
                                "call loss(nn::softmax_cross_entropy{}, scores) before freeze"};
    }
  }

  void require_all_used() const {
    std::vector<bool> used(shapes_.size(), false);
    used[scores_] = true;
    for (const node& n : nodes_) {
      for (const std::size_t input : n.inputs) {
        used[input] = true;
      }
    }
    for (std::size_t v = 1; v < shapes_.size(); ++v) {
      if (!used[v]) {
        throw configuration_error{"network.freeze", "every layer's output to be read by a layer or the loss",
                                  "the output of layer '" + nodes_[v - 1].name + "' unused"};
      }
    }
  }

  void check_batch(std::string_view operation, const const_view& images, std::size_t labels) const {
    require_frozen(operation);
    const value_shape& want = shapes_.front();
    const image_extents have{images.extents()};
    if (have.n > batch_size_ || have.c != want.channels || have.h != want.height || have.w != want.width) {
      throw shape_error{operation,
                        "images of (n, " + std::to_string(want.channels) + ", " + std::to_string(want.height) + ", " +
                            std::to_string(want.width) + ") with n at most " + std::to_string(batch_size_),
                        to_string(have)};
    }
    if (static_cast<std::size_t>(have.n) != labels) {
      throw shape_error{operation, "one label an image: " + std::to_string(have.n), std::to_string(labels)};
    }
  }

  [[nodiscard]] graph_description describe_graph() const {
    graph_description graph;
    graph.scores = scores_;
    graph.has_loss = loss_ != nullptr;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const layer_memory memory = nodes_[i].implementation->memory(*device_, batch_size_);
      const auto output = static_cast<std::size_t>(shapes_[i + 1].batch(batch_size_).size());
      graph.nodes.push_back({.inputs = nodes_[i].inputs,
                             .traits = nodes_[i].implementation->traits(),
                             .has_parameters = !nodes_[i].descriptions.empty(),
                             .output_bytes = output * sizeof(Element),
                             .state_bytes = memory.state});
    }
    return graph;
  }

  void take_memory() {
    std::size_t workspace = 0;
    for (const node& n : nodes_) {
      workspace = std::max(workspace, n.implementation->memory(*device_, batch_size_).workspace);
    }
    arena_ = std::make_unique<bytes_tensor>(*device_, extents<1>{static_cast<index_t>(plan_.arena_bytes)});
    workspace_ = std::make_unique<bytes_tensor>(*device_, extents<1>{static_cast<index_t>(workspace)});
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      nodes_[i].implementation->set_activation(plan_.nodes[i].activation);
      if (const std::size_t offset = plan_.nodes[i].state_offset; offset != execution_plan::none) {
        nodes_[i].state = {reinterpret_cast<std::byte*>(arena_->data()) + offset,
                           nodes_[i].implementation->memory(*device_, batch_size_).state};
      }
    }
  }

  void make_parameters() {
    constexpr index_t unit = static_cast<index_t>(memory_plan::alignment / sizeof(Element));
    index_t total = 0;
    for (const node& n : nodes_) {
      for (const parameter_description& p : n.descriptions) {
        total += (p.shape.size() + unit - 1) / unit * unit;
      }
    }
    values_ = std::make_unique<flat_tensor>(*device_, extents<1>{total});
    gradients_ = std::make_unique<flat_tensor>(*device_, extents<1>{total});
    index_t offset = 0;
    for (std::size_t i = nodes_.size(); i-- > 0;) {
      node& n = nodes_[i];
      n.first_parameter = parameters_.size();
      for (const parameter_description& p : n.descriptions) {
        n.memory.push_back({values_->data() + offset, gradients_->data() + offset});
        parameters_.emplace_back(n.name + "." + p.name, p, offset, view{*device_, values_->data() + offset, p.shape},
                                 view{*device_, gradients_->data() + offset, p.shape});
        offset += (p.shape.size() + unit - 1) / unit * unit;
        initialize(parameters_.back());
      }
    }
  }

  void make_buffers() {
    index_t total = 0;
    for (const node& n : nodes_) {
      for (const buffer_description& b : n.implementation->buffers()) {
        total += b.size;
      }
    }
    buffer_values_ = std::make_unique<flat_tensor>(*device_, extents<1>{total});
    std::vector<Element> initial;
    for (node& n : nodes_) {
      for (const buffer_description& b : n.implementation->buffers()) {
        Element* const elements = buffer_values_->data() + initial.size();
        n.buffers.push_back(elements);
        buffers_.push_back({n.name + "." + b.name, {*device_, elements, extents<1>{b.size}}});
        initial.insert(initial.end(), static_cast<std::size_t>(b.size), static_cast<Element>(b.initial));
      }
    }
    device_->copy_from_host(buffer_values_->data(), initial.data(), initial.size() * sizeof(Element));
  }

  void initialize(const parameter_type& p) const {
    const random_stream stream{seed_, p.name()};
    std::vector<Element> logical(static_cast<std::size_t>(p.size()));
    for (std::size_t i = 0; i < logical.size(); ++i) {
      logical[i] = static_cast<Element>(p.description().initial(stream, i, p.description().sizes));
    }
    p.assign_values(logical);
  }

  [[nodiscard]] Element* slot_value(const execution_plan::slot& slot) const noexcept {
    return reinterpret_cast<Element*>(arena_->data() + slot.value_offset);
  }

  [[nodiscard]] view slot_gradient(const execution_plan::slot& slot, const image_extents& shape) const {
    return {*device_, slot.has_gradient ? reinterpret_cast<Element*>(arena_->data() + slot.gradient_offset) : nullptr,
            shape};
  }

  [[nodiscard]] const_view value_view(std::size_t v, const const_view& images, index_t examples) const {
    const std::size_t slot = plan_.slot_of_value[v];
    const Element* const data = slot == 0 ? images.data() : slot_value(plan_.slots[slot]);
    return {*device_, data, shapes_[v].batch(examples)};
  }

  [[nodiscard]] input_gradient<Element, Layout, Device> no_gradient() const {
    return {view{*device_, nullptr, extents<4>{}}, {}};
  }

  [[nodiscard]] input_gradient<Element, Layout, Device> bound_gradient(const execution_plan::gradient_target& target,
                                                                       std::size_t v, index_t examples) const {
    const auto& slot = plan_.slots[plan_.slot_of_value[v]];
    return {target.wanted ? slot_gradient(slot, shapes_[v].batch(examples))
                          : view{*device_, nullptr, shapes_[v].batch(examples)},
            {.accumulate = target.accumulate, .relu_output = target.mask ? slot_value(slot) : nullptr}};
  }

  /// Makes all views fit the number of examples. The images are set when a step begins.
  void bind(index_t examples) {
    if (examples == bound_) {
      return;
    }
    const const_view no_images{*device_, nullptr, shapes_.front().batch(examples)};
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      node& n = nodes_[i];
      n.input_views.clear();
      n.gradients.clear();
      for (std::size_t k = 0; k < n.inputs.size(); ++k) {
        const std::size_t v = n.inputs[k];
        n.input_views.push_back(value_view(v, no_images, examples));
        n.gradients.push_back(bound_gradient(plan_.nodes[i].targets[k], v, examples));
      }
      if (const std::size_t v = plan_.nodes[i].residual; v != execution_plan::none) {
        n.residual = value_view(v, no_images, examples).data();
        n.residual_gradient = bound_gradient(plan_.nodes[i].residual_target, v, examples);
      }
    }
    bound_ = examples;
  }

  [[nodiscard]] std::span<std::byte> workspace() const noexcept {
    return {reinterpret_cast<std::byte*>(workspace_->data()), static_cast<std::size_t>(workspace_->size())};
  }

  template <class Observer>
  void run_forward(const const_view& images, const step_context& context, Observer& observer) {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      node& n = nodes_[i];
      for (std::size_t k = 0; k < n.inputs.size(); ++k) {
        if (plan_.slot_of_value[n.inputs[k]] == 0) {
          n.input_views[k] = value_view(n.inputs[k], images, bound_);
        }
      }
      if (!plan_.nodes[i].forward) {
        continue;
      }
      if constexpr (requires { observer.before_layer(i, kernels::pass::forward); }) {
        observer.before_layer(i, kernels::pass::forward);
      }
      if (const std::size_t v = plan_.nodes[i].residual; v != execution_plan::none && plan_.slot_of_value[v] == 0) {
        n.residual = value_view(v, images, bound_).data();
      }
      const auto& slot = plan_.slots[plan_.slot_of_value[i + 1]];
      n.implementation->forward({*device_, n.input_views,
                                 view{*device_, slot_value(slot), shapes_[i + 1].batch(bound_)}, n.residual, n.memory,
                                 n.buffers, n.state, workspace(), context});
      if constexpr (requires { observer.after_layer(i, kernels::pass::forward); }) {
        observer.after_layer(i, kernels::pass::forward);
      }
    }
  }

  template <class Observer>
  void run_backward(const const_view& images, const step_context& context, Observer& observer) {
    for (std::size_t i = nodes_.size(); i-- > 0;) {
      node& n = nodes_[i];
      const auto& planned = plan_.nodes[i];
      if (planned.backward) {
        if constexpr (requires { observer.before_layer(i, kernels::pass::backward_data); }) {
          observer.before_layer(i, kernels::pass::backward_data);
        }
        const auto& slot = plan_.slots[plan_.slot_of_value[i + 1]];
        n.implementation->backward({*device_, n.input_views, value_view(i + 1, images, bound_),
                                    slot_gradient(slot, shapes_[i + 1].batch(bound_)), n.gradients, n.residual_gradient,
                                    n.memory, n.buffers, n.state, workspace(), context});
        for (std::size_t k = 0; k < n.inputs.size(); ++k) {
          mask_if_planned(planned.targets[k], n.inputs[k]);
        }
        if (planned.residual != execution_plan::none) {
          mask_if_planned(planned.residual_target, planned.residual);
        }
        if constexpr (requires { observer.after_layer(i, kernels::pass::backward_data); }) {
          observer.after_layer(i, kernels::pass::backward_data);
        }
      }
      notify_gradients(observer, n.first_parameter, n.descriptions.size());
    }
  }

  /// Sets the gradient of a ReLU's output to 0 where the ReLU was, if the layer that completed it could not.
  void mask_if_planned(const execution_plan::gradient_target& target, std::size_t v) {
    if (target.mask_after) {
      const auto& slot = plan_.slots[plan_.slot_of_value[v]];
      const view gradient = slot_gradient(slot, shapes_[v].batch(bound_));
      relu_backward(*device_, gradient.size(), gradient.data(), slot_value(slot), gradient.data(), false);
    }
  }

  template <class Observer>
  static void notify_gradients(Observer& observer, std::size_t first, std::size_t count) {
    if constexpr (requires { observer.gradients_ready(first, count); }) {
      if (count != 0) {
        observer.gradients_ready(first, count);
      }
    }
  }

  [[nodiscard]] bool all_finite(const Element* data, index_t count) const {
    std::vector<Element> host(static_cast<std::size_t>(count));
    device_->copy_to_host(host.data(), data, host.size() * sizeof(Element));
    for (const Element element : host) {
      if (!std::isfinite(element)) {
        return false;
      }
    }
    return true;
  }

  Device* device_;
  std::vector<value_shape> shapes_;  // of value 0, the input, and of value i + 1, the output of node i
  std::vector<node> nodes_;
  std::unique_ptr<loss_function<Element, Layout, Device>> loss_;
  std::size_t scores_ = 0;

  index_t batch_size_ = 0;  // 0: not frozen
  std::uint64_t seed_ = 0;
  execution_plan plan_;
  std::unique_ptr<bytes_tensor> arena_;
  std::unique_ptr<bytes_tensor> workspace_;
  std::unique_ptr<flat_tensor> values_;
  std::unique_ptr<flat_tensor> gradients_;
  std::unique_ptr<flat_tensor> buffer_values_;
  std::vector<parameter_type> parameters_;
  std::vector<buffer<Element, Device>> buffers_;
  index_t bound_ = -1;  // examples that the views are made for
};

}  // namespace gradus::nn

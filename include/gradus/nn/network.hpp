// SPDX-License-Identifier: BSL-1.0
//
// A network: a graph of layers that is built by calls, compiled once, and run many times without allocating.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t
#include <memory>       // std::make_unique, std::unique_ptr
#include <span>         // std::span
#include <string_view>  // std::string_view
#include <utility>      // std::move

#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/reference.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/cpu.hpp"
#include "gradus/layout/layout_policy.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/loss.hpp"
#include "gradus/nn/network_base.hpp"
#include "gradus/nn/parameter.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/nn/step_hooks.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::nn {

/// A graph of layers with its parameters and its plan.
///
///   nn::network<float, nhwc> net{device, {.channels = 1, .height = 28, .width = 28}};
///   nn::value x = net.input();
///   x = net.add("conv1", nn::conv2d{.out_channels = 32, .kernel = {5, 5}, .padding = nn::padding::same()}, x);
///   x = net.add("relu1", nn::relu{}, x);
///   x = net.add("scores", nn::dense{.out_features = 10}, x);
///   net.loss(nn::softmax_cross_entropy{}, x);
///   net.compile({.max_batch_size = 64, .seed = 1});
///
/// Shapes are inferred, and checked, as layers are added. After compile, train_step, forward and evaluate take batches
/// of up to max_batch_size examples and allocate nothing. The values of all parameters lie in one flat buffer, their
/// gradients in another, in the order in which backward completes them (the last layer first), each on a 64-byte
/// boundary; what lies between them is zero. With `bfloat16` or `float16` as Element, images, values and their
/// gradients are stored in 16 bits; parameters, their gradients and buffers are float, products round parameters to 16
/// bits and sum in float, and everything else computes in float. Gradients of float16 that are small become zero: scale
/// the loss (gradus/optim/scaled_loss.hpp). Not safe for several threads at once; it uses the threads of its device,
/// and on a device with streams (cpu_options::inter_op_threads) independent branches run side by side where
/// compile_options::parallel_branches is set, each stream with workspace of its own. The results are the same bits for
/// any number of threads and streams.
template <class Element, class Layout = nchw, class Device = cpu>
class network final : public network_base<Element, Device> {
  static_assert(explain_layout_policy<Layout>());
  using base = network_base<Element, Device>;

 public:
  using element_type = Element;
  using layout_type = Layout;
  using device_type = Device;
  using typename base::parameter_element_type;
  using parameter_type = parameter<parameter_element_type, Layout, Device>;
  using view = image_view<Element, Layout, Device>;
  using const_view = image_view<const Element, Layout, Device>;

  /// @param input  the shape of one example
  /// @throws shape_error when an extent is below 1
  GRADUS_COLD network(Device& device, value_shape input, error_location where = error_location::current()) try
      : base{device, input} {
  } catch (error& failure) {
    failure.location_at_call(where);
  }

  /// The device must outlive the network.
  template <class Argument>
  requires not_kept<Argument, Device> network(Argument&& device, value_shape input)
      : network{const_cast<Device&>(device), input} {
    static_assert(explain_kept_device<Argument>());
  }

  network(network&&) noexcept = default;
  network& operator=(network&&) noexcept = default;
  GRADUS_COLD ~network() = default;

  // ---- building

  /// The images that the network is given.
  [[nodiscard]] value input() const noexcept { return {0, this->structure().identity()}; }

  /// Appends a layer that reads `inputs`, and returns its output.
  ///
  /// @param name         unique in the network; the parameters are called "name.weight" and so on
  /// @param description  the options of the layer: nn::conv2d{...}, nn::relu{}, ...
  /// @throws shape_error, configuration_error naming the layer, when the inputs do not fit it; then nothing is added
  template <class Description>
  GRADUS_COLD value add(std::string_view name, const Description& description, const input_list& inputs,
                        error_location where = error_location::current()) {
    static_assert(
        describes_layer<Description>,
        "gradus: not a layer: net.add takes a layer's options, as in net.add(\"relu1\", nn::relu{}, x); a loss ends "
        "the network by net.loss(nn::softmax_cross_entropy{}, x)");
    auto* const made = new typename Description::template layer<Element, Layout, Device>(description);
    return append(name, made, made, inputs.values(), where);
  }

  /// Appends a layer that reads one value.
  template <class Description>
  GRADUS_COLD value add(std::string_view name, const Description& description, value input,
                        error_location where = error_location::current()) {
    static_assert(
        describes_layer<Description>,
        "gradus: not a layer: net.add takes a layer's options, as in net.add(\"relu1\", nn::relu{}, x); a loss ends "
        "the network by net.loss(nn::softmax_cross_entropy{}, x)");
    auto* const made = new typename Description::template layer<Element, Layout, Device>(description);
    return append(name, made, made, {&input, 1}, where);
  }

  /// Ends the network with a loss over `scores`.
  /// @throws shape_error when the scores have a shape that the loss cannot use
  /// @throws configuration_error when they are not an output of a layer of this network, or it has a loss
  template <class Description>
  GRADUS_COLD void loss(const Description& description, value scores,
                        error_location where = error_location::current()) {
    static_assert(describes_loss<Description>,
                  "gradus: not a loss: net.loss takes what ends a network, as in net.loss(nn::softmax_cross_entropy{}, "
                  "scores); a layer is added by net.add");
    this->building().require_scores(scores, where);
    at_call(where, [&] {
      auto implementation = std::make_unique<typename Description::template loss<Element, Layout, Device>>(description);
      implementation->infer(shape(scores));
      loss_ = std::move(implementation);
    });
    this->building().end(scores);
  }

  /// The shape of one example of a value.
  /// @throws configuration_error when it is not of this network
  [[nodiscard]] const value_shape& shape(value v, error_location where = error_location::current()) const {
    return this->structure().shape(v, where);
  }

  /// Plans the network, takes its memory, and sets the parameters to their initial values.
  /// @throws configuration_error when there is nothing to compile, a value is never used, or max_batch_size is below 1
  /// @throws device_error when the memory does not suffice; then it may be compiled with a smaller batch
  void compile(const compile_options& options, error_location where = error_location::current()) {
    base::compile(options, &dense_strides<Layout, 4>, where);
  }

  // ---- running

  /// Forward, loss and backward of one batch; the gradients are those of the sum of losses / global_examples, times
  /// options.loss_scale.
  /// @param images    (n, channels, height, width) with 0 <= n <= max_batch_size; without examples all gradients are
  /// zero
  /// @param labels    n class indices, in the memory of the device
  /// @param observer  is told what the step does, or nullptr
  /// @throws shape_error when shapes disagree or a label is no class
  kernels::loss_sums train_step(const const_view& images, std::span<const std::int32_t> labels,
                                const step_options& options = {}, step_hooks* observer = nullptr,
                                error_location where = error_location::current()) {
    return this->train({images.data(), images.extents()}, labels, options, observer, where);
  }

  /// The scores of a batch, outside training. The view is valid until the network runs again.
  /// @throws shape_error when there are more images than are computed at once
  const_view forward(const const_view& images, error_location where = error_location::current()) {
    return view_of(this->score({images.data(), images.extents()}, where));
  }

  /// The sums of losses and of right answers over a batch, outside training.
  kernels::loss_sums evaluate(const const_view& images, std::span<const std::int32_t> labels,
                              error_location where = error_location::current()) {
    return this->sum_losses({images.data(), images.extents()}, labels, where);
  }

  /// Runs forward as train_step does and names the first thing that is not finite: for the diagnosis of a loss that is
  /// NaN or infinite. Allocates.
  [[nodiscard]] non_finite find_non_finite(const const_view& images, const step_options& options,
                                           error_location where = error_location::current()) {
    return base::find_non_finite({images.data(), images.extents()}, options, where);
  }

  // ---- parameters

  /// All parameters, in the order in which backward completes their gradients. @pre compiled
  [[nodiscard]] std::span<const parameter_type> parameters() const noexcept { return parameters_; }
  /// The parameter "layer.name". @throws configuration_error when there is none, or the network is not compiled
  [[nodiscard]] const parameter_type& find_parameter(std::string_view name,
                                                     error_location where = error_location::current()) const {
    (void)this->compiled_memory("network.find_parameter", where);
    return parameters_[this->structure().find_parameter(name, where)];
  }

 private:
  template <class Description>
  static constexpr bool describes_layer = requires {
    typename Description::template layer<Element, Layout, Device>;
  };
  template <class Description>
  static constexpr bool describes_loss = requires {
    typename Description::template loss<Element, Layout, Device>;
  };

  using passes = layer_passes<Element, Layout, Device>;
  using gradient_type = input_gradient<Element, Layout, Device>;
  using typename base::gradient_memory;
  using typename base::image_batch;
  using typename base::label_list;
  using typename base::layer_call;

  /// Takes over `owned`. The layer comes in both of its forms, so that no code of this is compiled for each kind.
  value append(std::string_view name, layer_base* owned, passes* layer, std::span<const value> inputs,
               error_location where) {
    return this->building().append(name, std::unique_ptr<layer_base>{owned}, layer, inputs, where);
  }

  GRADUS_COLD void memory_taken(std::size_t inputs) override {
    parameters_.clear();
    for (std::size_t k = 0; k < this->structure().parameters().size(); ++k) {
      const parameter_description& described = *this->structure().parameters()[k];
      const parameter_memory<parameter_element_type>& place = this->memory().parameters()[k];
      using parameter_view = image_view<parameter_element_type, Layout, Device>;
      parameters_.emplace_back(described, parameter_view{this->device(), place.value, described.shape},
                               parameter_view{this->device(), place.gradient, described.shape});
    }
    inputs_ = dynamic_array<const_view>(inputs, view_of(image_batch{}));
    input_gradients_ = dynamic_array<gradient_type>(inputs, gradient_of(gradient_memory{}));
  }

  layer_memory needs(void* layer, Device& device, index_t batch) const override {
    return static_cast<passes*>(layer)->memory(device, batch);
  }

  void run_forward(const layer_call& call, const Element* residual) override {
    static_cast<passes*>(call.layer)
        ->forward({call.device, views_of(call), output_of(call), residual, call.parameters, call.buffers, call.state,
                   call.workspace, call.context});
  }

  void run_backward(const layer_call& call, const Element* output_gradient,
                    std::span<const gradient_memory> input_gradients,
                    const gradient_memory& residual_gradient) override {
    gradient_type* const gradients = input_gradients_.data() + call.place;
    for (std::size_t k = 0; k < input_gradients.size(); ++k) {
      gradients[k] = gradient_of(input_gradients[k]);
    }
    static_cast<passes*>(call.layer)
        ->backward({call.device, views_of(call), output_of(call), view_of({output_gradient, call.output.shape}),
                    std::span{gradients, input_gradients.size()}, gradient_of(residual_gradient), call.parameters,
                    call.buffers, call.state, call.workspace, call.context});
  }

  kernels::loss_sums run_loss(const image_batch& scores, label_list wanted, double scale, Element* gradient) override {
    return loss_->compute(this->device(), view_of(scores), wanted, scale, gradient);
  }

  [[nodiscard]] const_view view_of(const image_batch& from) const noexcept {
    return {this->device(), from.data, from.shape};
  }
  [[nodiscard]] view output_of(const layer_call& call) const noexcept {
    return {this->device(), call.output.data, call.output.shape};
  }
  [[nodiscard]] gradient_type gradient_of(const gradient_memory& from) const noexcept {
    return {view{this->device(), from.images.data, from.images.shape}, from.epilogue};
  }

  /// The values that a layer reads. Valid until the next call for the stream.
  [[nodiscard]] GRADUS_COLD std::span<const const_view> views_of(const layer_call& call) {
    const_view* const views = inputs_.data() + call.place;
    for (std::size_t k = 0; k < call.inputs.size(); ++k) {
      views[k] = view_of(call.inputs[k]);
    }
    return {views, call.inputs.size()};
  }

  std::unique_ptr<loss_function<Element, Layout, Device>> loss_;
  dynamic_array<parameter_type> parameters_;
  // Of the layer that runs on each stream; kept, so that a step allocates nothing.
  dynamic_array<const_view> inputs_;
  dynamic_array<gradient_type> input_gradients_;
};

}  // namespace gradus::nn

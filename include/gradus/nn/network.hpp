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

#include "gradus/core/compiled.hpp"
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
#include "gradus/nn/network/base.hpp"
#include "gradus/nn/network/step_hooks.hpp"
#include "gradus/nn/parameter.hpp"
#include "gradus/nn/plan/compile_options.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/nn/plan/inference_options.hpp"
#include "gradus/nn/plan/stage_cuts.hpp"
#include "gradus/nn/targets.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/tensor/instances.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::nn {

/// A graph of layers with its parameters, its execution plan and its memory.
///
///   nn::network<float, nhwc> net{device, {.channels = 1, .height = 28, .width = 28}};
///   nn::value x = net.input();
///   x = net.add("conv1", nn::conv2d{.out_channels = 32, .kernel = {5, 5}, .padding = nn::padding::same()}, x);
///   x = net.add("relu1", nn::relu{}, x);
///   x = net.add("scores", nn::dense{.out_features = 10}, x);
///   net.loss(nn::softmax_cross_entropy{}, x);
///   net.compile({.max_batch_size = 64, .seed = 1});
///
/// `add` infers and checks shapes. After `compile`, train_step, forward and evaluate take batches of up to
/// max_batch_size examples and allocate nothing.
///
/// Memory: one flat buffer holds the values of all parameters, another their gradients, in the order in which backward
/// completes the gradients (last layer first); parameters of frozen layers follow, without gradients. Each parameter
/// begins at a multiple of 64 bytes; the gaps are zero.
///
/// Element types: with `bfloat16` or `float16`, images, values and their gradients are stored in 16 bits. Parameters,
/// their gradients and buffers are float. Products round parameters to 16 bits and sum in float; all other arithmetic
/// is in float. Small gradients underflow to zero in float16: scale the loss (gradus/optim/update.hpp).
///
/// Threads: one thread at a time may call a network. The network uses the threads of its device. On a device with
/// streams (cpu_options::inter_op_threads), independent branches run in parallel where
/// compile_options::parallel_branches is set, each stream with its own workspace. Results are bitwise the same for any
/// number of threads and streams.
template <class Element, class Layout = nchw, class Device = cpu>
class network final : public network_base<Element, Device> {
  static_assert(explain_layout_policy<Layout>());
  using base = network_base<Element, Device>;

 public:
  using element_type = Element;  ///< of images, values and their gradients
  using layout_type = Layout;    ///< of images and parameters
  using device_type = Device;    ///< runs the layers
  using typename base::parameter_element_type;
  /// What parameters() holds.
  using parameter_type = parameter<parameter_element_type, Layout, Device>;
  /// Images that may be written.
  using view = image_view<Element, Layout, Device>;
  /// The batches and scores of a step.
  using const_view = image_view<const Element, Layout, Device>;

  /// A network without layers.
  /// @param device  outlives the network
  /// @param input   the shape of one example
  /// @throws shape_error when an extent is below 1, or an example has more than 2^48 elements
  network(borrowed<Device> device, value_shape input, error_location where = error_location::current()) try
      : base{device, input} {
  } catch (error& failure) {
    failure.location_at_call(where);
  }

  network(const network&) = delete;             // one network has the memory: pass network& to functions
  network& operator=(const network&) = delete;  // a copy: build a second network and io::load_weights, or copy values()
  /// Takes over the layers and their memory; views of them stay valid. `other` has no layers afterwards.
  network(network&& other) noexcept = default;
  /// As the move constructor.
  network& operator=(network&& other) noexcept = default;
  ~network() = default;

  // ---- building

  /// The input images of the network.
  [[nodiscard]] value input() const noexcept { return {0, this->structure().identity()}; }

  /// Appends a layer that reads `inputs`, and returns its output.
  ///
  /// @param name         unique in the network; parameters are named "name.weight" and so on
  /// @param description  the options of the layer: nn::conv2d{...}, nn::relu{}, ...
  /// @throws shape_error, configuration_error with the layer's name, when the inputs do not fit; the network is
  /// unchanged
  template <class Description>
  GRADUS_COLD value add(std::string_view name, const Description& description, const input_list& inputs,
                        error_location where = error_location::current()) {
    static_assert(explain_layer<Description, Element, Layout, Device>());
    if constexpr (layer_description<Description, Element, Layout, Device>) {
      return this->append(name, detail::make_layer<Description, Element, Layout, Device>(description), inputs.values(),
                          where);
    }
  }

  /// Appends a layer that reads one value, and returns its output.
  template <class Description>
  GRADUS_COLD value add(std::string_view name, const Description& description, value input,
                        error_location where = error_location::current()) {
    static_assert(explain_layer<Description, Element, Layout, Device>());
    if constexpr (layer_description<Description, Element, Layout, Device>) {
      return this->append(name, detail::make_layer<Description, Element, Layout, Device>(description), {&input, 1},
                          where);
    }
  }

  /// Ends the network with a loss over `scores`.
  /// @throws shape_error when the scores have a shape that the loss cannot use
  /// @throws configuration_error when `scores` is not the output of a layer of this network, or it already has a loss
  template <class Description>
  void loss(const Description& description, value scores, error_location where = error_location::current()) {
    static_assert(describes_loss<Description>,
                  "gradus: not a loss: net.loss takes a loss, as in net.loss(nn::softmax_cross_entropy{}, "
                  "scores); a layer is added by net.add");
    this->end(detail::make_loss<Description, Element, Layout, Device>(description), scores, where);
  }

  /// The shape of one example of a value.
  /// @throws configuration_error when the value belongs to another network
  [[nodiscard]] const value_shape& shape(value v, error_location where = error_location::current()) const {
    return this->structure().shape(v, where);
  }

  /// Plans the execution, allocates memory, and sets the parameters to their initial values.
  /// @throws configuration_error when the network has no layer, a value is never used, or max_batch_size is below 1
  /// @throws device_error when there is too little memory; compile may be called again with a smaller batch
  void compile(const compile_options& options,  // net.compile({.max_batch_size = 64, .seed = 1});
               error_location where = error_location::current()) {
    base::compile(options, &dense_strides<Layout, 4>, where);
    make_parameters();
  }

  /// Compiles the network for forward passes: no gradients, no state for backward, and no training. Layers that act in
  /// training only vanish, batch normalization is folded into the layer before it, weights are prepared for their
  /// kernels, and the values take as much memory as the largest set of them that is in use at one time.
  ///
  ///   net.compile_for_inference({.max_batch_size = 16});
  ///   net.forward(images);
  ///
  /// A network that was compiled before, for training or inference, keeps its parameters and buffers; spans of its
  /// gradients, and a trainer, are not valid any more. nn::inference_session runs the network on several threads.
  /// @throws configuration_error when the network has no layer, a value is never used, max_batch_size is below 1, or
  ///         options.memory is too small; the network is unchanged
  /// @throws device_error when there is too little memory; the network is unchanged
  void compile_for_inference(const inference_options& options,  // net.compile_for_inference({.max_batch_size = 16});
                             error_location where = error_location::current()) {
    base::compile_for_inference(options, &dense_strides<Layout, 4>, where);
    make_parameters();
  }

  /// Compiles the network for a rank that runs some of its stages, as a pipeline does: only the parameters of these
  /// layers, with their gradients, and the buffers take memory. parameters(), values() and gradients() then have those,
  /// in their order; nn::network_stage runs a stage. A network that was compiled before keeps the values of its
  /// parameters and buffers.
  ///
  ///   net.compile_stages({.max_batch_size = 64, .micro_batch_size = 8}, {.first_layers = {0, 12}, .own = {1}});
  /// @param stages  which layers form the stages, and which of them this rank runs
  /// @throws configuration_error as compile, and when the stages are not those of this network, a layer exchanges data
  ///         with other ranks, or there is no loss
  /// @throws device_error when there is too little memory; the network is unchanged
  void compile_stages(const compile_options& options,  // {.max_batch_size = 64, .micro_batch_size = 8}
                      const stage_cuts& stages, error_location where = error_location::current()) {
    base::compile_stages(options, stages, &dense_strides<Layout, 4>, where);
    make_parameters();
  }

  // ---- running

  /// Runs forward, loss and backward on one batch. The gradients are those of the sum of losses / global_examples,
  /// times options.loss_scale. A batch without examples makes all gradients zero.
  /// @param images         (n, channels, height, width) with 0 <= n <= max_batch_size
  /// @param batch_targets  n class indices, or what else the loss reads, in the memory of the device
  /// @param observer       called during the step; may be null
  /// @return the sums of losses and of correct predictions
  /// @throws shape_error when shapes disagree or a label is not a class
  /// @throws configuration_error unless the network is compiled and has a loss
  kernels::loss_sums train_step(const const_view& images, const targets<Element, Device>& batch_targets,
                                const step_options& options = {}, step_hooks* observer = nullptr,
                                error_location where = error_location::current()) {
    return this->train(images, batch_targets, options, observer, where);
  }

  /// The scores of a batch, outside training. The view is valid until the network runs again.
  /// @throws shape_error when the shape differs, or the batch is larger than the network computes at once
  /// @throws configuration_error unless the network is compiled
  const_view forward(const const_view& images, error_location where = error_location::current()) {
    const image_batch<const Element, Device> scores = this->score(images, where);
    return {this->device(), scores.data(), scores.extents()};
  }

  /// The sums of losses and of correct predictions over a batch, outside training.
  /// @throws shape_error when shapes disagree or a label is not a class
  /// @throws configuration_error unless the network is compiled and has a loss
  kernels::loss_sums evaluate(const const_view& images, const targets<Element, Device>& batch_targets,
                              error_location where = error_location::current()) {
    return this->sum_losses(images, batch_targets, nullptr, where);
  }

  /// The same, and gives the scores to `observer`.
  kernels::loss_sums evaluate(const const_view& images, const targets<Element, Device>& batch_targets,
                              score_observer<Element, Device>& observer,
                              error_location where = error_location::current()) {
    return this->sum_losses(images, batch_targets, &observer, where);
  }

  /// Finds out why a loss is NaN or infinite: runs forward as train_step does and names the first value that is not
  /// finite. Allocates.
  [[nodiscard]] non_finite find_non_finite(const const_view& images, const step_options& options,
                                           error_location where = error_location::current()) {
    return base::find_non_finite(images, nullptr, options, where);
  }
  /// The same, and looks at what the scores of the batch are compared with.
  [[nodiscard]] non_finite find_non_finite(const const_view& images, const targets<Element, Device>& batch_targets,
                                           const step_options& options,
                                           error_location where = error_location::current()) {
    return base::find_non_finite(images, &batch_targets, options, where);
  }

  // ---- parameters

  /// All parameters, in the order in which backward completes their gradients; those of frozen layers follow.
  /// @pre compiled
  [[nodiscard]] std::span<const parameter_type> parameters() const noexcept {
    this->set_stale();
    return parameters_;
  }
  /// The parameter "layer.name". @throws configuration_error when there is none, or the network is not compiled
  [[nodiscard]] const parameter_type& find_parameter(std::string_view name,
                                                     error_location where = error_location::current()) const {
    (void)this->compiled_memory("network.find_parameter", where);
    this->set_stale();
    return parameters_[this->structure().find_parameter(name, where)];
  }

 private:
  void make_parameters() {
    parameters_.clear();
    for (std::size_t k = 0; k < this->structure().parameters().size(); ++k) {
      const parameter_description& described = *this->structure().parameters()[k];
      const parameter_memory<parameter_element_type>& memory = this->memory().parameters()[k];
      using parameter_view = image_view<parameter_element_type, Layout, Device>;
      const bool trained = k < this->structure().trained_parameters().size();
      parameters_.emplace_back(described, parameter_view{this->device(), memory.value, described.shape},
                               parameter_view{this->device(), trained ? memory.gradient : nullptr, described.shape});
    }
  }

  template <class Description>
  static constexpr bool describes_loss = requires {
    typename Description::template loss<Element, Layout, Device>;
  };

  dynamic_array<parameter_type> parameters_;
};

}  // namespace gradus::nn

GRADUS_COMPILED_CLASS(::gradus::nn::compiled_network)
GRADUS_COMPILED_CLASS(::gradus::nn::network_base)
GRADUS_COMPILED_CLASS_OF_LAYOUT(::gradus::nn::network)

// A class template of a network, for each network that is compiled once.
#ifdef GRADUS_HAS_INSTANCES
#define GRADUS_COMPILED_CLASS_OF_NETWORK(name) GRADUS_EACH_LAYOUT(GRADUS_DETAIL_CLASS_OF_NETWORK, name)
#define GRADUS_DETAIL_CLASS_OF_NETWORK(instance, layout, element, name) \
  instance(class name<::gradus::nn::network<element, layout, ::gradus::cpu>>)
#endif

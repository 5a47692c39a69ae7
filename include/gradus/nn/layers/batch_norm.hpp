// SPDX-License-Identifier: BSL-1.0
//
// The layer batch_norm: batch normalization.
#pragma once

#include <cmath>        // std::sqrt
#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/compiled.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/kernels/batch_norm.hpp"
#include "gradus/nn/initializer.hpp"
#include "gradus/nn/layer.hpp"

namespace gradus::nn {

/// Options of batch normalization (Ioffe, Szegedy 2015): normalizes every channel over n, h and w.
///
///   y = gamma * x^ + beta,   x^ = (x - mean) / sqrt(variance + epsilon)
///
///   symbol         | meaning                          | shape
///   x              | input                            | (N, C, H, W)
///   gamma, beta    | parameters "weight" and "bias"   | (C)
///   mean, variance | statistics                       | (C)   of the batch in training, else running averages
///   y              | output                           | (N, C, H, W)
///
/// Gradients for g = dL/dy, with means over N, H and W:
///   dL/dx     = gamma / sqrt(variance + epsilon) * (g - mean(g) - x^ * mean(g * x^))   (N, C, H, W)
///   dL/dgamma = sum of g * x^   (C)   overwritten
///   dL/dbeta  = sum of g        (C)   overwritten
///
/// In distributed training the statistics are those of the rank's shard of the batch (Goyal et al. 2017, section 2.3).
/// A single value of a channel is its own mean: training is refused where N * H * W is 1, as in PyTorch.
/// @throws configuration_error (network::add) when momentum is not in [0, 1] or epsilon is not above 0
/// @throws shape_error (network::add) for a flattened image, or (training) for one value per channel
struct batch_norm {
  /// running <- (1 - momentum) * running + momentum * batch; TensorFlow's "decay" is 1 - momentum.
  double momentum = 0.1;
  double epsilon = 1e-5;                    ///< added to the variance
  bool scale = true;                        ///< learn gamma
  bool shift = true;                        ///< learn beta
  initializer scale_initializer = ones();   ///< of gamma
  initializer shift_initializer = zeros();  ///< of beta

  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  class layer;
};

namespace detail {

/// @throws shape_error when statistics would be those of a single value, whose normalization is 0 whatever it is
/// @param count  values of each channel, of all ranks where `ranks` is true
void require_statistics(std::string_view kind, double count, bool ranks);

/// The part of the layer that does not depend on element type, layout and device.
class batch_norm_base : public layer_base {
 public:
  explicit batch_norm_base(const batch_norm& options) : options_{options} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "batch_norm"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    require_inputs(kind(), 1, inputs.size());
    if (!(options_.momentum >= 0 && options_.momentum <= 1)) {
      raise<configuration_error>(kind(), "a momentum in [0, 1]", {options_.momentum});
    }
    if (!(options_.epsilon > 0) || !is_finite(options_.epsilon)) {
      raise<configuration_error>(kind(), "an epsilon above 0", {options_.epsilon});
    }
    if (inputs[0].flattened) {
      raise<shape_error>(kind(), "an image, or a vector made by a dense layer", describe(inputs[0]),
                         "normalize before nn::flatten");
    }
    shape_ = inputs[0];
    return shape_;
  }

  [[nodiscard]] std::vector<parameter_description> parameters() const override {
    std::vector<parameter_description> result;
    const image_extents shape{shape_.channels, 1, 1, 1};
    if (options_.scale) {
      result.push_back({"weight", shape, 1, options_.scale_initializer, {}, false});
    }
    if (options_.shift) {
      result.push_back({"bias", shape, 1, options_.shift_initializer, {}, false});
    }
    return result;
  }

  [[nodiscard]] std::vector<buffer_description> buffers() const override {
    return {{"running_mean", shape_.channels, 0.0}, {"running_variance", shape_.channels, 1.0}};
  }

  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_output = false,
            .fuses_activation = true,
            .fuses_residual = true,
            .masks_input_gradients = true,
            .any_activation = true,
            .writes_residual_gradient = true,
            .skips_parameter_gradients = true,
            .recomputable = true,
            .affine_outside_training = true,
            .reads = {.forward = 2,
                      .inputs_for_inputs = 1,
                      .inputs_for_parameters = 1,
                      .gradient_for_inputs = 1,
                      .gradient_for_parameters = 1}};
  }

  void write_affine(std::span<const std::vector<double>> parameters, std::span<const std::vector<double>> buffers,
                    std::span<double> scale, std::span<double> shift) const override {
    for (std::size_t c = 0; c < scale.size(); ++c) {
      const double gamma = options_.scale ? parameters[0][c] : 1;
      const double beta = options_.shift ? parameters[options_.scale ? 1 : 0][c] : 0;
      scale[c] = gamma / std::sqrt(buffers[1][c] + options_.epsilon);
      shift[c] = beta - buffers[0][c] * scale[c];
    }
  }

  void set_activation(kernels::activation act) override { activation_ = act; }

  void attributes(attribute_visitor& visit) const override {
    visit.operation("batch_norm");
    visit.real("epsilon", options_.epsilon);
    visit.real("momentum", options_.momentum);
  }

 protected:
  batch_norm options_;
  value_shape shape_;
  kernels::activation activation_ = kernels::activation::identity;
};

/// The backward pass of a frozen layer that uses running statistics: dx = gamma / sqrt(variance + epsilon) * g is the
/// forward pass of g with a mean of 0, as forward has written it to the state, and without beta.
template <class Layout, class Element, class Device>
void batch_norm_backward_inference(const backward_arguments<Element, Device>& call,
                                   const parameter_element_t<Element>* gamma, const batch_norm& options) {
  using number = parameter_element_t<Element>;
  const image_batch<const Element, Device>& g = call.output_gradient;
  const auto& residual = call.residual_gradient;
  if (residual.needed()) {
    copy_or_add(call.device, g.size(), g.data(), residual.images.data(), residual.epilogue.accumulate);
  }
  const auto& dx = call.input_gradients[0];
  if (!dx.needed()) {
    return;
  }
  const image_view<const Element, Layout, Device> from{g.device(), g.data(), g.extents()};
  const image_view<Element, Layout, Device> to{dx.images.device(), dx.images.data(), dx.images.extents()};
  auto* const zeros = reinterpret_cast<number*>(call.state.data());
  const kernels::batch_norm_epilogue<Element> epilogue{.residual = dx.epilogue.accumulate ? dx.images.data() : nullptr,
                                                       .act = kernels::activation::identity};
  batch_norm_forward_inference(
      call.device, from, to, kernels::batch_norm_affine<number>{.gamma = gamma, .beta = nullptr}, options.epsilon,
      kernels::batch_norm_running<number>{zeros, call.buffers[1], options.momentum}, epilogue, call.workspace);
  if (dx.epilogue.relu_output != nullptr) {
    relu_backward(call.device, g.size(), dx.images.data(), dx.epilogue.relu_output, dx.images.data(), false,
                  dx.epilogue.mask);
  }
}

}  // namespace detail

template <class Element, class Layout, class Device>
class batch_norm::layer final : public nn::layer<Element, Layout, Device, detail::batch_norm_base> {
  static_assert(kernels::explain_batch_norm<Device, Element, Layout>());
  using base = nn::layer<Element, Layout, Device, detail::batch_norm_base>;
  using parameter_element = parameter_element_t<Element>;

 public:
  using base::base;

  [[nodiscard]] layer_memory memory(Device& device, index_t batch) const override {
    return {.state = 4 * static_cast<std::size_t>(this->shape_.channels) * sizeof(parameter_element),
            .workspace = batch_norm_workspace_bytes<Element, Layout>(device, this->shape_.batch(batch))};
  }

  [[nodiscard]] layer_memory inference_memory(Device& device, index_t batch, bool /*prepared*/) const override {
    return {.state = 0, .workspace = memory(device, batch).workspace};
  }

  void forward(const typename base::forward_call& call) override {
    const kernels::batch_norm_running<parameter_element> running{call.buffers[0], call.buffers[1],
                                                                 this->options_.momentum};
    const kernels::batch_norm_epilogue<Element> epilogue{.residual = call.residual, .act = this->activation_};
    if (!call.context.training || call.context.evaluates) {
      batch_norm_forward_inference(call.device, base::view(call.inputs[0]), base::view(call.output),
                                   affine(call.parameters), this->options_.epsilon, running, epilogue, call.workspace);
      call.device.fill_zero(call.state.data(), call.state.size());  // for batch_norm_backward_inference
    } else if (call.context.again) {
      batch_norm_forward_again(call.device, base::view(call.inputs[0]), base::view(call.output), saved(call.state),
                               epilogue);
    } else {
      const image_extents shape = call.output.extents();
      detail::require_statistics(this->kind(), static_cast<double>(shape.n * shape.h * shape.w), false);
      batch_norm_forward_training(call.device, base::view(call.inputs[0]), base::view(call.output),
                                  affine(call.parameters), this->options_.epsilon, running, saved(call.state), epilogue,
                                  call.workspace);
    }
  }

  void backward(const typename base::backward_call& call) override {
    if (call.context.evaluates) {
      detail::batch_norm_backward_inference<Layout>(call, affine(call.parameters).gamma, this->options_);
      return;
    }
    kernels::batch_norm_gradients<Element> gradients;
    gradients.gamma = this->options_.scale ? call.parameters[0].gradient : nullptr;
    gradients.beta = this->options_.shift ? call.parameters[this->options_.scale ? 1 : 0].gradient : nullptr;
    gradients.residual = call.residual_gradient.images.data();
    gradients.accumulate_residual = call.residual_gradient.epilogue.accumulate;
    const auto& dx = call.input_gradients[0];
    batch_norm_backward(call.device, base::view(call.inputs[0]), base::view(call.output),
                        base::view(call.output_gradient), base::view(dx.images), affine(call.parameters),
                        saved(call.state), kernels::activation::identity, gradients, dx.epilogue, call.workspace);
  }

 private:
  [[nodiscard]] kernels::batch_norm_affine<parameter_element> affine(
      std::span<const parameter_memory<parameter_element>> parameters) const {
    return {.gamma = this->options_.scale ? parameters[0].value : nullptr,
            .beta = this->options_.shift ? parameters[this->options_.scale ? 1 : 0].value : nullptr};
  }

  [[nodiscard]] kernels::batch_norm_saved<parameter_element> saved(std::span<std::byte> state) const {
    auto* const elements = reinterpret_cast<parameter_element*>(state.data());
    const index_t channels = this->shape_.channels;
    return {.mean = elements, .inverse_deviation = elements + 3 * channels, .coefficients = elements};
  }
};

}  // namespace gradus::nn

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn::detail {

GRADUS_INLINE void require_statistics(std::string_view kind, double count, bool ranks) {
  if (count == 1) {
    raise<shape_error>(kind,
                       ranks ? "more than 1 value per channel in training, over all ranks"
                             : "more than 1 value per channel in training",
                       "1 (one example of 1 x 1 pixels)",
                       "train with larger batches or micro-batches; .drop_last of data::loader leaves out a last batch "
                       "of one example");
  }
}

}  // namespace gradus::nn::detail
#endif

GRADUS_COMPILED_LAYER(::gradus::nn::batch_norm)

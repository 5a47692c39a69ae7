// SPDX-License-Identifier: BSL-1.0
//
// The layer dense: a fully connected layer.
#pragma once

#include <algorithm>    // std::max
#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/config.hpp"
#include "gradus/kernels/matmul.hpp"
#include "gradus/nn/initializer.hpp"
#include "gradus/nn/layer.hpp"

namespace gradus::nn {

namespace detail {
template <class Element, class Device>
class dense_layer;
}  // namespace detail

/// Options of a fully connected layer: an affine map of every example, y = x W^T + b.
///
///   symbol | meaning | shape
///   x      | input   | (N, I)   an image counts as the vector of its elements in the order (c, h, w)
///   W      | weight  | (O, I)
///   b      | bias    | (O)
///   y      | output  | (N, O)
///
/// Gradients for g = dL/dy:
///   dL/dx = g W             (N, I)   overwritten or accumulated
///   dL/dW = g^T x           (O, I)   overwritten
///   dL/db = sum of g over N (O)      overwritten
///
/// For an image the weight is stored as (O, C, H, W) in the layout of the images, so that images are never reordered.
/// @throws configuration_error (network::add) when out_features is below 1
struct dense {
  index_t out_features = 0;                      ///< O
  bool bias = true;                              ///< false: no b
  initializer weight_initializer = he_normal();  ///< of W
  initializer bias_initializer = zeros();        ///< of b

  /// The layer for one element type and device; all layouts share it.
  template <class Element, class Layout, class Device>
  using layer = detail::dense_layer<Element, Device>;
};

namespace detail {

/// The part of the layer that does not depend on element type, layout and device.
class dense_base : public layer_base {
 public:
  explicit dense_base(const dense& options) : options_{options} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "dense"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    require_inputs(kind(), 1, inputs.size());
    require_at_least(kind(), "out_features", 1, options_.out_features,
                     "say how many numbers it makes: nn::dense{.out_features = 10}");
    in_ = inputs[0];
    in_features_ = in_.size();
    return {options_.out_features, 1, 1};
  }

  [[nodiscard]] std::vector<parameter_description> parameters() const override {
    const fan sizes{.in = static_cast<double>(in_features_), .out = static_cast<double>(options_.out_features)};
    return weight_and_bias({options_.out_features, in_.channels, in_.height, in_.width}, 2, sizes,
                           options_.weight_initializer, options_.bias ? &options_.bias_initializer : nullptr);
  }

  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_output = false,
            .fuses_activation = true,
            .masks_input_gradients = true,
            .any_activation = true,
            .skips_parameter_gradients = true,
            .folds_affine = weight_channels::first,
            .reads = {.inputs_for_inputs = 0,
                      .inputs_for_parameters = 1,
                      .gradient_for_inputs = 1,
                      .gradient_for_parameters = static_cast<unsigned char>(options_.bias ? 2 : 1)}};
  }

  [[nodiscard]] index_t multiply_adds() const noexcept override { return options_.out_features * in_features_; }

  void set_activation(kernels::activation act) override { activation_ = act; }

  void attributes(attribute_visitor& visit) const override { visit.operation(kind()); }

 protected:
  [[nodiscard]] kernels::matmul_shape forward_shape(index_t batch) const {
    return {.m = batch, .n = options_.out_features, .k = in_features_, .transpose_a = false, .transpose_b = true};
  }
  [[nodiscard]] kernels::matmul_shape data_shape(index_t batch) const {
    return {.m = batch, .n = in_features_, .k = options_.out_features, .transpose_a = false, .transpose_b = false};
  }
  [[nodiscard]] kernels::matmul_shape weights_shape(index_t batch) const {
    return {.m = options_.out_features, .n = in_features_, .k = batch, .transpose_a = true, .transpose_b = false};
  }

  dense options_;
  value_shape in_;
  index_t in_features_ = 0;
  kernels::activation activation_ = kernels::activation::identity;
};

template <class Element, class Device>
class dense_layer final : public layer_passes<Element, Device>, public dense_base {
  static_assert(kernels::explain_matmul<Device, Element>());
  using passes = layer_passes<Element, Device>;

 public:
  using dense_base::dense_base;

  [[nodiscard]] layer_memory memory(Device& device, index_t batch) const override {
    std::size_t workspace = 0;
    for (const kernels::matmul_shape& shape :
         {this->forward_shape(batch), this->data_shape(batch), this->weights_shape(batch)}) {
      workspace = std::max(workspace, matmul_workspace_bytes<Element>(device, shape));
    }
    return {.state = 0, .workspace = workspace};
  }

  [[nodiscard]] layer_memory inference_memory(Device& device, index_t batch, bool /*prepared*/) const override {
    return {.state = 0, .workspace = matmul_workspace_bytes<Element>(device, this->forward_shape(batch))};
  }

  void forward(const typename passes::forward_call& call) override {
    kernels::matmul_epilogue<Element> epilogue;
    epilogue.bias = call.parameters.size() > 1 ? call.parameters[1].value : nullptr;
    epilogue.act = this->activation_;
    const parameter_element_t<Element>* const weight = call.parameters[0].value;
    matmul(call.device, this->forward_shape(call.output.extent(0)), call.inputs[0].data(), weight, call.output.data(),
           epilogue, call.workspace);
  }

  void backward(const typename passes::backward_call& call) override {
    const index_t batch = call.output_gradient.extent(0);
    const Element* const gradient = call.output_gradient.data();
    if (parameter_element_t<Element>* const dw = call.parameters[0].gradient; dw != nullptr) {
      matmul(call.device, this->weights_shape(batch), gradient, call.inputs[0].data(), dw,
             kernels::matmul_epilogue<parameter_element_t<Element>>{}, call.workspace);
      if (this->options_.bias) {
        column_sums(call.device, batch, this->options_.out_features, gradient, call.parameters[1].gradient);
      }
    }
    if (const auto& dx = call.input_gradients[0]; dx.needed()) {
      kernels::matmul_epilogue<Element> epilogue;
      epilogue.accumulate = dx.epilogue.accumulate;
      epilogue.relu_output = dx.epilogue.relu_output;
      epilogue.mask = dx.epilogue.mask;
      const parameter_element_t<Element>* const weight = call.parameters[0].value;
      matmul(call.device, this->data_shape(batch), gradient, weight, dx.images.data(), epilogue, call.workspace);
    }
  }
};

}  // namespace detail
}  // namespace gradus::nn

GRADUS_COMPILED_LAYER(::gradus::nn::dense)

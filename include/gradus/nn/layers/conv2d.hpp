// SPDX-License-Identifier: BSL-1.0
//
// The layer conv2d: 2-D convolution.
#pragma once

#include <algorithm>    // std::max
#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/nn/initializer.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/padding.hpp"

namespace gradus::nn {

using kernels::convolution_algorithm;

/// Options of a 2-D convolution (cross-correlation), y = x * w + b.
///
///   symbol | meaning | shape
///   x      | input   | (N, I, H, W)
///   w      | weight  | (O, I / groups, R, S)   R x S: kernel size
///   b      | bias    | (O)
///   y      | output  | (N, O, P, Q)
///
/// Gradients for g = dL/dy:
///   dL/dx = transposed convolution of g with w   (N, I, H, W)            overwritten or accumulated
///   dL/dw = correlation of x with g              (O, I / groups, R, S)   overwritten
///   dL/db = sum of g over N, P, Q                (O)                     overwritten
///
/// @throws configuration_error (network::add) when out_channels, groups, kernel, stride or padding is not possible
/// @throws shape_error (network::add) for a flattened image, when groups does not divide the channels, or when the
///         kernel does not fit the padded image
struct conv2d {
  index_t out_channels = 0;                      ///< O
  size2d kernel{1, 1};                           ///< rows and columns of the kernel
  size2d stride{1, 1};                           ///< rows and columns from one output to the next
  nn::padding padding = nn::padding::valid();    ///< zeros around the input
  index_t groups = 1;                            ///< parts of the channels that are convolved apart
  bool bias = true;                              ///< false: no b
  initializer weight_initializer = he_normal();  ///< of w
  initializer bias_initializer = zeros();        ///< of b
  /// `direct` adds up the terms, also where compile_options::convolution_algorithm is `automatic`.
  convolution_algorithm algorithm = convolution_algorithm::automatic;

  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  class layer;
};

namespace detail {

/// The part of the layer that does not depend on element type, layout and device.
class conv2d_base : public layer_base {
 public:
  explicit conv2d_base(const conv2d& options) : options_{options} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "conv2d"; }

  GRADUS_COLD value_shape infer(std::span<const value_shape> inputs) override {
    require_inputs(kind(), 1, inputs.size());
    require_at_least(kind(), "out_channels", 1, options_.out_channels);
    require_at_least(kind(), "groups", 1, options_.groups);
    const value_shape& in = inputs[0];
    require_image(kind(), in, "put the convolution before nn::flatten");
    if (in.channels % options_.groups != 0 || options_.out_channels % options_.groups != 0) {
      raise<shape_error>(kind(),
                         {"groups that divide ", in.channels, " input and ", options_.out_channels, " output channels"},
                         {options_.groups});
    }
    const auto window = slide(kind(), {in.height, in.width}, options_.kernel, options_.stride, options_.padding);
    geometry_ = {.in_channels = in.channels,
                 .in_height = in.height,
                 .in_width = in.width,
                 .out_channels = options_.out_channels,
                 .out_height = window.out_height,
                 .out_width = window.out_width,
                 .kernel_height = options_.kernel.height,
                 .kernel_width = options_.kernel.width,
                 .stride_height = options_.stride.height,
                 .stride_width = options_.stride.width,
                 .pad_top = window.pad_top,
                 .pad_left = window.pad_left,
                 .groups = options_.groups,
                 .algorithm = options_.algorithm};
    weight_extents_ = geometry_.weights();
    return {geometry_.out_channels, geometry_.out_height, geometry_.out_width};
  }

  [[nodiscard]] std::vector<parameter_description> parameters() const override {
    const auto area = static_cast<double>(geometry_.kernel_height * geometry_.kernel_width);
    const fan sizes{.in = static_cast<double>(geometry_.in_channels / geometry_.groups) * area,
                    .out = static_cast<double>(geometry_.out_channels / geometry_.groups) * area};
    return weight_and_bias(geometry_.weights(), 4, sizes, options_.weight_initializer,
                           options_.bias ? &options_.bias_initializer : nullptr);
  }

  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_output = false,
            .fuses_activation = true,
            .fuses_residual = true,
            .masks_input_gradients = true,
            .skips_parameter_gradients = true};
  }

  [[nodiscard]] index_t multiply_adds() const noexcept override { return geometry_.multiply_adds(); }

  void set_activation(kernels::activation act) override { activation_ = act; }

  void set_convolution_algorithm(convolution_algorithm of_network) override {
    geometry_.algorithm = options_.algorithm == convolution_algorithm::automatic ? of_network : options_.algorithm;
  }

 protected:
  conv2d options_;
  kernels::conv2d_geometry geometry_;
  extents<4> weight_extents_;
  kernels::activation activation_ = kernels::activation::identity;
};

}  // namespace detail

template <class Element, class Layout, class Device>
class conv2d::layer final : public nn::layer<Element, Layout, Device, detail::conv2d_base> {
  static_assert(kernels::explain_conv2d<Device, Element, Layout>());
  using base = nn::layer<Element, Layout, Device, detail::conv2d_base>;

 public:
  using base::base;

  [[nodiscard]] layer_memory memory(Device& device, index_t batch) const override {
    std::size_t workspace = 0;
    for (const kernels::pass which :
         {kernels::pass::forward, kernels::pass::backward_data, kernels::pass::backward_weights}) {
      workspace = std::max(workspace, conv2d_workspace_bytes<Element, Layout>(device, this->geometry_, batch, which));
    }
    return {.state = 0, .workspace = workspace};
  }

  void forward(const typename base::forward_call& call) override {
    conv2d_forward(call.device, this->geometry_, base::view(call.inputs[0]), weight(call.parameters, call.device),
                   base::view(call.output),
                   kernels::forward_epilogue<Element>{.bias = this->options_.bias ? call.parameters[1].value : nullptr,
                                                      .residual = call.residual,
                                                      .act = this->activation_},
                   call.workspace);
  }

  void backward(const typename base::backward_call& call) override {
    if (parameter_element* const dw = call.parameters[0].gradient; dw != nullptr) {
      conv2d_backward_weights(
          call.device, this->geometry_, base::view(call.inputs[0]), base::view(call.output_gradient),
          image_view<parameter_element, Layout, Device>{call.output_gradient.device(), dw, this->weight_extents_},
          this->options_.bias ? call.parameters[1].gradient : nullptr, call.workspace);
    }
    if (const auto& dx = call.input_gradients[0]; dx.needed()) {
      conv2d_backward_data(call.device, this->geometry_, base::view(call.output_gradient),
                           weight(call.parameters, call.device), base::view(dx.images), dx.epilogue, call.workspace);
    }
  }

 private:
  using parameter_element = parameter_element_t<Element>;

  [[nodiscard]] image_view<const parameter_element, Layout, Device> weight(
      std::span<const parameter_memory<parameter_element>> parameters, Device& device) const {
    return {device, parameters[0].value, this->weight_extents_};
  }
};

}  // namespace gradus::nn

// SPDX-License-Identifier: BSL-1.0
//
// The layer conv_transpose2d: transposed 2-D convolution.
#pragma once

#include <algorithm>    // std::max, std::min
#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/kernels/conv_transpose2d.hpp"
#include "gradus/kernels/cpu/conv_transpose2d.hpp"
#include "gradus/nn/initializer.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/layers/padding.hpp"

namespace gradus::nn {

/// Options of a transposed 2-D convolution, as torch.nn.ConvTranspose2d. It spreads every element of x over a kernel's
/// extent of y, and the stride is the distance of these extents: stride 2 doubles an image (Dumoulin & Visin 2016,
/// section 4). It is the gradient of a convolution with respect to its input.
///
///   symbol | meaning | shape
///   x      | input   | (N, I, P, Q)
///   w      | weight  | (I, O / groups, R, S)   R x S: kernel size
///   b      | bias    | (O)
///   y      | output  | (N, O, H, W)
///
///   H = (P - 1) * stride - (top + bottom) + dilation * (R - 1) + output_padding + 1, and W likewise
///   y(n, o, h, w) = b(o) + sum of x(n, i, p, q) * w(i, o, r, s) over h = p * stride - top + r * dilation, w likewise
///
/// Gradients for g = dL/dy:
///   dL/dx = convolution of g with w          (N, I, P, Q)            overwritten or accumulated
///   dL/dw = correlation of g with x          (I, O / groups, R, S)   overwritten
///   dL/db = sum of g over N, H, W            (O)                     overwritten
///
/// @throws configuration_error (network::add) when out_channels, groups, kernel, stride, dilation, padding or
///         output_padding is not possible, and for padding::same()
/// @throws shape_error (network::add) for a flattened image, when groups does not divide the channels, or when the
///         output has no elements
struct conv_transpose2d {
  index_t out_channels = 0;                      ///< O
  size2d kernel{1, 1};                           ///< rows and columns of the kernel
  size2d stride{1, 1};                           ///< rows and columns of y from one of x to the next
  nn::padding padding = nn::padding::valid();    ///< rows and columns that are cut off y on each side
  size2d output_padding{0, 0};                   ///< more of y below and to the right; less than the stride or
                                                 ///< than the dilation
  size2d dilation{1, 1};                         ///< rows and columns of y from one of the kernel to the next
  index_t groups = 1;                            ///< parts of the channels that are convolved apart
  bool bias = true;                              ///< false: no b
  initializer weight_initializer = he_normal();  ///< of w
  initializer bias_initializer = zeros();        ///< of b
  /// As in nn::conv2d.
  kernels::convolution_algorithm algorithm = kernels::convolution_algorithm::automatic;

  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  class layer;
};

namespace detail {

/// The part of the layer that does not depend on element type, layout and device.
class conv_transpose2d_base : public layer_base {
 public:
  explicit conv_transpose2d_base(const conv_transpose2d& options) : options_{options} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "conv_transpose2d"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    const conv_transpose2d& o = options_;
    require_inputs(kind(), 1, inputs.size());
    require_at_least(kind(), "out_channels", 1, o.out_channels,
                     "say how many channels it makes: nn::conv_transpose2d{.out_channels = 16, .kernel = 3}");
    require_at_least(kind(), "groups", 1, o.groups);
    const value_shape& in = inputs[0];
    require_image(kind(), in, "put the transposed convolution before nn::flatten");
    if (in.channels % o.groups != 0 || o.out_channels % o.groups != 0) {
      raise<shape_error>(
          kind(), {"groups that divide ", in.channels, " input and ", o.out_channels, " output channels"}, {o.groups});
    }
    if (o.padding.rule() == padding::kind::same) {
      raise<configuration_error>(kind(), "padding::explicit_padding or padding::valid", "padding::same()",
                                 "the output of a transposed convolution with same() has no unique extent");
    }
    require_at_least(kind(), "rows of the kernel", 1, o.kernel.height);
    require_at_least(kind(), "columns of the kernel", 1, o.kernel.width);
    const size2d reach = dilated_kernel(kind(), o.kernel, o.dilation);
    require_at_least(kind(), "stride", 1, std::min(o.stride.height, o.stride.width));
    require_planned_strides(kind(), o.stride);
    require_few_steps(kind(), "padding", std::max(o.padding.top(), o.padding.bottom()),
                      std::max(o.padding.left(), o.padding.right()));
    geometry_ = {.in_channels = o.out_channels,
                 .in_height = output_extent(in.height, reach.height, o.stride.height, o.padding.top(),
                                            o.padding.bottom(), o.output_padding.height, o.dilation.height),
                 .in_width = output_extent(in.width, reach.width, o.stride.width, o.padding.left(), o.padding.right(),
                                           o.output_padding.width, o.dilation.width),
                 .out_channels = in.channels,
                 .out_height = in.height,
                 .out_width = in.width,
                 .kernel_height = o.kernel.height,
                 .kernel_width = o.kernel.width,
                 .stride_height = o.stride.height,
                 .stride_width = o.stride.width,
                 .pad_top = o.padding.top(),
                 .pad_left = o.padding.left(),
                 .groups = o.groups,
                 .dilation_height = o.dilation.height,
                 .dilation_width = o.dilation.width,
                 .algorithm = o.algorithm};
    require_few_positions(kind(), std::max(in.channels, o.out_channels), {geometry_.in_height, geometry_.in_width},
                          {in.height, in.width}, o.stride, reach);
    weight_extents_ = geometry_.weights();
    return {geometry_.in_channels, geometry_.in_height, geometry_.in_width};
  }

  [[nodiscard]] std::vector<parameter_description> parameters() const override {
    const auto area = static_cast<double>(geometry_.kernel_height * geometry_.kernel_width);
    const auto strides = static_cast<double>(geometry_.stride_height * geometry_.stride_width);
    // An output sums area / strides terms of each input channel.
    const fan sizes{
        .in = static_cast<double>(geometry_.out_channels / geometry_.groups) * std::max(1.0, area / strides),
        .out = static_cast<double>(geometry_.in_channels / geometry_.groups) * area};
    std::vector<parameter_description> all = weight_and_bias(geometry_.weights(), 4, sizes, options_.weight_initializer,
                                                             options_.bias ? &options_.bias_initializer : nullptr);
    if (options_.bias) {
      all[1].shape = {geometry_.in_channels, 1, 1, 1};
    }
    return all;
  }

  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_output = false,
            .fuses_activation = true,
            .fuses_residual = true,
            .masks_input_gradients = true,
            .any_activation = true,
            .skips_parameter_gradients = true,
            .folds_affine = weight_channels::second_of_a_group,
            .reads = {.inputs_for_inputs = 0,
                      .inputs_for_parameters = 1,
                      .gradient_for_inputs = 1,
                      .gradient_for_parameters = static_cast<unsigned char>(options_.bias ? 2 : 1)}};
  }

  [[nodiscard]] index_t weight_groups() const noexcept override { return options_.groups; }

  [[nodiscard]] index_t multiply_adds() const noexcept override { return geometry_.multiply_adds(); }

  void set_activation(kernels::activation act) override { activation_ = act; }

  void set_convolution_algorithm(kernels::convolution_algorithm of_network) override {
    geometry_.algorithm =
        options_.algorithm == kernels::convolution_algorithm::automatic ? of_network : options_.algorithm;
  }

  void attributes(attribute_visitor& visit) const override {
    visit.operation(kind());
    visit.size("kernel", options_.kernel);
    visit.size("stride", options_.stride);
    visit.padding("padding", options_.padding);
    visit.size("output_padding", options_.output_padding);
    visit.size("dilation", options_.dilation);
    visit.integer("groups", options_.groups);
  }

 protected:
  conv_transpose2d options_;
  kernels::conv2d_geometry geometry_;  // of the convolution whose gradient the layer is
  extents<4> weight_extents_;
  kernels::activation activation_ = kernels::activation::identity;

 private:
  [[nodiscard]] index_t output_extent(index_t in, index_t reach, index_t stride, index_t before, index_t after,
                                      index_t output_padding, index_t dilation) const {
    require_at_least(kind(), "padding", 0, std::min(before, after));
    if (output_padding < 0 || output_padding >= std::max(stride, dilation)) {
      raise<configuration_error>(
          kind(), {"an output_padding from 0 to ", std::max(stride, dilation) - 1, " (less than stride or dilation)"},
          {output_padding});
    }
    const index_t extent = gradus::detail::checked_product(in - 1, stride) - before - after + reach + output_padding;
    if (extent < 1) {
      raise<shape_error>(kind(), "an output of at least 1 row and column", {extent},
                         "pad less, or use a larger kernel: padding cuts elements off the output");
    }
    return extent;
  }
};

}  // namespace detail

template <class Element, class Layout, class Device>
class conv_transpose2d::layer final : public nn::layer<Element, Layout, Device, detail::conv_transpose2d_base> {
  static_assert(kernels::explain_conv_transpose2d<Device, Element, Layout>());
  using base = nn::layer<Element, Layout, Device, detail::conv_transpose2d_base>;

 public:
  using base::base;

  [[nodiscard]] layer_memory memory(Device& device, index_t batch) const override {
    std::size_t workspace = 0;
    for (const kernels::pass which :
         {kernels::pass::forward, kernels::pass::backward_data, kernels::pass::backward_weights}) {
      workspace =
          std::max(workspace, conv_transpose2d_workspace_bytes<Element, Layout>(device, this->geometry_, batch, which));
    }
    return {.state = 0, .workspace = workspace};
  }

  [[nodiscard]] layer_memory inference_memory(Device& device, index_t batch, bool /*prepared*/) const override {
    return {.state = 0,
            .workspace = conv_transpose2d_workspace_bytes<Element, Layout>(device, this->geometry_, batch,
                                                                           kernels::pass::forward)};
  }

  void forward(const typename base::forward_call& call) override {
    conv_transpose2d_forward(
        call.device, this->geometry_, base::view(call.inputs[0]), weight(call.parameters, call.device),
        base::view(call.output),
        kernels::forward_epilogue<Element>{.bias = call.parameters.size() > 1 ? call.parameters[1].value : nullptr,
                                           .residual = call.residual,
                                           .act = this->activation_},
        call.workspace);
  }

  void backward(const typename base::backward_call& call) override {
    if (parameter_element* const dw = call.parameters[0].gradient; dw != nullptr) {
      conv_transpose2d_backward_weights(
          call.device, this->geometry_, base::view(call.inputs[0]), base::view(call.output_gradient),
          image_view<parameter_element, Layout, Device>{call.output_gradient.device(), dw, this->weight_extents_},
          this->options_.bias ? call.parameters[1].gradient : nullptr, call.workspace);
    }
    if (const auto& dx = call.input_gradients[0]; dx.needed()) {
      conv_transpose2d_backward_data(call.device, this->geometry_, base::view(call.output_gradient),
                                     weight(call.parameters, call.device), base::view(dx.images), dx.epilogue,
                                     call.workspace);
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

GRADUS_COMPILED_LAYER(::gradus::nn::conv_transpose2d)

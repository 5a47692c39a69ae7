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
#include "gradus/kernels/pad2d.hpp"
#include "gradus/nn/detail/padding/padded_extents.hpp"
#include "gradus/nn/initializer.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/layers/padding.hpp"

namespace gradus::nn {

using kernels::convolution_algorithm;
using kernels::padding_mode;

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
/// A dilated kernel reads every dilation-th element: its extent is (R - 1) * dilation + 1 (Yu & Koltun 2016). As in
/// torch.nn.Conv2d, padding_mode says what the elements around the input are. With other than zeros, the workspace
/// holds the padded images.
///
/// @throws configuration_error (network::add) when out_channels, groups, kernel, stride, dilation or padding is not
///         possible, or when the device lacks kernels for the padding mode (kernels::has_pad2d)
/// @throws shape_error (network::add) for a flattened image, when groups does not divide the channels, when the
///         kernel does not fit the padded image, or when the padding mode needs a larger image
struct conv2d {
  index_t out_channels = 0;                        ///< O
  size2d kernel{1, 1};                             ///< rows and columns of the kernel
  size2d stride{1, 1};                             ///< rows and columns from one output to the next
  nn::padding padding = nn::padding::valid();      ///< elements around the input
  kernels::chosen_padding_mode padding_mode = {};  ///< what those elements are
  dilation2d dilation = {};                        ///< rows and columns of the input from one of the kernel to the next
  index_t groups = 1;                              ///< parts of the channels that are convolved apart
  bool bias = true;                                ///< false: no b
  initializer weight_initializer = he_normal();    ///< of w
  initializer bias_initializer = zeros();          ///< of b
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
    require_at_least(kind(), "out_channels", 1, options_.out_channels,
                     "say how many channels it makes: nn::conv2d{.out_channels = 16, .kernel = 3}");
    require_at_least(kind(), "groups", 1, options_.groups);
    const value_shape& in = inputs[0];
    require_image(kind(), in, "put the convolution before nn::flatten");
    if (in.channels % options_.groups != 0 || options_.out_channels % options_.groups != 0) {
      raise<shape_error>(kind(),
                         {"groups that divide ", in.channels, " input and ", options_.out_channels, " output channels"},
                         {options_.groups});
    }
    const size2d image{in.height, in.width};
    const size2d reach = dilated_kernel(kind(), options_.kernel, options_.dilation);
    auto window = slide(kind(), image, reach, options_.stride, options_.padding);
    require_planned_strides(kind(), options_.stride);
    size2d extents = image;
    if (options_.padding_mode != padding_mode::zeros) {
      padded_ = pad_around(kind(), in, reach, options_.stride, options_.padding, options_.padding_mode);
      extents = {padded_.output(1).h, padded_.output(1).w};
      window.pad_top = 0;
      window.pad_left = 0;
    }
    geometry_ = {.in_channels = in.channels,
                 .in_height = extents.height,
                 .in_width = extents.width,
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
                 .dilation_height = options_.dilation.height,
                 .dilation_width = options_.dilation.width,
                 .algorithm = options_.algorithm};
    require_few_positions(kind(), std::max(in.channels, options_.out_channels), extents,
                          {window.out_height, window.out_width}, options_.stride, reach);
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
            .any_activation = true,
            .skips_parameter_gradients = true,
            .folds_affine = weight_channels::first,
            .reads = {.inputs_for_inputs = 0,
                      .inputs_for_parameters = 1,
                      .gradient_for_inputs = 1,
                      .gradient_for_parameters = 1}};
  }

  [[nodiscard]] index_t multiply_adds() const noexcept override { return geometry_.multiply_adds(); }

  void set_activation(kernels::activation act) override { activation_ = act; }

  void set_convolution_algorithm(convolution_algorithm of_network) override {
    geometry_.algorithm = options_.algorithm == convolution_algorithm::automatic ? of_network : options_.algorithm;
  }

  void attributes(attribute_visitor& visit) const override {
    visit.operation(kind());
    visit.size("kernel", options_.kernel);
    visit.size("stride", options_.stride);
    visit.padding("padding", options_.padding);
    visit.text("padding_mode", kernels::name_of(options_.padding_mode));
    visit.size("dilation", options_.dilation);
    visit.integer("groups", options_.groups);
  }

 protected:
  /// True if the workspace begins with the padded images.
  [[nodiscard]] bool pads() const noexcept { return options_.padding_mode != padding_mode::zeros; }

  conv2d options_;
  kernels::conv2d_geometry geometry_;  // of the padded images if pads()
  kernels::pad2d_geometry padded_{.mode = {}};
  extents<4> weight_extents_;
  kernels::activation activation_ = kernels::activation::identity;
};

}  // namespace detail

template <class Element, class Layout, class Device>
class conv2d::layer final : public nn::layer<Element, Layout, Device, detail::conv2d_base> {
  static_assert(kernels::explain_conv2d<Device, Element, Layout>());
  using base = nn::layer<Element, Layout, Device, detail::conv2d_base>;

  using parameter_element = parameter_element_t<Element>;

 public:
  using base::base;

  value_shape infer(std::span<const value_shape> inputs) override {
    if (!kernels::has_pad2d<Device, Element, Layout> && this->pads()) {
      raise<configuration_error>(this->kind(), "a device with kernels for the padding mode (kernels::has_pad2d)",
                                 "a device without",
                                 "use padding_mode::zeros, or overload pad2d_forward and "
                                 "pad2d_backward for the device");
    }
    return base::infer(inputs);
  }

  [[nodiscard]] layer_memory memory(Device& device, index_t batch) const override {
    std::size_t workspace = 0;
    for (const kernels::pass which :
         {kernels::pass::forward, kernels::pass::backward_data, kernels::pass::backward_weights}) {
      workspace = std::max(workspace, conv2d_workspace_bytes<Element, Layout>(device, this->geometry_, batch, which));
    }
    return {.state = 0, .workspace = padded_bytes(batch) + workspace};
  }

  [[nodiscard]] layer_memory inference_memory(Device& device, index_t batch,
                                              [[maybe_unused]] bool prepared) const override {
    if constexpr (kernels::has_prepared_conv2d<Device, Element, Layout>) {
      if (prepared) {
        return {.state = 0,
                .workspace = padded_bytes(batch) +
                             conv2d_prepared_workspace_bytes<Element, Layout>(device, this->geometry_, batch)};
      }
    }
    return {.state = 0,
            .workspace = padded_bytes(batch) + conv2d_workspace_bytes<Element, Layout>(device, this->geometry_, batch,
                                                                                       kernels::pass::forward)};
  }

  [[nodiscard]] std::size_t prepared_bytes([[maybe_unused]] Device& device) const override {
    if constexpr (kernels::has_prepared_conv2d<Device, Element, Layout>) {
      return conv2d_prepared_bytes<Element, Layout>(device, this->geometry_);
    } else {
      return 0;
    }
  }

  void prepare([[maybe_unused]] Device& device,
               [[maybe_unused]] std::span<const parameter_memory<parameter_element>> values,
               [[maybe_unused]] std::span<std::byte> to,
               [[maybe_unused]] std::span<std::byte> workspace) const override {
    if constexpr (kernels::has_prepared_conv2d<Device, Element, Layout>) {
      conv2d_prepare<Element>(device, this->geometry_, weight(values, device), to, workspace);
    }
  }

  void forward(const typename base::forward_call& call) override {
    const kernels::forward_epilogue<Element> epilogue{
        .bias = call.parameters.size() > 1 ? call.parameters[1].value : nullptr,
        .residual = call.residual,
        .act = this->activation_};
    if constexpr (kernels::has_prepared_conv2d<Device, Element, Layout>) {
      if (!call.prepared.empty()) {
        conv2d_forward_prepared(call.device, this->geometry_, input(call), call.prepared, base::view(call.output),
                                epilogue, workspace(call));
        return;
      }
    }
    conv2d_forward(call.device, this->geometry_, input(call), weight(call.parameters, call.device),
                   base::view(call.output), epilogue, workspace(call));
  }

  void backward(const typename base::backward_call& call) override {
    if (parameter_element* const dw = call.parameters[0].gradient; dw != nullptr) {
      conv2d_backward_weights(
          call.device, this->geometry_, input(call), base::view(call.output_gradient),
          image_view<parameter_element, Layout, Device>{call.output_gradient.device(), dw, this->weight_extents_},
          this->options_.bias ? call.parameters[1].gradient : nullptr, workspace(call));
    }
    const auto& dx = call.input_gradients[0];
    if (!dx.needed()) {
      return;
    }
    const bool pads = kernels::has_pad2d<Device, Element, Layout> && this->pads();
    const image_view<Element, Layout, Device> target = pads ? padded_images(call) : base::view(dx.images);
    conv2d_backward_data(call.device, this->geometry_, base::view(call.output_gradient),
                         weight(call.parameters, call.device), target,
                         pads ? kernels::backward_epilogue<Element>{} : dx.epilogue, workspace(call));
    if constexpr (kernels::has_pad2d<Device, Element, Layout>) {
      if (pads) {
        pad2d_backward(call.device, this->padded_, image_view<const Element, Layout, Device>{target},
                       base::view(dx.images), dx.epilogue);
      }
    }
  }

 private:
  [[nodiscard]] image_view<const parameter_element, Layout, Device> weight(
      std::span<const parameter_memory<parameter_element>> parameters, Device& device) const {
    return {device, parameters[0].value, this->weight_extents_};
  }

  /// Bytes of the padded images, rounded so that memory after them is aligned.
  [[nodiscard]] std::size_t padded_bytes(index_t batch) const {
    const auto elements = static_cast<std::size_t>(this->pads() ? this->geometry_.input(batch).size() : 0);
    return (elements * sizeof(Element) + 255) / 256 * 256;
  }
  template <class Call>
  [[nodiscard]] std::span<std::byte> workspace(const Call& call) const {
    return call.workspace.subspan(padded_bytes(call.inputs[0].extent(0)));
  }
  template <class Call>
  [[nodiscard]] image_view<Element, Layout, Device> padded_images(const Call& call) const {
    return {call.device, reinterpret_cast<Element*>(call.workspace.data()),
            this->geometry_.input(call.inputs[0].extent(0))};
  }
  /// The images that the convolution reads: the input, or the padded input in the workspace.
  template <class Call>
  [[nodiscard]] image_view<const Element, Layout, Device> input(const Call& call) const {
    if constexpr (kernels::has_pad2d<Device, Element, Layout>) {
      if (this->pads()) {
        const image_view<Element, Layout, Device> padded = padded_images(call);
        pad2d_forward(call.device, this->padded_, base::view(call.inputs[0]), padded);
        return padded;
      }
    }
    return base::view(call.inputs[0]);
  }
};

}  // namespace gradus::nn

GRADUS_COMPILED_LAYER(::gradus::nn::conv2d)

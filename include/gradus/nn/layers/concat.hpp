// SPDX-License-Identifier: BSL-1.0
//
// The layer concat: values joined along the channels.
#pragma once

#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/kernels/concat.hpp"
#include "gradus/nn/layer.hpp"

namespace gradus::nn {

/// Options of a concatenation: joins images of one height and width along the channels, in the order of the inputs.
///
///   symbol | meaning          | shape
///   x(i)   | inputs, 2 or more | (N, C(i), H, W)
///   y      | output           | (N, sum of C(i), H, W)
///
/// Gradients for g = dL/dy: dL/dx(i) = the channels of g that came from x(i)   (N, C(i), H, W)
///
/// @throws configuration_error (network::add) for fewer than 2 inputs
/// @throws shape_error (network::add) for a flattened image, or when heights or widths differ
struct concat {
  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  class layer;
};

namespace detail {

/// The part of the layer that does not depend on element type, layout and device.
class concat_base : public layer_base {
 public:
  explicit concat_base(const concat& /*options*/) {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "concat"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    if (inputs.size() < 2) {
      raise<configuration_error>(kind(), "at least 2 input values", {inputs.size()},
                                 "write them in braces: net.add(\"joined\", nn::concat{}, {x, y})");
    }
    value_shape out = inputs[0];
    out.channels = 0;
    for (const value_shape& in : inputs) {
      if (in.flattened) {
        raise<shape_error>(kind(), "images", describe(in), "concatenate before nn::flatten");
      }
      if (in.height != out.height || in.width != out.width) {
        raise<shape_error>(kind(), {"images of ", out.height, " x ", out.width, " pixels, as the first input has"},
                           describe(in),
                           "it joins channels: give the inputs one size before, with nn::crop2d{} of {larger, smaller} "
                           "(gradus/nn/layers/crop2d.hpp), nn::pad2d, or padding::same() of the convolutions");
      }
      out.channels += in.channels;
    }
    return out;
  }

  void attributes(attribute_visitor& visit) const override { visit.operation(kind()); }

  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_inputs = false, .backward_reads_output = false, .recomputable = true};
  }
};

}  // namespace detail

template <class Element, class Layout, class Device>
class concat::layer final : public nn::layer<Element, Layout, Device, detail::concat_base> {
  static_assert(kernels::explain_copy_channels<Device, Element, Layout>());
  using base = nn::layer<Element, Layout, Device, detail::concat_base>;

 public:
  using base::base;

  void forward(const typename base::forward_call& call) override {
    index_t channel = 0;
    for (const auto& input : call.inputs) {
      copy_channels(call.device, base::view(input), index_t{0}, base::view(call.output), channel, input.extent(1),
                    false);
      channel += input.extent(1);
    }
  }

  void backward(const typename base::backward_call& call) override {
    index_t channel = 0;
    for (std::size_t i = 0; i < call.input_gradients.size(); ++i) {
      const auto& dx = call.input_gradients[i];
      const index_t channels = call.inputs[i].extent(1);
      if (dx.needed()) {
        copy_channels(call.device, base::view(call.output_gradient), channel, base::view(dx.images), index_t{0},
                      channels, dx.epilogue.accumulate);
      }
      channel += channels;
    }
  }
};

}  // namespace gradus::nn

GRADUS_COMPILED_LAYER(::gradus::nn::concat)

// SPDX-License-Identifier: BSL-1.0
//
// The layer pad2d: elements around images.
#pragma once

#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/kernels/pad2d.hpp"
#include "gradus/nn/detail/padding/padded_extents.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/layers/padding.hpp"

namespace gradus::nn {

using kernels::padding_mode;

/// Options of padding around an image, as torch.nn.functional.pad.
///
///   symbol | meaning | shape
///   x      | input   | (N, C, H, W)
///   y      | output  | (N, C, top + H + bottom, left + W + right)
///
/// Every element of y is an element of x or the value of the padding; kernels::padding_mode shows the modes.
///
/// Gradients for g = dL/dy: dL/dx = the sum of g over the copies of each element   (N, C, H, W)   overwritten or
/// accumulated
///
/// @throws configuration_error (network::add) for padding::same() or a negative padding
/// @throws shape_error (network::add) for a flattened image, when a padding is not less than the extent with
///         padding_mode::reflect, or is more than the extent with padding_mode::circular
struct pad2d {
  nn::padding padding = nn::padding::explicit_padding(1);  ///< rows and columns on each side
  padding_mode mode = padding_mode::zeros;                 ///< what the elements around x are
  double value = 0;                                        ///< of these elements, with padding_mode::zeros

  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  class layer;
};

namespace detail {

/// The part of the layer that does not depend on element type, layout and device.
class pad2d_base : public layer_base {
 public:
  explicit pad2d_base(const pad2d& options) : options_{options} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "pad2d"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    require_inputs(kind(), 1, inputs.size());
    const value_shape& in = inputs[0];
    require_image(kind(), in, "pad before nn::flatten");
    if (options_.padding.rule() == padding::kind::same) {
      raise<configuration_error>(kind(), "padding::explicit_padding", "padding::same()",
                                 "same() is for layers with a kernel");
    }
    geometry_ = pad_around(kind(), in, {1, 1}, {1, 1}, options_.padding, options_.mode);
    geometry_.value = options_.value;
    const auto out = geometry_.output(1);
    return {out.c, out.h, out.w};
  }

  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_inputs = false,
            .backward_reads_output = false,
            .masks_input_gradients = true,
            .any_activation = true,
            .recomputable = true};
  }

  void attributes(attribute_visitor& visit) const override {
    visit.operation(kind());
    visit.padding("padding", options_.padding);
    visit.text("mode", kernels::name_of(options_.mode));
    visit.real("value", options_.value);
  }

 protected:
  pad2d options_;
  kernels::pad2d_geometry geometry_;
};

}  // namespace detail

template <class Element, class Layout, class Device>
class pad2d::layer final : public nn::layer<Element, Layout, Device, detail::pad2d_base> {
  static_assert(kernels::explain_pad2d<Device, Element, Layout>());
  using base = nn::layer<Element, Layout, Device, detail::pad2d_base>;

 public:
  using base::base;

  void forward(const typename base::forward_call& call) override {
    pad2d_forward(call.device, this->geometry_, base::view(call.inputs[0]), base::view(call.output));
  }

  void backward(const typename base::backward_call& call) override {
    if (const auto& dx = call.input_gradients[0]; dx.needed()) {
      pad2d_backward(call.device, this->geometry_, base::view(call.output_gradient), base::view(dx.images),
                     dx.epilogue);
    }
  }
};

}  // namespace gradus::nn

GRADUS_COMPILED_LAYER(::gradus::nn::pad2d)

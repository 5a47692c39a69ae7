// SPDX-License-Identifier: BSL-1.0
//
// The layer add: the sum of two values.
#pragma once

#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/kernels/elementwise.hpp"
#include "gradus/nn/layer.hpp"

namespace gradus::nn {

namespace detail {
template <class Element, class Device>
class add_layer;
}  // namespace detail

/// Options of a sum of two values of one shape, as in residual networks: y = a + b.
///
///   symbol  | meaning | shape
///   a, b    | inputs  | (N, C, H, W)
///   y       | output  | (N, C, H, W)
///
/// Gradients for g = dL/dy: dL/da = dL/db = g   (N, C, H, W)   overwritten or accumulated
///
/// @throws shape_error (network::add) when the shapes differ
struct add {
  /// The layer for one element type and device; all layouts share it.
  template <class Element, class Layout, class Device>
  using layer = detail::add_layer<Element, Device>;
};

namespace detail {

/// The part of the layer that does not depend on element type, layout and device.
class add_base : public layer_base {
 public:
  explicit add_base(const add& /*options*/) {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "add"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    require_inputs(kind(), 2, inputs.size());
    if (inputs[0] != inputs[1]) {
      raise<shape_error>(kind(), "two values of one shape", {describe(inputs[0]), " and ", describe(inputs[1])},
                         inputs[0].size() == inputs[1].size() ? "add images before nn::flatten"
                         : inputs[0].channels != inputs[1].channels
                             ? "project the shortcut with a 1 x 1 convolution of the same stride"
                             : "the branches need one size: padding::same() keeps that of the input");
    }
    return inputs[0];
  }

  void attributes(attribute_visitor& visit) const override { visit.operation(kind()); }

  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_inputs = false,
            .backward_reads_output = false,
            .fuses_activation = true,
            .is_sum = true,
            .any_activation = true,
            .recomputable = true};
  }

  void set_activation(kernels::activation act) override { activation_ = act; }

 protected:
  kernels::activation activation_ = kernels::activation::identity;
};

template <class Element, class Device>
class add_layer final : public layer_passes<Element, Device>, public add_base {
  static_assert(kernels::explain_elementwise<Device, Element>());
  using passes = layer_passes<Element, Device>;

 public:
  using add_base::add_base;

  void forward(const typename passes::forward_call& call) override {
    add_forward(call.device, call.output.size(), call.inputs[0].data(), call.inputs[1].data(), call.output.data(),
                this->activation_);
  }

  void backward(const typename passes::backward_call& call) override {
    for (const auto& dx : call.input_gradients) {
      if (dx.needed()) {
        copy_or_add(call.device, call.output_gradient.size(), call.output_gradient.data(), dx.images.data(),
                    dx.epilogue.accumulate);
      }
    }
  }
};

}  // namespace detail
}  // namespace gradus::nn

GRADUS_COMPILED_LAYER(::gradus::nn::add)

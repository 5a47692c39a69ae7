// SPDX-License-Identifier: BSL-1.0
//
// The layers relu, relu6 and leaky_relu: the rectified linear unit and its relatives that a layer before can compute.
#pragma once

#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/kernels/elementwise.hpp"
#include "gradus/nn/layer.hpp"

namespace gradus::nn {

namespace detail {
template <class Element, class Device>
class relu_layer;
}  // namespace detail

/// Options of the rectified linear unit, element by element: y = max(x, 0).
///
///   symbol | meaning | shape
///   x      | input   | (N, C, H, W)
///   y      | output  | (N, C, H, W)
///
/// Gradients for g = dL/dy: dL/dx = g where y > 0, else 0   (N, C, H, W)   overwritten or accumulated
///
/// The execution plan fuses it into the layer before it, or runs it in place, where no other layer reads the values in
/// between.
struct relu {
  /// The layer for one element type and device; all layouts share it.
  template <class Element, class Layout, class Device>
  using layer = detail::relu_layer<Element, Device>;
};

/// Options of ReLU6 (Krizhevsky 2010), element by element: y = min(max(x, 0), 6). NaN stays NaN.
///
///   symbol | meaning | shape
///   x      | input   | (N, C, H, W)
///   y      | output  | (N, C, H, W)
///
/// Gradients for g = dL/dy: dL/dx = g where 0 < y < 6, else 0   (N, C, H, W)   overwritten or accumulated
///
/// The execution plan fuses it as it does relu.
struct relu6 {
  /// The layer for one element type and device; all layouts share it.
  template <class Element, class Layout, class Device>
  using layer = detail::relu_layer<Element, Device>;
};

/// Options of the leaky rectified linear unit (Maas et al. 2013), element by element: y = x where x > 0, else
/// negative_slope * x.
///
///   symbol | meaning | shape
///   x      | input   | (N, C, H, W)
///   y      | output  | (N, C, H, W)
///
/// Gradients for g = dL/dy: dL/dx = g where x > 0, else negative_slope * g   (N, C, H, W)   overwritten or accumulated
///
/// The execution plan fuses it as it does relu, if negative_slope is above 0: the sign of y is that of x then. Fused,
/// y of 16 bits is rounded once, from the sums of the layer before it.
/// @throws configuration_error (network::add) when negative_slope is not a finite number
struct leaky_relu {
  double negative_slope = 0.01;  ///< factor of negative elements

  /// The layer for one element type and device; all layouts share it.
  template <class Element, class Layout, class Device>
  using layer = detail::relu_layer<Element, Device>;
};

namespace detail {

/// The part of the layers that does not depend on element type, layout and device.
class relu_base : public layer_base {
 public:
  explicit relu_base(const relu& /*options*/) : function_{kernels::activation::relu}, kind_{"relu"} {}
  explicit relu_base(const relu6& /*options*/) : function_{kernels::activation::relu6}, kind_{"relu6"} {}
  explicit relu_base(const leaky_relu& options)
      : function_{kernels::activation::leaky_relu(options.negative_slope)},
        kind_{"leaky_relu"},
        reads_input_{!(options.negative_slope > 0)} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return kind_; }

  value_shape infer(std::span<const value_shape> inputs) override {
    require_inputs(kind(), 1, inputs.size());
    if (!is_finite(function_.slope)) {
      raise<configuration_error>(kind(), "a finite negative_slope", {function_.slope});
    }
    return inputs[0];
  }

  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_inputs = reads_input_,
            .backward_reads_output = !reads_input_,
            .recomputable = true,
            .is_activation = reads_input_ ? kernels::activation::identity : function_};
  }

  void attributes(attribute_visitor& visit) const override {
    visit.operation("relu");
    visit.real("negative_slope", function_.slope);
    visit.real("cap", function_.cap);
  }

 protected:
  kernels::activation function_;

 private:
  std::string_view kind_;

 protected:
  bool reads_input_ = false;  // the derivative does not follow from the output
};

template <class Element, class Device>
class relu_layer final : public layer_passes<Element, Device>, public relu_base {
  static_assert(kernels::explain_elementwise<Device, Element>());
  using passes = layer_passes<Element, Device>;

 public:
  using relu_base::relu_base;

  void forward(const typename passes::forward_call& call) override {
    relu_forward(call.device, call.output.size(), call.inputs[0].data(), call.output.data(), this->function_);
  }

  void backward(const typename passes::backward_call& call) override {
    if (const auto& dx = call.input_gradients[0]; dx.needed()) {
      const Element* const sign = (this->reads_input_ ? call.inputs[0] : call.output).data();
      relu_backward(call.device, call.output.size(), call.output_gradient.data(), sign, dx.images.data(),
                    dx.epilogue.accumulate, this->function_);
    }
  }
};

}  // namespace detail
}  // namespace gradus::nn

GRADUS_COMPILED_LAYER(::gradus::nn::relu)
GRADUS_COMPILED_LAYER(::gradus::nn::relu6)
GRADUS_COMPILED_LAYER(::gradus::nn::leaky_relu)

// SPDX-License-Identifier: BSL-1.0
//
// The layer relu: the rectified linear unit.
#pragma once

#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
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

namespace detail {

/// The part of the layer that does not depend on element type, layout and device.
class relu_base : public layer_base {
 public:
  explicit relu_base(const relu& /*options*/) {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "relu"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    require_inputs(kind(), 1, inputs.size());
    return inputs[0];
  }

  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_inputs = false, .recomputable = true, .is_activation = kernels::activation::relu};
  }
};

template <class Element, class Device>
class relu_layer final : public layer_passes<Element, Device>, public relu_base {
  static_assert(kernels::explain_elementwise<Device, Element>());
  using passes = layer_passes<Element, Device>;

 public:
  using relu_base::relu_base;

  void forward(const typename passes::forward_call& call) override {
    relu_forward(call.device, call.output.size(), call.inputs[0].data(), call.output.data());
  }

  void backward(const typename passes::backward_call& call) override {
    if (const auto& dx = call.input_gradients[0]; dx.needed()) {
      relu_backward(call.device, call.output.size(), call.output_gradient.data(), call.output.data(), dx.images.data(),
                    dx.epilogue.accumulate);
    }
  }
};

}  // namespace detail
}  // namespace gradus::nn

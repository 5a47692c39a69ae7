// SPDX-License-Identifier: BSL-1.0
//
// The rectified linear unit.
#pragma once

#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/kernels/elementwise.hpp"
#include "gradus/nn/layer.hpp"

namespace gradus::nn {

/// y = max(x, 0), element by element; dL/dx = dL/dy where y > 0, else 0.
///
/// The plan fuses it into the layer before it, or runs it in place, where nothing else needs the values in between.
struct relu {
  template <class Element, class Layout, class Device>
  class layer;
};

namespace detail {

/// What all element types, layouts and devices of the layer share.
class relu_base : public layer_base {
 public:
  explicit relu_base(const relu& /*options*/) {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "relu"; }

  GRADUS_COLD value_shape infer(std::span<const value_shape> inputs) override {
    require_inputs(kind(), 1, inputs.size());
    return inputs[0];
  }

  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_inputs = false, .recomputable = true, .is_activation = kernels::activation::relu};
  }
};

}  // namespace detail

template <class Element, class Layout, class Device>
class relu::layer final : public nn::layer<Element, Layout, Device, detail::relu_base> {
  static_assert(kernels::explain_elementwise<Device, Element>());
  using base = nn::layer<Element, Layout, Device, detail::relu_base>;

 public:
  using base::base;

  void forward(const typename base::forward_call& call) override {
    relu_forward(call.device, call.output.size(), call.inputs[0].data(), call.output.data());
  }

  void backward(const typename base::backward_call& call) override {
    if (const auto& dx = call.input_gradients[0]; dx.wanted()) {
      relu_backward(call.device, call.output.size(), call.output_gradient.data(), call.output.data(), dx.view.data(),
                    dx.epilogue.accumulate);
    }
  }
};

}  // namespace gradus::nn

// SPDX-License-Identifier: BSL-1.0
//
// The layer flatten: an image read as a vector.
#pragma once

#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/nn/layer.hpp"

namespace gradus::nn {

/// Options of flatten: reads an image (N, C, H, W) as the vector (N, C * H * W) of its elements in the order (c, h, w),
/// in every layout. It moves no memory: the layers that follow know the layout. The gradient shares memory likewise.
struct flatten {
  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  class layer;
};

namespace detail {

/// The part of the layer that does not depend on element type, layout and device.
class flatten_base : public layer_base {
 public:
  explicit flatten_base(const flatten& /*options*/) {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "flatten"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    require_inputs(kind(), 1, inputs.size());
    value_shape shape = inputs[0];
    shape.flattened = true;
    return shape;
  }

  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_inputs = false, .backward_reads_output = false, .aliases_input = true};
  }
};

}  // namespace detail

template <class Element, class Layout, class Device>
class flatten::layer final : public nn::layer<Element, Layout, Device, detail::flatten_base> {
  using base = nn::layer<Element, Layout, Device, detail::flatten_base>;

 public:
  using base::base;

  void forward(const typename base::forward_call& /*call*/) override {}
  void backward(const typename base::backward_call& /*call*/) override {}
};

}  // namespace gradus::nn

// SPDX-License-Identifier: BSL-1.0
//
// The layer flatten: an image read as a vector.
#pragma once

#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/nn/layer.hpp"

namespace gradus::nn {

namespace detail {
template <class Element, class Device>
class flatten_layer;
}  // namespace detail

/// Options of flatten: reads an image (N, C, H, W) as the vector (N, C * H * W) of its elements in the order (c, h, w),
/// in every layout. It moves no memory: the layers that follow know the layout. The gradient shares memory likewise.
struct flatten {
  /// The layer for one element type and device; all layouts share it.
  template <class Element, class Layout, class Device>
  using layer = detail::flatten_layer<Element, Device>;
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

  void attributes(attribute_visitor& visit) const override { visit.operation(kind()); }

  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_inputs = false, .backward_reads_output = false, .aliases_input = true};
  }
};

template <class Element, class Device>
class flatten_layer final : public layer_passes<Element, Device>, public flatten_base {
  using passes = layer_passes<Element, Device>;

 public:
  using flatten_base::flatten_base;

  void forward(const typename passes::forward_call& /*call*/) override {}
  void backward(const typename passes::backward_call& /*call*/) override {}
};

}  // namespace detail
}  // namespace gradus::nn

GRADUS_COMPILED_LAYER(::gradus::nn::flatten)

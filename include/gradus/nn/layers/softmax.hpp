// SPDX-License-Identifier: BSL-1.0
//
// The layers softmax and log_softmax: probabilities of the channels of each pixel.
#pragma once

#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/channel_softmax.hpp"
#include "gradus/kernels/cpu/channel_softmax.hpp"
#include "gradus/layout/layout_policy.hpp"
#include "gradus/nn/detail/shaping/memory_order.hpp"
#include "gradus/nn/layer.hpp"

namespace gradus::nn {

namespace detail {
template <class Element, class Device>
class channel_softmax_layer;

template <class Options, class Element, class Layout, class Device>
struct channel_softmax_layer_of {
  static_assert(Layout::order[0] == axis::n, "gradus: softmax needs a layout whose slowest axis is n");
  using type = layer_in_order<Options, channel_softmax_layer<Element, Device>, Layout>;
};
}  // namespace detail

/// Options of softmax over the channels of each pixel, or over all features of a vector or flattened image:
///
///   y(c) = exp(x(c)) / sum of exp(x(j)) over j
///
///   symbol | meaning | shape
///   x      | input   | (N, C, H, W)
///   y      | output  | (N, C, H, W)
///
/// Gradients for g = dL/dy: dL/dx(c) = y(c) * (g(c) - sum of y(j) * g(j) over j)   overwritten or accumulated
///
/// The largest channel is subtracted before exp, so nothing overflows. To train a classifier, nn::softmax_cross_entropy
/// on the scores before this layer loses fewer digits. Backward reads the output, not the input.
struct softmax {
  static constexpr bool logarithm = false;  ///< the output is not a logarithm

  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  using layer = typename detail::channel_softmax_layer_of<softmax, Element, Layout, Device>::type;
};

/// Options of the logarithm of softmax over the channels of each pixel, or over all features of a vector or flattened
/// image:
///
///   y(c) = x(c) - log(sum of exp(x(j)) over j)
///
///   symbol | meaning | shape
///   x      | input   | (N, C, H, W)
///   y      | output  | (N, C, H, W)
///
/// Gradients for g = dL/dy: dL/dx(c) = g(c) - exp(y(c)) * sum of g(j) over j   overwritten or accumulated
///
/// Backward reads the output, not the input.
struct log_softmax {
  static constexpr bool logarithm = true;  ///< the output is a logarithm

  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  using layer = typename detail::channel_softmax_layer_of<log_softmax, Element, Layout, Device>::type;
};

namespace detail {

/// The part of the layers that does not depend on element type, layout and device.
class channel_softmax_base : public layer_base {
 public:
  template <class Options>
  channel_softmax_base(const Options& /*options*/, const axis_order& order)
      : order_{order}, logarithm_{Options::logarithm} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return logarithm_ ? "log_softmax" : "softmax"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    require_inputs(kind(), 1, inputs.size());
    shape_ = inputs[0];
    return shape_;
  }

  void attributes(attribute_visitor& visit) const override { visit.operation(kind()); }

  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_inputs = false, .recomputable = true};
  }

 protected:
  [[nodiscard]] kernels::channel_softmax_shape shape(index_t batch) const {
    if (shape_.flattened) {
      return {.outer = batch, .channels = shape_.size(), .inner = 1, .logarithm = logarithm_};
    }
    const gradus::extents<4> extents = shape_.batch(batch);
    return {.outer = extents_around(order_, extents, axis::c, true),
            .channels = shape_.channels,
            .inner = extents_around(order_, extents, axis::c, false),
            .logarithm = logarithm_};
  }

  axis_order order_;
  bool logarithm_;
  value_shape shape_;  // infer sets it
};

template <class Element, class Device>
class channel_softmax_layer : public layer_passes<Element, Device>, public channel_softmax_base {
  static_assert(kernels::explain_channel_softmax<Device, Element>());
  using passes = layer_passes<Element, Device>;

 public:
  using channel_softmax_base::channel_softmax_base;

  void forward(const typename passes::forward_call& call) override {
    channel_softmax_forward(call.device, this->shape(call.output.examples()), call.inputs[0].data(),
                            call.output.data());
  }

  void backward(const typename passes::backward_call& call) override {
    if (const auto& dx = call.input_gradients[0]; dx.needed()) {
      channel_softmax_backward(call.device, this->shape(dx.images.examples()), call.output.data(),
                               call.output_gradient.data(), dx.images.data(), dx.epilogue.accumulate);
    }
  }
};

}  // namespace detail
}  // namespace gradus::nn

GRADUS_COMPILED_LAYER(::gradus::nn::softmax)
GRADUS_COMPILED_LAYER(::gradus::nn::log_softmax)

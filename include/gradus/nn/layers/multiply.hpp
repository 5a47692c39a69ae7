// SPDX-License-Identifier: BSL-1.0
//
// The layer multiply: the product of two values.
#pragma once

#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/cpu/scale_channels.hpp"
#include "gradus/kernels/scale_channels.hpp"
#include "gradus/layout/layout_policy.hpp"
#include "gradus/nn/detail/shaping/memory_order.hpp"
#include "gradus/nn/layer.hpp"

namespace gradus::nn {

struct multiply;

namespace detail {
template <class Element, class Device>
class multiply_layer;

template <class Element, class Layout, class Device>
struct multiply_layer_of {
  static_assert(Layout::order[0] == axis::n && (Layout::order[1] == axis::c || Layout::order[3] == axis::c),
                "gradus: multiply needs a layout with channels just after the images or last");
  using type = layer_in_order<multiply, multiply_layer<Element, Device>, Layout>;
};
}  // namespace detail

/// Options of a product of two values: element by element if they have one shape, else one of them, in any order, has
/// one number for each channel, as in squeeze-and-excitation (Hu et al. 2018).
///
///   symbol | meaning  | shape
///   a      | input    | (N, C, H, W)
///   b      | input    | (N, C, H, W) or (N, C, 1, 1)
///   y      | a * b    | (N, C, H, W)
///
/// Gradients for g = dL/dy, overwritten or accumulated:
///   dL/da = g * b                                  (N, C, H, W)
///   dL/db = g * a, summed over h and w if b has one number for each channel
///
/// @throws shape_error (network::add) when the shapes are neither equal nor as above
struct multiply {
  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  using layer = typename detail::multiply_layer_of<Element, Layout, Device>::type;
};

namespace detail {

/// The part of the layer that does not depend on element type, layout and device.
class multiply_base : public layer_base {
 public:
  multiply_base(const multiply& /*options*/, const axis_order& order) : channels_last_{order[3] == axis::c} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "multiply"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    require_inputs(kind(), 2, inputs.size());
    for (images_ = 0; images_ < 2; ++images_) {
      shape_ = inputs[images_];
      const value_shape& other = inputs[1 - images_];
      by_channel_ = shape_ != other;
      if (!by_channel_ || (!shape_.flattened && !other.flattened && other == value_shape{shape_.channels, 1, 1})) {
        return shape_;
      }
    }
    raise<shape_error>(kind(), "two values of one shape, or an image (C, H, W) and a vector (C)",
                       {describe(inputs[0]), " and ", describe(inputs[1])},
                       "a factor for each channel is a vector: end its branch with nn::global_average_pool2d{} or "
                       "nn::dense{.out_features = C}");
  }

  void attributes(attribute_visitor& visit) const override { visit.operation(kind()); }

  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_output = false, .recomputable = true};
  }

 protected:
  [[nodiscard]] kernels::scale_channels_shape shape(index_t batch) const {
    if (!by_channel_) {
      return {.examples = batch, .channels = shape_.size(), .pixels = 1, .channels_last = channels_last_};
    }
    return {.examples = batch,
            .channels = shape_.channels,
            .pixels = shape_.height * shape_.width,
            .channels_last = channels_last_};
  }

  bool channels_last_;
  value_shape shape_;        // infer sets these
  std::size_t images_ = 0;   // the input with the shape of the output; the other one has the factors
  bool by_channel_ = false;  // one factor for each channel
};

template <class Element, class Device>
class multiply_layer : public layer_passes<Element, Device>, public multiply_base {
  static_assert(kernels::explain_scale_channels<Device, Element>());
  using passes = layer_passes<Element, Device>;

 public:
  using multiply_base::multiply_base;

  void forward(const typename passes::forward_call& call) override {
    scale_channels_forward(call.device, this->shape(call.output.examples()), call.inputs[this->images_].data(),
                           call.inputs[1 - this->images_].data(), call.output.data());
  }

  void backward(const typename passes::backward_call& call) override {
    const auto& dx = call.input_gradients[this->images_];
    const auto& dfactors = call.input_gradients[1 - this->images_];
    scale_channels_backward(
        call.device, this->shape(call.output_gradient.examples()), call.inputs[this->images_].data(),
        call.inputs[1 - this->images_].data(), call.output_gradient.data(),
        kernels::scale_channels_gradients<Element>{.dx = dx.images.data(),
                                                   .accumulate_dx = dx.epilogue.accumulate,
                                                   .dfactors = dfactors.images.data(),
                                                   .accumulate_dfactors = dfactors.epilogue.accumulate});
  }
};

}  // namespace detail
}  // namespace gradus::nn

GRADUS_COMPILED_LAYER(::gradus::nn::multiply)

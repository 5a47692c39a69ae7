// SPDX-License-Identifier: BSL-1.0
//
// The layer pad_channels: channels of zeros before and after the channels of a value.
#pragma once

#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/kernels/concat.hpp"
#include "gradus/nn/layer.hpp"

namespace gradus::nn {

/// Options of zero channels around the channels of an image: the shortcut without parameters where a residual network
/// widens (He et al. 2016, section 3.3, option A).
///
///   symbol | meaning | shape
///   x      | input   | (N, C, H, W)
///   y      | output  | (N, before + C + after, H, W)
///
/// Gradients for g = dL/dy: dL/dx = channels [before, before + C) of g   (N, C, H, W)   overwritten or accumulated
///
/// @throws configuration_error (network::add) when before or after is negative
/// @throws shape_error (network::add) for a flattened image
struct pad_channels {
  index_t before = 0;  ///< channels before those of x
  index_t after = 0;   ///< channels after those of x

  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  class layer;
};

namespace detail {

/// The part of the layer that does not depend on element type, layout and device.
class pad_channels_base : public layer_base {
 public:
  explicit pad_channels_base(const pad_channels& options) : options_{options} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "pad_channels"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    require_inputs(kind(), 1, inputs.size());
    require_at_least(kind(), "before", 0, options_.before);
    require_at_least(kind(), "after", 0, options_.after);
    require_few_channels(kind(), options_.before);
    require_few_channels(kind(), options_.after);
    require_image(kind(), inputs[0], "pad before nn::flatten");
    value_shape out = inputs[0];
    out.channels += options_.before + options_.after;
    return out;
  }

  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_inputs = false, .backward_reads_output = false, .recomputable = true};
  }

  void attributes(attribute_visitor& visit) const override {
    visit.operation(kind());
    visit.integer("before", options_.before);
    visit.integer("after", options_.after);
  }

 protected:
  pad_channels options_;
};

}  // namespace detail

template <class Element, class Layout, class Device>
class pad_channels::layer final : public nn::layer<Element, Layout, Device, detail::pad_channels_base> {
  static_assert(kernels::explain_copy_channels<Device, Element, Layout>());
  using base = nn::layer<Element, Layout, Device, detail::pad_channels_base>;

 public:
  using base::base;

  void forward(const typename base::forward_call& call) override {
    call.device.fill_zero(call.output.data(), static_cast<std::size_t>(call.output.size()) * sizeof(Element));
    copy_channels(call.device, base::view(call.inputs[0]), index_t{0}, base::view(call.output), this->options_.before,
                  call.inputs[0].extent(1), false);
  }

  void backward(const typename base::backward_call& call) override {
    if (const auto& dx = call.input_gradients[0]; dx.needed()) {
      copy_channels(call.device, base::view(call.output_gradient), this->options_.before, base::view(dx.images),
                    index_t{0}, dx.images.extent(1), dx.epilogue.accumulate);
    }
  }
};

}  // namespace gradus::nn

GRADUS_COMPILED_LAYER(::gradus::nn::pad_channels)

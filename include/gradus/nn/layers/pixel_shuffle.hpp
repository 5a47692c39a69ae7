// SPDX-License-Identifier: BSL-1.0
//
// The layers pixel_shuffle and pixel_unshuffle: channels become pixels, and back.
#pragma once

#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/nn/detail/shaping/memory_order.hpp"
#include "gradus/nn/detail/shaping/strided_layer.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/layers/padding.hpp"

namespace gradus::nn {

namespace detail {
class pixel_shuffle_base;
class pixel_unshuffle_base;
}  // namespace detail

/// Options of a pixel shuffle with a factor r, as torch.nn.PixelShuffle (Shi et al. 2016): r * r channels of a pixel
/// become a square of r x r pixels.
///
///   y(n, c, h * r + i, w * r + j) = x(n, (c * r + i) * r + j, h, w)
///
///   symbol | meaning | shape
///   x      | input   | (N, C * r * r, H, W)
///   y      | output  | (N, C, H * r, W * r)
///
/// Gradients for g = dL/dy: dL/dx is g in the order of x; overwritten or accumulated.
///
/// @throws configuration_error (network::add) when the factor is below 1
/// @throws shape_error (network::add) for a flattened image, or when r * r does not divide the channels
struct pixel_shuffle {
  index_t factor = 2;  ///< r

  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  using layer =
      detail::layer_in_order<pixel_shuffle, detail::strided_layer<Element, Device, detail::pixel_shuffle_base>, Layout>;
};

/// Options of the inverse of pixel_shuffle, as torch.nn.PixelUnshuffle: a square of r x r pixels becomes r * r channels
/// of one pixel.
///
///   y(n, (c * r + i) * r + j, h, w) = x(n, c, h * r + i, w * r + j)
///
///   symbol | meaning | shape
///   x      | input   | (N, C, H * r, W * r)
///   y      | output  | (N, C * r * r, H, W)
///
/// Gradients for g = dL/dy: dL/dx is g in the order of x; overwritten or accumulated.
///
/// @throws configuration_error (network::add) when the factor is below 1
/// @throws shape_error (network::add) for a flattened image, or when r does not divide height and width
struct pixel_unshuffle {
  index_t factor = 2;  ///< r

  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  using layer = detail::layer_in_order<pixel_unshuffle,
                                       detail::strided_layer<Element, Device, detail::pixel_unshuffle_base>, Layout>;
};

namespace detail {

/// The part of the layer that does not depend on element type, layout and device.
class pixel_shuffle_base : public strided_base {
 public:
  pixel_shuffle_base(const pixel_shuffle& options, const axis_order& order)
      : strided_base{order}, factor_{options.factor} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "pixel_shuffle"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    require_inputs(kind(), 1, inputs.size());
    require_at_least(kind(), "factor", 1, factor_);
    require_few_steps(kind(), "factor", factor_, factor_);
    const value_shape& in = inputs[0];
    require_image(kind(), in, "shuffle before nn::flatten");
    if (in.channels % (factor_ * factor_) != 0) {
      raise<shape_error>(kind(), {"channels that ", factor_ * factor_, ", the square of the factor, divides"},
                         describe(in));
    }
    small_ = {in.channels / (factor_ * factor_), in.height, in.width};
    return {small_.channels, small_.height * factor_, small_.width * factor_};
  }

  void attributes(attribute_visitor& visit) const override {
    visit.operation(kind());
    visit.integer("factor", factor_);
  }

 protected:
  using strided_base::move;

  [[nodiscard]] strided_move move(index_t batch, const axis_strides& from, const axis_strides& to) const override {
    strided_move result;
    result.shape.axes = {{{batch, from[0], to[0]},
                          {small_.channels, from[1] * factor_ * factor_, to[1]},
                          {factor_, from[1] * factor_, to[2]},
                          {factor_, from[1], to[3]},
                          {small_.height, from[2], to[2] * factor_},
                          {small_.width, from[3], to[3] * factor_}}};
    return result;
  }

 private:
  index_t factor_;
  value_shape small_;  // channels of the output, height and width of the input; infer sets it
};

/// The part of the layer that does not depend on element type, layout and device.
class pixel_unshuffle_base : public strided_base {
 public:
  pixel_unshuffle_base(const pixel_unshuffle& options, const axis_order& order)
      : strided_base{order}, factor_{options.factor} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "pixel_unshuffle"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    require_inputs(kind(), 1, inputs.size());
    require_at_least(kind(), "factor", 1, factor_);
    require_few_steps(kind(), "factor", factor_, factor_);
    const value_shape& in = inputs[0];
    require_image(kind(), in, "unshuffle before nn::flatten");
    if (in.height % factor_ != 0 || in.width % factor_ != 0) {
      raise<shape_error>(kind(), {"a height and a width that the factor ", factor_, " divides"}, describe(in));
    }
    small_ = {in.channels, in.height / factor_, in.width / factor_};
    return {small_.channels * factor_ * factor_, small_.height, small_.width};
  }

  void attributes(attribute_visitor& visit) const override {
    visit.operation(kind());
    visit.integer("factor", factor_);
  }

 protected:
  using strided_base::move;

  [[nodiscard]] strided_move move(index_t batch, const axis_strides& from, const axis_strides& to) const override {
    strided_move result;
    result.shape.axes = {{{batch, from[0], to[0]},
                          {small_.channels, from[1], to[1] * factor_ * factor_},
                          {factor_, from[2], to[1] * factor_},
                          {factor_, from[3], to[1]},
                          {small_.height, from[2] * factor_, to[2]},
                          {small_.width, from[3] * factor_, to[3]}}};
    return result;
  }

 private:
  index_t factor_;
  value_shape small_;  // channels of the input, height and width of the output; infer sets it
};

}  // namespace detail
}  // namespace gradus::nn

GRADUS_COMPILED_LAYER(::gradus::nn::pixel_shuffle)
GRADUS_COMPILED_LAYER(::gradus::nn::pixel_unshuffle)

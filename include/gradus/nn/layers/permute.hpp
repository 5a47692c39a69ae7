// SPDX-License-Identifier: BSL-1.0
//
// The layer permute: channels, rows and columns exchanged.
#pragma once

#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/layout/layout_policy.hpp"
#include "gradus/nn/detail/shaping/memory_order.hpp"
#include "gradus/nn/detail/shaping/strided_layer.hpp"
#include "gradus/nn/layer.hpp"

namespace gradus::nn {

namespace detail {
class permute_base;
}  // namespace detail

/// Options of a permutation of the axes of an image. The channels of the output are axis axes[0] of the input, its rows
/// axis axes[1], its columns axis axes[2]: torch.permute(x, (0, a, b, c)).
///
///   symbol | meaning | shape
///   x      | input   | (N, C, H, W)
///   y      | output  | (N, extents of axes[0], axes[1], axes[2])
///
/// Gradients for g = dL/dy: dL/dx is g in the order of x   (N, C, H, W)   overwritten or accumulated
///
/// @throws configuration_error (network::add) when axes does not name c, h and w once each
/// @throws shape_error (network::add) for a flattened image
struct permute {
  std::array<axis, 3> axes{axis::c, axis::h, axis::w};  ///< of the input, for the channels, rows, columns of the output

  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  using layer = detail::layer_in_order<permute, detail::strided_layer<Element, Device, detail::permute_base>, Layout>;
};

namespace detail {

/// The part of the layer that does not depend on element type, layout and device.
class permute_base : public strided_base {
 public:
  permute_base(const permute& options, const axis_order& order) : strided_base{order}, axes_{options.axes} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "permute"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    require_inputs(kind(), 1, inputs.size());
    unsigned seen = 0;
    for (const axis each : axes_) {
      seen |= 1U << static_cast<unsigned>(each);
    }
    if (seen != 0b1110U) {
      raise<configuration_error>(kind(), "axes that name c, h and w once each", "other axes",
                                 "the images of the batch stay where they are: axis::n is not named");
    }
    require_image(kind(), inputs[0], "permute before nn::flatten");
    const gradus::extents<4> in = inputs[0].batch(1);
    extents_ = {in[static_cast<int>(axes_[0])], in[static_cast<int>(axes_[1])], in[static_cast<int>(axes_[2])]};
    return extents_;
  }

  void attributes(attribute_visitor& visit) const override {
    visit.operation(kind());
    const auto number = [](axis each) { return static_cast<index_t>(each); };
    visit.integers("axes", std::array{number(axes_[0]), number(axes_[1]), number(axes_[2])});
  }

 protected:
  using strided_base::move;

  [[nodiscard]] strided_move move(index_t batch, const axis_strides& from, const axis_strides& to) const override {
    strided_move result;
    result.shape.axes[0] = {batch, from[0], to[0]};
    result.shape.axes[1] = {extents_.channels, from[number_of(axes_[0])], to[1]};
    result.shape.axes[2] = {extents_.height, from[number_of(axes_[1])], to[2]};
    result.shape.axes[3] = {extents_.width, from[number_of(axes_[2])], to[3]};
    return result;
  }

 private:
  std::array<axis, 3> axes_;
  value_shape extents_;  // of the output; infer sets it
};

}  // namespace detail
}  // namespace gradus::nn

GRADUS_COMPILED_LAYER(::gradus::nn::permute)

// SPDX-License-Identifier: BSL-1.0
//
// The layers adaptive_average_pool2d and adaptive_max_pool2d: poolings whose outputs have given extents.
#pragma once

#include <algorithm>    // std::max
#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/pool2d.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/layers/padding.hpp"
#include "gradus/nn/layers/pool2d.hpp"

namespace gradus::nn {

/// Options of adaptive average pooling: means over windows that divide an image of any size.
/// torch.nn.AdaptiveAvgPool2d.
///
///   symbol | meaning | shape
///   x      | input   | (N, C, H, W)
///   y      | output  | (N, C, P, Q)   the output's extents
///
/// Output (p, q) is the mean of rows floor(p * H / P) to ceil((p + 1) * H / P) - 1, and columns likewise. Windows
/// overlap where P does not divide H.
///
/// Gradients for g = dL/dy: dL/dx (N, C, H, W) spreads each g evenly over the entries of its mean.
///
/// @throws configuration_error (network::add) when the output is not at least 1 x 1
/// @throws shape_error (network::add) for a flattened image
struct adaptive_average_pool2d {
  size2d output = 1;  ///< rows and columns of the output

  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  class layer;
};

/// Options of adaptive max pooling: the largest entries of the windows of nn::adaptive_average_pool2d.
/// torch.nn.AdaptiveMaxPool2d.
///
/// Gradients for g = dL/dy: dL/dx (N, C, H, W) sums each g at the first largest entry, in row order, of its window.
///
/// @throws configuration_error (network::add) when the output is not at least 1 x 1, or a window has more than 256
///         elements
/// @throws shape_error (network::add) for a flattened image
struct adaptive_max_pool2d {
  size2d output = 1;  ///< rows and columns of the output

  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  class layer;
};

namespace detail {

/// The windows of an adaptive pooling along one axis.
struct adaptive_axis {
  index_t kernel = 0;  ///< the largest window
  index_t stride = 0;  ///< at least the distance from one window to the next
};

[[nodiscard]] inline adaptive_axis adaptive_windows(index_t input, index_t output) noexcept {
  const index_t stride = (input + output - 1) / output;
  if (input % output == 0) {
    return {stride, stride};
  }
  index_t largest = 0;
  for (index_t p = 0; p < output; ++p) {
    largest = std::max(largest, ((p + 1) * input + output - 1) / output - p * input / output);
  }
  return {largest, stride};
}

/// The geometry of an adaptive pooling; checks its options. Windows of the same extents are those of an ordinary one.
inline kernels::pool2d_geometry adaptive_geometry(std::string_view kind, std::span<const value_shape> inputs,
                                                  size2d output) {
  require_inputs(kind, 1, inputs.size());
  const value_shape& in = inputs[0];
  require_image(kind, in, "put the pooling before nn::flatten");
  if (output.height < 1 || output.width < 1) {
    raise<configuration_error>(kind, "an output of at least 1 x 1", {output.height, " x ", output.width});
  }
  require_few_steps(kind, "output", output.height, output.width);
  require_few_positions(kind, in.channels, {in.height, in.width}, output, {1, 1}, {1, 1});
  const adaptive_axis rows = adaptive_windows(in.height, output.height);
  const adaptive_axis columns = adaptive_windows(in.width, output.width);
  return {.channels = in.channels,
          .in_height = in.height,
          .in_width = in.width,
          .out_height = output.height,
          .out_width = output.width,
          .kernel_height = rows.kernel,
          .kernel_width = columns.kernel,
          .stride_height = rows.stride,
          .stride_width = columns.stride,
          .adaptive = in.height % output.height != 0 || in.width % output.width != 0};
}

/// The part of the layer that does not depend on element type, layout and device.
class adaptive_average_pool2d_base : public pooling_base {
 public:
  explicit adaptive_average_pool2d_base(const adaptive_average_pool2d& options) : options_{options} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "adaptive_average_pool2d"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    geometry_ = adaptive_geometry(kind(), inputs, options_.output);
    return pooled_shape(geometry_);
  }

  void attributes(attribute_visitor& visit) const override { visit.operation(kind()); }

 protected:
  [[nodiscard]] static bool counts_padding() noexcept { return false; }

 private:
  adaptive_average_pool2d options_;
};

/// The part of the layer that does not depend on element type, layout and device.
class adaptive_max_pool2d_base : public pooling_base {
 public:
  explicit adaptive_max_pool2d_base(const adaptive_max_pool2d& options) : options_{options} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "adaptive_max_pool2d"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    geometry_ = adaptive_geometry(kind(), inputs, options_.output);
    if (geometry_.kernel_height * geometry_.kernel_width > 256) {
      raise<configuration_error>(kind(), "windows of at most 256 elements",
                                 {geometry_.kernel_height, " x ", geometry_.kernel_width},
                                 "put nn::max_pool2d before the layer, or ask for a larger output");
    }
    return pooled_shape(geometry_);
  }

  void attributes(attribute_visitor& visit) const override { visit.operation(kind()); }

 private:
  adaptive_max_pool2d options_;
};

}  // namespace detail

template <class Element, class Layout, class Device>
class adaptive_average_pool2d::layer final
    : public detail::average_pooling<Element, Layout, Device, detail::adaptive_average_pool2d_base> {
 public:
  using detail::average_pooling<Element, Layout, Device, detail::adaptive_average_pool2d_base>::average_pooling;
};

template <class Element, class Layout, class Device>
class adaptive_max_pool2d::layer final
    : public detail::max_pooling<Element, Layout, Device, detail::adaptive_max_pool2d_base> {
 public:
  using detail::max_pooling<Element, Layout, Device, detail::adaptive_max_pool2d_base>::max_pooling;
};

}  // namespace gradus::nn

GRADUS_COMPILED_LAYER(::gradus::nn::adaptive_average_pool2d)
GRADUS_COMPILED_LAYER(::gradus::nn::adaptive_max_pool2d)

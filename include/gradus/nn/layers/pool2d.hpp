// SPDX-License-Identifier: BSL-1.0
//
// The layers max_pool2d, average_pool2d and global_average_pool2d.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t
#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/kernels/pool2d.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/padding.hpp"

namespace gradus::nn {

/// Options of max pooling: the largest entry under the kernel, channel by channel.
///
///   symbol | meaning | shape
///   x      | input   | (N, C, H, W)
///   y      | output  | (N, C, P, Q)
///
/// Gradients for g = dL/dy: dL/dx (N, C, H, W) sums each g at the first largest entry, in row order, under its kernel.
///
/// @throws configuration_error (network::add) when kernel, stride or padding is not possible, or the kernel has more
///         than 256 elements
/// @throws shape_error (network::add) for a flattened image, or when the kernel does not fit the padded image
struct max_pool2d {
  size2d kernel = 2;                           ///< rows and columns of the kernel
  size2d stride = stride_of_kernel;            ///< rows and columns from one output to the next
  nn::padding padding = nn::padding::valid();  ///< around the input; a maximum never takes it

  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  class layer;
};

/// Options of average pooling: the mean under the kernel, channel by channel.
///
///   symbol | meaning | shape
///   x      | input   | (N, C, H, W)
///   y      | output  | (N, C, P, Q)
///
/// Gradients for g = dL/dy: dL/dx (N, C, H, W) spreads each g evenly over the entries of its mean.
///
/// @throws configuration_error (network::add) when kernel, stride or padding is not possible
/// @throws shape_error (network::add) for a flattened image, or when the kernel does not fit the padded image
struct average_pool2d {
  size2d kernel = 2;                           ///< rows and columns of the kernel
  size2d stride = stride_of_kernel;            ///< rows and columns from one output to the next
  nn::padding padding = nn::padding::valid();  ///< zeros around the input
  bool count_padding = false;                  ///< divide by the whole kernel area, also at the border of the image

  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  class layer;
};

/// Options of global average pooling: the mean of every channel over the whole image, (N, C, H, W) to (N, C, 1, 1).
/// Gradients for g = dL/dy: dL/dx = g / (H * W)   (N, C, H, W)
struct global_average_pool2d {
  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  class layer;
};

namespace detail {

/// The extents and padding of a pooling; checks its options.
inline kernels::pool2d_geometry pool_geometry(std::string_view kind, std::span<const value_shape> inputs, size2d kernel,
                                              size2d stride, padding pad) {
  require_inputs(kind, 1, inputs.size());
  const value_shape& in = inputs[0];
  require_image(kind, in, "put the pooling before nn::flatten");
  const auto window = slide(kind, {in.height, in.width}, kernel, stride, pad);
  const kernels::pool2d_geometry geometry{.channels = in.channels,
                                          .in_height = in.height,
                                          .in_width = in.width,
                                          .out_height = window.out_height,
                                          .out_width = window.out_width,
                                          .kernel_height = kernel.height,
                                          .kernel_width = kernel.width,
                                          .stride_height = stride.height,
                                          .stride_width = stride.width,
                                          .pad_top = window.pad_top,
                                          .pad_left = window.pad_left};
  require_few_positions(kind, in.channels, {in.height, in.width}, {window.out_height, window.out_width}, stride,
                        kernel);
  const bool before = window.pad_top >= kernel.height || window.pad_left >= kernel.width;
  const bool after = (window.out_height - 1) * stride.height - window.pad_top >= in.height ||
                     (window.out_width - 1) * stride.width - window.pad_left >= in.width;
  if (before || after) {
    raise<configuration_error>(kind, "kernel positions that each cover at least one element of the image",
                               "padding as large as the kernel");
  }
  return geometry;
}

/// The options of a pooling with the stride that it has.
template <class Options>
[[nodiscard]] Options with_stride(Options options) {
  if (options.stride == stride_of_kernel) {
    options.stride = options.kernel;
  }
  return options;
}

inline value_shape pooled_shape(const kernels::pool2d_geometry& geometry) {
  return {geometry.channels, geometry.out_height, geometry.out_width};
}

/// The part of the layer that does not depend on element type, layout and device.
class max_pool2d_base : public layer_base {
 public:
  explicit max_pool2d_base(const max_pool2d& options) : options_{with_stride(options)} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "max_pool2d"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    geometry_ = pool_geometry(kind(), inputs, options_.kernel, options_.stride, options_.padding);
    if (geometry_.kernel_height * geometry_.kernel_width > 256) {
      raise<configuration_error>(kind(), "a kernel of at most 256 elements",
                                 {geometry_.kernel_height * geometry_.kernel_width});
    }
    return pooled_shape(geometry_);
  }

  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_inputs = false,
            .backward_reads_output = false,
            .masks_input_gradients = true,
            .recomputable = true};
  }

  /// What the layer was made of, with a stride.
  [[nodiscard]] const max_pool2d& options() const noexcept { return options_; }

 protected:
  /// Bytes of the state: one byte for each output, the index of the maximum under the kernel.
  [[nodiscard]] std::size_t state_bytes(index_t batch) const {
    return static_cast<std::size_t>(geometry_.output(batch).size());
  }

  max_pool2d options_;
  kernels::pool2d_geometry geometry_;
};

}  // namespace detail

template <class Element, class Layout, class Device>
class max_pool2d::layer final : public nn::layer<Element, Layout, Device, detail::max_pool2d_base> {
  static_assert(kernels::explain_max_pool2d<Device, Element, Layout>());
  using base = nn::layer<Element, Layout, Device, detail::max_pool2d_base>;

 public:
  using base::base;

  [[nodiscard]] layer_memory memory(Device& /*device*/, index_t batch) const override {
    return {.state = this->state_bytes(batch), .workspace = 0};
  }

  [[nodiscard]] layer_memory inference_memory(Device& /*device*/, index_t /*batch*/, bool /*prepared*/) const override {
    return {};
  }

  void forward(const typename base::forward_call& call) override {
    max_pool2d_forward(call.device, this->geometry_, base::view(call.inputs[0]), base::view(call.output),
                       call.context.training ? reinterpret_cast<std::uint8_t*>(call.state.data()) : nullptr);
  }

  void backward(const typename base::backward_call& call) override {
    if (const auto& dx = call.input_gradients[0]; dx.needed()) {
      max_pool2d_backward(call.device, this->geometry_, base::view(call.output_gradient),
                          reinterpret_cast<const std::uint8_t*>(call.state.data()), base::view(dx.images), dx.epilogue);
    }
  }
};

namespace detail {

/// The part of the layer that does not depend on element type, layout and device.
class average_pool2d_base : public layer_base {
 public:
  explicit average_pool2d_base(const average_pool2d& options) : options_{with_stride(options)} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "average_pool2d"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    geometry_ = pool_geometry(kind(), inputs, options_.kernel, options_.stride, options_.padding);
    return pooled_shape(geometry_);
  }

  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_inputs = false,
            .backward_reads_output = false,
            .masks_input_gradients = true,
            .recomputable = true};
  }

  /// What the layer was made of, with a stride.
  [[nodiscard]] const average_pool2d& options() const noexcept { return options_; }

 protected:
  average_pool2d options_;
  kernels::pool2d_geometry geometry_;
};

}  // namespace detail

template <class Element, class Layout, class Device>
class average_pool2d::layer final : public nn::layer<Element, Layout, Device, detail::average_pool2d_base> {
  static_assert(kernels::explain_average_pool2d<Device, Element, Layout>());
  using base = nn::layer<Element, Layout, Device, detail::average_pool2d_base>;

 public:
  using base::base;

  void forward(const typename base::forward_call& call) override {
    average_pool2d_forward(call.device, this->geometry_, base::view(call.inputs[0]), base::view(call.output),
                           this->options_.count_padding);
  }

  void backward(const typename base::backward_call& call) override {
    if (const auto& dx = call.input_gradients[0]; dx.needed()) {
      average_pool2d_backward(call.device, this->geometry_, base::view(call.output_gradient), base::view(dx.images),
                              this->options_.count_padding, dx.epilogue);
    }
  }
};

namespace detail {

/// The part of the layer that does not depend on element type, layout and device.
class global_average_pool2d_base : public layer_base {
 public:
  explicit global_average_pool2d_base(const global_average_pool2d& /*options*/) {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "global_average_pool2d"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    require_inputs(kind(), 1, inputs.size());
    const size2d image{inputs[0].height, inputs[0].width};
    geometry_ = pool_geometry(kind(), inputs, image, image, padding::valid());
    return pooled_shape(geometry_);
  }

  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_inputs = false,
            .backward_reads_output = false,
            .masks_input_gradients = true,
            .recomputable = true};
  }

 protected:
  kernels::pool2d_geometry geometry_;
};

}  // namespace detail

template <class Element, class Layout, class Device>
class global_average_pool2d::layer final
    : public nn::layer<Element, Layout, Device, detail::global_average_pool2d_base> {
  static_assert(kernels::explain_average_pool2d<Device, Element, Layout>());
  using base = nn::layer<Element, Layout, Device, detail::global_average_pool2d_base>;

 public:
  using base::base;

  void forward(const typename base::forward_call& call) override {
    average_pool2d_forward(call.device, this->geometry_, base::view(call.inputs[0]), base::view(call.output), false);
  }

  void backward(const typename base::backward_call& call) override {
    if (const auto& dx = call.input_gradients[0]; dx.needed()) {
      average_pool2d_backward(call.device, this->geometry_, base::view(call.output_gradient), base::view(dx.images),
                              false, dx.epilogue);
    }
  }
};

}  // namespace gradus::nn

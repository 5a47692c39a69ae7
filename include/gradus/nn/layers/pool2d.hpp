// SPDX-License-Identifier: BSL-1.0
//
// The layers max_pool2d, average_pool2d and global_average_pool2d.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t
#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/core/compiled.hpp"
#include "gradus/kernels/pool2d.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/layers/padding.hpp"

namespace gradus::nn {

/// Options of max pooling: the largest entry under the kernel, channel by channel.
///
///   symbol | meaning | shape
///   x      | input   | (N, C, H, W)
///   y      | output  | (N, C, P, Q)   P = floor((H + top + bottom - reach) / stride) + 1, as Q for columns, where
///          |         |                reach = (kernel - 1) * dilation + 1
///
/// With ceil_mode the quotient is rounded up, so that the last window may reach over the padding; a window that would
/// begin behind the image is left out, as in PyTorch. padding::same() has the same windows with and without it.
///
/// Gradients for g = dL/dy: dL/dx (N, C, H, W) sums each g at the first largest entry, in row order, under its kernel.
///
/// @throws configuration_error (network::add) when kernel, stride, padding or dilation is not possible, the kernel has
///         more than 256 elements, or a window has none of the image
/// @throws shape_error (network::add) for a flattened image, or when the kernel does not fit the padded image
struct max_pool2d {
  size2d kernel = 2;                           ///< rows and columns of the kernel
  size2d stride = stride_of_kernel;            ///< rows and columns from one output to the next
  nn::padding padding = nn::padding::valid();  ///< around the input; a maximum never takes it
  size2d dilation = 1;                         ///< rows and columns from one entry of the kernel to the next
  bool ceil_mode = false;                      ///< round the output extents up

  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  class layer;
};

/// Options of average pooling: the mean under the kernel, channel by channel.
///
///   symbol | meaning | shape
///   x      | input   | (N, C, H, W)
///   y      | output  | (N, C, P, Q)   P = floor((H + top + bottom - kernel) / stride) + 1, as Q for columns
///
/// ceil_mode is as that of nn::max_pool2d. The part of a window that is beyond the padding never counts, also with
/// count_padding.
///
/// Gradients for g = dL/dy: dL/dx (N, C, H, W) spreads each g evenly over the entries of its mean.
///
/// @throws configuration_error (network::add) when kernel, stride or padding is not possible
/// @throws shape_error (network::add) for a flattened image, or when the kernel does not fit the padded image
struct average_pool2d {
  size2d kernel = 2;                           ///< rows and columns of the kernel
  size2d stride = stride_of_kernel;            ///< rows and columns from one output to the next
  nn::padding padding = nn::padding::valid();  ///< zeros around the input
  bool count_padding = false;                  ///< count the zeros of the padding, too
  bool ceil_mode = false;                      ///< round the output extents up

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

/// What a pooling is made of, with the stride that it has.
struct pool_options {
  size2d kernel;
  size2d stride;
  nn::padding padding = nn::padding::valid();
  size2d dilation = 1;
  bool ceil_mode = false;
};

/// Throws unless all windows along one axis of an image have an entry of it.
void require_filled_windows(std::string_view kind, index_t input, index_t outputs, index_t kernel, index_t stride,
                            index_t before, index_t dilation);

/// The outputs along one axis when their number is rounded up: none begins behind the image.
[[nodiscard]] inline index_t rounded_up(index_t padded, index_t reach, index_t stride, index_t last_begin) noexcept {
  const index_t outputs = (padded - reach + stride - 1) / stride + 1;
  return (outputs - 1) * stride >= last_begin ? outputs - 1 : outputs;
}

/// The extents and padding of a pooling; checks its options.
kernels::pool2d_geometry pool_geometry(std::string_view kind, std::span<const value_shape> inputs,
                                       const pool_options& o);

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

/// What poolings have in common.
class pooling_base : public layer_base {
 public:
  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_inputs = false,
            .backward_reads_output = false,
            .masks_input_gradients = true,
            .recomputable = true};
  }

 protected:
  kernels::pool2d_geometry geometry_;
};

/// A layer of maxima under kernels. @tparam Base  derives from pooling_base
template <class Element, class Layout, class Device, class Base>
class max_pooling : public nn::layer<Element, Layout, Device, Base> {
  static_assert(kernels::explain_max_pool2d<Device, Element, Layout>());
  using base = nn::layer<Element, Layout, Device, Base>;

 public:
  using base::base;

  /// The state is one byte for each output, the index of the maximum under the kernel.
  [[nodiscard]] layer_memory memory(Device& /*device*/, index_t batch) const override {
    return {.state = static_cast<std::size_t>(this->geometry_.output(batch).size()), .workspace = 0};
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

/// A layer of means under kernels. @tparam Base  derives from pooling_base and has counts_padding()
template <class Element, class Layout, class Device, class Base>
class average_pooling : public nn::layer<Element, Layout, Device, Base> {
  static_assert(kernels::explain_average_pool2d<Device, Element, Layout>());
  using base = nn::layer<Element, Layout, Device, Base>;

 public:
  using base::base;

  void forward(const typename base::forward_call& call) override {
    average_pool2d_forward(call.device, this->geometry_, base::view(call.inputs[0]), base::view(call.output),
                           this->counts_padding());
  }

  void backward(const typename base::backward_call& call) override {
    if (const auto& dx = call.input_gradients[0]; dx.needed()) {
      average_pool2d_backward(call.device, this->geometry_, base::view(call.output_gradient), base::view(dx.images),
                              this->counts_padding(), dx.epilogue);
    }
  }
};

/// The part of the layer that does not depend on element type, layout and device.
class max_pool2d_base : public pooling_base {
 public:
  explicit max_pool2d_base(const max_pool2d& options) : options_{with_stride(options)} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "max_pool2d"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    require_few_steps(kind(), "kernel", options_.kernel.height, options_.kernel.width);
    geometry_ = pool_geometry(kind(), inputs,
                              {.kernel = options_.kernel,
                               .stride = options_.stride,
                               .padding = options_.padding,
                               .dilation = options_.dilation,
                               .ceil_mode = options_.ceil_mode});
    if (geometry_.kernel_height * geometry_.kernel_width > 256) {
      raise<configuration_error>(kind(), "a kernel of at most 256 elements",
                                 {geometry_.kernel_height * geometry_.kernel_width});
    }
    return pooled_shape(geometry_);
  }

  void attributes(attribute_visitor& visit) const override {
    visit.operation(kind());
    visit.size("kernel", options_.kernel);
    visit.size("stride", options_.stride);
    visit.padding("padding", options_.padding);
    visit.size("dilation", options_.dilation);
    visit.integer("ceil_mode", options_.ceil_mode);
  }

 protected:
  max_pool2d options_;
};

}  // namespace detail

template <class Element, class Layout, class Device>
class max_pool2d::layer final : public detail::max_pooling<Element, Layout, Device, detail::max_pool2d_base> {
 public:
  using detail::max_pooling<Element, Layout, Device, detail::max_pool2d_base>::max_pooling;
};

namespace detail {

/// The part of the layer that does not depend on element type, layout and device.
class average_pool2d_base : public pooling_base {
 public:
  explicit average_pool2d_base(const average_pool2d& options) : options_{with_stride(options)} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "average_pool2d"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    require_few_steps(kind(), "kernel", options_.kernel.height, options_.kernel.width);
    geometry_ = pool_geometry(kind(), inputs,
                              {.kernel = options_.kernel,
                               .stride = options_.stride,
                               .padding = options_.padding,
                               .ceil_mode = options_.ceil_mode});
    return pooled_shape(geometry_);
  }

  void attributes(attribute_visitor& visit) const override {
    visit.operation(kind());
    visit.size("kernel", options_.kernel);
    visit.size("stride", options_.stride);
    visit.padding("padding", options_.padding);
    visit.integer("count_padding", options_.count_padding);
    visit.integer("ceil_mode", options_.ceil_mode);
  }

 protected:
  [[nodiscard]] bool counts_padding() const noexcept { return options_.count_padding; }

  average_pool2d options_;
};

}  // namespace detail

template <class Element, class Layout, class Device>
class average_pool2d::layer final
    : public detail::average_pooling<Element, Layout, Device, detail::average_pool2d_base> {
 public:
  using detail::average_pooling<Element, Layout, Device, detail::average_pool2d_base>::average_pooling;
};

namespace detail {

/// The part of the layer that does not depend on element type, layout and device.
class global_average_pool2d_base : public pooling_base {
 public:
  explicit global_average_pool2d_base(const global_average_pool2d& /*options*/) {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "global_average_pool2d"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    require_inputs(kind(), 1, inputs.size());
    const size2d image{inputs[0].height, inputs[0].width};
    geometry_ = pool_geometry(kind(), inputs, {.kernel = image, .stride = image});
    return pooled_shape(geometry_);
  }

  void attributes(attribute_visitor& visit) const override { visit.operation("adaptive_average_pool2d"); }

 protected:
  [[nodiscard]] static bool counts_padding() noexcept { return false; }
};

}  // namespace detail

template <class Element, class Layout, class Device>
class global_average_pool2d::layer final
    : public detail::average_pooling<Element, Layout, Device, detail::global_average_pool2d_base> {
 public:
  using detail::average_pooling<Element, Layout, Device, detail::global_average_pool2d_base>::average_pooling;
};

}  // namespace gradus::nn

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn::detail {

GRADUS_INLINE void require_filled_windows(std::string_view kind, index_t input, index_t outputs, index_t kernel,
                                          index_t stride, index_t before, index_t dilation) {
  const auto filled = [&](index_t output) {
    const index_t start = output * stride - before;
    const index_t outside = start < 0 ? (dilation - 1 - start) / dilation : index_t{0};  // entries before the image
    return outside < kernel && start + outside * dilation < input;
  };
  bool all = filled(0) && filled(outputs - 1);
  for (index_t p = 1; all && dilation > 1 && p < outputs && p * stride < before; ++p) {
    all = filled(p);  // the first entry in an image that is smaller than the dilation is not always in it
  }
  if (!all) {
    raise<configuration_error>(
        kind, "kernel positions that each cover at least one element of the image",
        dilation > 1 ? "padding as large as the kernel, or a dilation larger than the image and padding at both ends"
                     : "padding as large as the kernel");
  }
}

GRADUS_INLINE kernels::pool2d_geometry pool_geometry(std::string_view kind, std::span<const value_shape> inputs,
                                                     const pool_options& o) {
  require_inputs(kind, 1, inputs.size());
  const value_shape& in = inputs[0];
  require_image(kind, in, "put the pooling before nn::flatten");
  const size2d reach = o.dilation == size2d{} ? o.kernel : dilated_kernel(kind, o.kernel, o.dilation);
  const auto window = slide(kind, {in.height, in.width}, reach, o.stride, o.padding);
  kernels::pool2d_geometry geometry{.channels = in.channels,
                                    .in_height = in.height,
                                    .in_width = in.width,
                                    .out_height = window.out_height,
                                    .out_width = window.out_width,
                                    .kernel_height = o.kernel.height,
                                    .kernel_width = o.kernel.width,
                                    .stride_height = o.stride.height,
                                    .stride_width = o.stride.width,
                                    .pad_top = window.pad_top,
                                    .pad_left = window.pad_left,
                                    .dilation_height = o.dilation.height,
                                    .dilation_width = o.dilation.width};
  if (o.ceil_mode && o.padding.rule() != padding::kind::same) {
    geometry.padded_height = in.height + o.padding.top() + o.padding.bottom();
    geometry.padded_width = in.width + o.padding.left() + o.padding.right();
    geometry.out_height =
        rounded_up(geometry.padded_height, reach.height, o.stride.height, in.height + o.padding.top());
    geometry.out_width = rounded_up(geometry.padded_width, reach.width, o.stride.width, in.width + o.padding.left());
  }
  require_few_positions(kind, in.channels, {in.height, in.width}, {geometry.out_height, geometry.out_width}, o.stride,
                        reach);
  require_filled_windows(kind, in.height, geometry.out_height, o.kernel.height, o.stride.height, geometry.pad_top,
                         o.dilation.height);
  require_filled_windows(kind, in.width, geometry.out_width, o.kernel.width, o.stride.width, geometry.pad_left,
                         o.dilation.width);
  return geometry;
}

}  // namespace gradus::nn::detail
#endif

GRADUS_COMPILED_LAYER(::gradus::nn::max_pool2d)
GRADUS_COMPILED_LAYER(::gradus::nn::average_pool2d)
GRADUS_COMPILED_LAYER(::gradus::nn::global_average_pool2d)

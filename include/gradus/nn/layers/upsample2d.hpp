// SPDX-License-Identifier: BSL-1.0
//
// The layer upsample2d: images of another height and width.
#pragma once

#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/cpu/resize2d.hpp"
#include "gradus/kernels/resize2d.hpp"
#include "gradus/layout/layout_policy.hpp"
#include "gradus/nn/detail/shaping/memory_order.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/layers/padding.hpp"

namespace gradus::nn {

using kernels::interpolation;

struct upsample2d;

namespace detail {
template <class Element, class Device>
class upsample2d_layer;

/// Resizing takes rows of pixels; channels, and images, are faster or slower than both.
template <class Element, class Layout, class Device>
struct upsample2d_layer_of {
  static_assert(rows_are_next_to_columns(Layout::order),
                "gradus: upsample2d needs a layout whose rows and columns are neighbors, as nchw and nhwc");
  using type = layer_in_order<upsample2d, upsample2d_layer<Element, Device>, Layout>;
};
}  // namespace detail

/// Options of resizing as torch.nn.Upsample and torch.nn.functional.interpolate. Output o reads the position
///
///   nearest                   floor(o * in / out)
///   bilinear                  (o + 1/2) * in / out - 1/2, at least 0
///   bilinear, align_corners   o * (in - 1) / (out - 1)
///
/// in each direction. Positions are computed exactly, with integers. The output may also be smaller than the input;
/// pixels that no output reads are then skipped, as in PyTorch.
///
///   symbol | meaning                            | shape
///   x      | input                              | (N, C, H, W)
///   s      | optional second input: only a size | (N, D, P, Q)
///   y      | output                             | (N, C, P, Q)
///
/// Gradients for g = dL/dy: dL/dx (N, C, H, W) is the sum of g times the pixel's weight over the outputs that read it;
/// dL/ds = 0. Overwritten or accumulated.
///
/// @throws configuration_error (network::add) when scale or size is not possible, with a size and a second input, or
///         with nearest and align_corners
/// @throws shape_error (network::add) for a flattened image
struct upsample2d {
  size2d scale{2, 2};                           ///< output rows and columns for each of the input
  size2d size{0, 0};                            ///< of the output, in place of a scale, if it is given
  interpolation mode = interpolation::nearest;  ///< or interpolation::bilinear
  bool align_corners = false;                   ///< bilinear only: corner pixels keep their values

  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  using layer = typename detail::upsample2d_layer_of<Element, Layout, Device>::type;
};

namespace detail {

/// The part of the layer that does not depend on element type, layout and device.
class upsample2d_base : public layer_base {
 public:
  upsample2d_base(const upsample2d& options, const axis_order& order) : options_{options}, order_{order} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "upsample2d"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    if (inputs.empty() || inputs.size() > 2) {
      raise<configuration_error>(kind(), "1 input value, or 2: the second gives the size", {inputs.size()});
    }
    if (options_.align_corners && options_.mode == interpolation::nearest) {
      raise<configuration_error>(kind(), "align_corners with interpolation::bilinear", "interpolation::nearest");
    }
    reads_size_ = inputs.size() == 2;
    in_ = inputs[0];
    require_image(kind(), in_, "resize before nn::flatten");
    out_ = in_;
    const bool sized = options_.size != size2d{0, 0};
    if (reads_size_) {
      require_image(kind(), inputs[1], "give the size of an image");
      if (sized) {
        raise<configuration_error>(kind(), "a size or a second input", "both");
      }
      out_.height = inputs[1].height;
      out_.width = inputs[1].width;
    } else if (sized) {
      require_at_least(kind(), "size.height", 1, options_.size.height);
      require_at_least(kind(), "size.width", 1, options_.size.width);
      out_.height = options_.size.height;
      out_.width = options_.size.width;
    } else {
      require_at_least(kind(), "scale.height", 1, options_.scale.height);
      require_at_least(kind(), "scale.width", 1, options_.scale.width);
      out_.height = gradus::detail::checked_product(in_.height, options_.scale.height);
      out_.width = gradus::detail::checked_product(in_.width, options_.scale.width);
    }
    return out_;
  }

  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_inputs = false,
            .backward_reads_output = false,
            .masks_input_gradients = !reads_size_,
            .recomputable = true};
  }

  void attributes(attribute_visitor& visit) const override {
    visit.operation(kind());
    visit.text("mode", options_.mode == interpolation::nearest ? "nearest" : "bilinear");
    visit.integer("align_corners", options_.align_corners);
  }

 protected:
  [[nodiscard]] kernels::resize2d_geometry geometry(index_t batch) const {
    const gradus::extents<4> shape = in_.batch(batch);
    return {.planes = extents_around(order_, shape, axis::h, true),
            .run = extents_around(order_, shape, axis::w, false),
            .in_height = in_.height,
            .in_width = in_.width,
            .out_height = out_.height,
            .out_width = out_.width,
            .mode = options_.mode,
            .align_corners = options_.align_corners};
  }

  upsample2d options_;
  axis_order order_;
  value_shape in_;  // infer sets these
  value_shape out_;
  bool reads_size_ = false;  // of a second input
};

template <class Element, class Device>
class upsample2d_layer : public layer_passes<Element, Device>, public upsample2d_base {
  static_assert(kernels::explain_resize2d<Device, Element>());
  using passes = layer_passes<Element, Device>;

 public:
  using upsample2d_base::upsample2d_base;

  void forward(const typename passes::forward_call& call) override {
    resize2d_forward(call.device, this->geometry(call.output.examples()), call.inputs[0].data(), call.output.data());
  }

  void backward(const typename passes::backward_call& call) override {
    if (const auto& dx = call.input_gradients[0]; dx.needed()) {
      resize2d_backward(call.device, this->geometry(dx.images.examples()), call.output_gradient.data(),
                        dx.images.data(), dx.epilogue);
    }
    for (std::size_t k = 1; k < call.input_gradients.size(); ++k) {
      write_zeros(call.device, call.input_gradients[k]);
    }
  }
};

}  // namespace detail
}  // namespace gradus::nn

GRADUS_COMPILED_LAYER(::gradus::nn::upsample2d)

// SPDX-License-Identifier: BSL-1.0
//
// The layer reshape: the elements of a value as an image of other extents.
#pragma once

#include <algorithm>    // std::max, std::min
#include <array>        // std::array
#include <cstddef>      // std::byte, std::size_t
#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/cpu/strided_copy.hpp"
#include "gradus/kernels/strided_copy.hpp"
#include "gradus/nn/detail/shaping/memory_order.hpp"
#include "gradus/nn/layer.hpp"

namespace gradus::nn {

namespace detail {
template <class Element, class Device>
class reshape_layer;
}  // namespace detail

/// Options of a reshape: the elements of a value, in the order (c, h, w) in every layout, as an image (channels,
/// height, width). That is torch.reshape of tensors (N, C, H, W), and the order in which nn::flatten reads an image.
/// One extent may be -1: it is then what the number of elements leaves.
///
///   symbol | meaning                   | shape
///   x      | input, flattened or image | (N, C, H, W)
///   y      | output                    | (N, channels, height, width)
///
/// Gradients for g = dL/dy: dL/dx is g in the extents of x   (N, C, H, W)   overwritten or accumulated
///
/// The output is the memory of the input where both have their elements in the same order: always in nchw. In nhwc they
/// have if only rows and columns change, as from (C, H, W) to (C, H * W, 1). Else elements are copied: once if each
/// extent of one shape is a product of neighboring extents of the other one or the reverse, else twice.
///
/// @throws configuration_error (network::add) when an extent is not possible
/// @throws shape_error (network::add) when the shapes have different numbers of elements
struct reshape {
  index_t channels = -1;  ///< of the output
  index_t height = 1;     ///< of the output: rows
  index_t width = 1;      ///< of the output: columns

  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  using layer = detail::layer_in_order<reshape, detail::reshape_layer<Element, Device>, Layout>;
};

namespace detail {

/// A dense batch whose axes are merged where they are neighbors in memory too.
struct merged_images {
  /// @param shape    extents (N, C, H, W)
  /// @param strides  in elements
  merged_images(const gradus::extents<4>& shape, const axis_strides& strides) noexcept
      : extents{shape.values()}, steps{strides} {
    std::size_t last = 3;  // the slowest axis of the result so far
    for (std::size_t k = 2; k > 0; --k) {
      const index_t extent = extents[k];
      extents[k] = 1;
      if (extent == 1) {
        continue;
      }
      if (extents[last] != 1 && steps[k] == steps[last] * extents[last]) {
        extents[last] *= extent;
        continue;
      }
      last -= extents[last] == 1 ? 0U : 1U;
      extents[last] = extent;
      steps[last] = steps[k];
    }
  }

  std::array<index_t, 4> extents;
  axis_strides steps;
};

/// A copy of images to images of other extents, where both are in the order (n, c, h, w).
/// @return false if the extents have no common refinement
[[nodiscard]] inline bool common_refinement(const merged_images& from, const merged_images& to,
                                            kernels::strided_copy_shape& result) noexcept {
  result = {};
  result.axes[0] = {from.extents[0], from.steps[0], to.steps[0]};
  std::size_t used = 1;
  std::size_t a = 3;
  std::size_t b = 3;
  index_t left_a = from.extents[a];  // of the extent, what is not in an axis of the result yet
  index_t left_b = to.extents[b];
  index_t step_a = from.steps[a];
  index_t step_b = to.steps[b];
  while (a > 0 && b > 0) {
    const index_t common = std::min(left_a, left_b);
    if (std::max(left_a, left_b) % common != 0) {
      return false;
    }
    if (common > 1) {
      result.axes[used++] = {common, step_a, step_b};
    }
    left_a /= common;
    left_b /= common;
    step_a *= common;
    step_b *= common;
    if (left_a == 1 && --a > 0) {
      left_a = from.extents[a];
      step_a = from.steps[a];
    }
    if (left_b == 1 && --b > 0) {
      left_b = to.extents[b];
      step_b = to.steps[b];
    }
  }
  return true;  // what is left of either shape has one element
}

/// The part of the layer that does not depend on element type and device.
class reshape_base : public layer_base {
 public:
  reshape_base(const reshape& options, const axis_order& order)
      : order_{order}, channels_{options.channels}, height_{options.height}, width_{options.width} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "reshape"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    require_inputs(kind(), 1, inputs.size());
    from_ = inputs[0];
    from_.flattened = false;
    to_ = {channels_, height_, width_};
    const index_t elements = from_.size();
    index_t known = 1;
    index_t* open = nullptr;
    for (index_t* const extent : {&to_.channels, &to_.height, &to_.width}) {
      if (*extent == -1 && open == nullptr) {
        open = extent;
        continue;
      }
      require_at_least(kind(), "an extent (-1 in one of them at most)", 1, *extent);
      known = gradus::detail::checked_product(known, *extent);
    }
    if (open != nullptr) {
      *open = elements / known;
    }
    if (elements % known != 0 || to_.size() != elements) {
      raise<shape_error>(kind(), {"an image of ", elements, " elements, as the input has"},
                         {"(", channels_, ", ", height_, ", ", width_, ")"});
    }
    kernels::strided_copy_shape copy;
    copies_ = refinement(2, copy) ? 1 : 2;
    aliases_ = copies_ == 1;
    for (const kernels::copy_axis& each : copy.axes) {
      aliases_ = aliases_ && (each.extent == 1 || each.from == each.to);
    }
    return to_;
  }

  void attributes(attribute_visitor& visit) const override { visit.operation(kind()); }

  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_inputs = false,
            .backward_reads_output = false,
            .aliases_input = aliases_,
            .recomputable = !aliases_};
  }

 protected:
  [[nodiscard]] bool refinement(index_t batch, kernels::strided_copy_shape& result) const noexcept {
    const gradus::extents<4> in = from_.batch(batch);
    const gradus::extents<4> out = to_.batch(batch);
    return common_refinement({in, strides_of(order_, in)}, {out, strides_of(order_, out)}, result);
  }

  /// The copy of images from the layout to the order (n, c, h, w).
  [[nodiscard]] kernels::strided_copy_shape in_row_major(const value_shape& images, index_t batch) const {
    const gradus::extents<4> shape = images.batch(batch);
    const axis_strides from = strides_of(order_, shape);
    const axis_strides to = strides_of({axis::n, axis::c, axis::h, axis::w}, shape);
    kernels::strided_copy_shape result;
    for (std::size_t k = 0; k < 4; ++k) {
      result.axes[k] = {shape[static_cast<int>(k)], from[k], to[k]};
    }
    return result;
  }

  axis_order order_;
  index_t channels_;
  index_t height_;
  index_t width_;
  value_shape from_;  // infer sets these
  value_shape to_;
  int copies_ = 1;        // if the memory is not shared
  bool aliases_ = false;  // the output is the memory of the input
};

template <class Element, class Device>
class reshape_layer : public layer_passes<Element, Device>, public reshape_base {
  static_assert(kernels::explain_strided_copy<Device, Element>());
  using passes = layer_passes<Element, Device>;

 public:
  using reshape_base::reshape_base;

  [[nodiscard]] layer_memory memory(Device& /*device*/, index_t batch) const override {
    if (this->aliases_ || this->copies_ == 1) {
      return {};
    }
    return {.state = 0, .workspace = static_cast<std::size_t>(this->from_.batch(batch).size()) * sizeof(Element)};
  }

  void forward(const typename passes::forward_call& call) override {
    reorder(call.device, false, call.inputs[0].examples(), call.inputs[0].data(), call.output.data(), false,
            call.workspace);
  }

  void backward(const typename passes::backward_call& call) override {
    if (const auto& dx = call.input_gradients[0]; dx.needed()) {
      reorder(call.device, true, dx.images.examples(), call.output_gradient.data(), dx.images.data(),
              dx.epilogue.accumulate, call.workspace);
    }
  }

 private:
  /// Copies images of the extents of the input to those of the output, or `back`.
  void reorder(Device& device, bool back, index_t batch, const Element* from, Element* to, bool accumulate,
               std::span<std::byte> workspace) const {
    if (this->aliases_) {
      return;
    }
    kernels::strided_copy_shape copy;
    if (this->refinement(batch, copy)) {
      strided_copy(device, back ? copy.inverse() : copy, from, to, accumulate);
      return;
    }
    auto* const elements = reinterpret_cast<Element*>(workspace.data());
    strided_copy(device, this->in_row_major(back ? this->to_ : this->from_, batch), from, elements, false);
    strided_copy(device, this->in_row_major(back ? this->from_ : this->to_, batch).inverse(),
                 static_cast<const Element*>(elements), to, accumulate);
  }
};

}  // namespace detail
}  // namespace gradus::nn

GRADUS_COMPILED_LAYER(::gradus::nn::reshape)

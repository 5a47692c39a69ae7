// SPDX-License-Identifier: BSL-1.0
//
// Layouts as data, for layers that are compiled once for all of them.
#pragma once

#include <array>    // std::array
#include <cstddef>  // std::size_t

#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/layout/layout_policy.hpp"
#include "gradus/nn/layer.hpp"

namespace gradus::nn::detail {

/// The axes of a layout, slowest first.
using axis_order = std::array<axis, 4>;

/// One stride for each of n, c, h, w, in elements.
using axis_strides = std::array<index_t, 4>;

[[nodiscard]] constexpr std::size_t number_of(axis a) noexcept {
  return static_cast<std::size_t>(a);
}

/// The strides of a dense batch.
[[nodiscard]] inline axis_strides strides_of(const axis_order& order, const gradus::extents<4>& shape) noexcept {
  axis_strides result{};
  index_t stride = 1;
  for (std::size_t k = order.size(); k-- > 0;) {
    result[number_of(order[k])] = stride;
    stride *= shape[static_cast<int>(order[k])];
  }
  return result;
}

/// True if axis `a` is slower in memory than axis `b`.
[[nodiscard]] constexpr bool is_slower(const axis_order& order, axis a, axis b) noexcept {
  for (const axis each : order) {
    if (each == a || each == b) {
      return each == a;
    }
  }
  return false;
}

/// The product of the extents of the axes that are slower in memory than `a`, or faster.
[[nodiscard]] inline index_t extents_around(const axis_order& order, const gradus::extents<4>& shape, axis a,
                                            bool slower) noexcept {
  index_t product = 1;
  for (const axis each : order) {
    if (each != a && is_slower(order, each, a) == slower) {
      product *= shape[static_cast<int>(each)];
    }
  }
  return product;
}

/// True if columns follow rows in the order.
[[nodiscard]] constexpr bool rows_are_next_to_columns(const axis_order& order) noexcept {
  bool found = false;
  for (std::size_t k = 0; k + 1 < order.size(); ++k) {
    found = found || (order[k] == axis::h && order[k + 1] == axis::w);
  }
  return found;
}

/// A gradient of an input whose values the layer does not read: zeros, unless others are already there.
template <class Element, class Device>
void write_zeros(Device& device, const input_gradient<Element, Device>& target) {
  if (target.needed() && !target.epilogue.accumulate) {
    device.fill_zero(target.images.data(), static_cast<std::size_t>(target.images.size()) * sizeof(Element));
  }
}

/// A layer that keeps the order of its layout as data; `Layer` takes the options and the order.
template <class Options, class Layer, class Layout>
class layer_in_order final : public Layer {
 public:
  explicit layer_in_order(const Options& options) : Layer{options, Layout::order} {}
};

}  // namespace gradus::nn::detail

// SPDX-License-Identifier: BSL-1.0
//
// The contract of strided copies, which crop, slice, permute and shuffle values.
#pragma once

#include <algorithm>  // std::swap
#include <array>      // std::array
#include <cstddef>    // std::size_t

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"

namespace gradus::kernels {

/// An axis of a strided copy.
struct copy_axis {
  index_t extent = 1;  ///< elements along the axis
  index_t from = 0;    ///< distance of neighbors in the source, in elements; at least 0
  index_t to = 0;      ///< distance of neighbors in the destination, in elements; at least 0
};

/// The axes of a strided copy, in any order. An axis of one element does nothing.
struct strided_copy_shape {
  std::array<copy_axis, 6> axes{};  ///< unused ones have one element

  /// The number of elements that are copied.
  [[nodiscard]] constexpr index_t size() const noexcept {
    index_t product = 1;
    for (const copy_axis& each : axes) {
      product *= each.extent;
    }
    return product;
  }

  /// The copy from the destination to the source.
  [[nodiscard]] constexpr strided_copy_shape inverse() const noexcept {
    strided_copy_shape result = *this;
    for (copy_axis& each : result.axes) {
      std::swap(each.from, each.to);
    }
    return result;
  }
};

/// A device that copies elements with strides; layers such as nn::slice and nn::pixel_shuffle ask for it.
/// strided_copy computes, for all indices i(k) in [0, axes[k].extent),
///
///   to[sum of i(k) * axes[k].to] (+)= from[sum of i(k) * axes[k].from]
///
/// where (+)= is += if `accumulate`, else =. Elements between those keep their values.
/// @pre source and destination do not overlap; different indices have different elements in both
template <class Device, class Element>
concept has_strided_copy = requires(Device& device, const strided_copy_shape& shape, const Element* from, Element* to,
                                    bool accumulate) {
  strided_copy(device, shape, from, to, accumulate);
};

/// Says that the device lacks the overload of `has_strided_copy`. Always true when it compiles.
template <class Device, class Element>
consteval bool explain_strided_copy() {
  static_assert(has_strided_copy<Device, Element>,
                "gradus: the device lacks a kernel of the network: overload void strided_copy(Device&, const "
                "strided_copy_shape&, const Element* from, Element* to, bool accumulate); for gradus::cuda include "
                "gradus/kernels/cuda/shaping.cuh");
  return true;
}

}  // namespace gradus::kernels

// SPDX-License-Identifier: BSL-1.0
//
// New tensors whose elements the host computes from their logical index.
#pragma once

#include <array>    // std::array
#include <cstddef>  // std::size_t
#include <memory>   // std::make_unique_for_overwrite

#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/tensor/detail/host/logical_order.hpp"
#include "gradus/tensor/tensor.hpp"

namespace gradus::detail {

template <int Rank>
[[nodiscard]] const extents<Rank>& extents_of_shape(const extents<Rank>& shape, error_location) {
  return shape;
}
[[nodiscard]] inline extents<4> extents_of_shape(const image_extents& shape, error_location where) {
  return at_call(where, [&] { return extents<4>{shape}; });
}

/// A shape in a variable: extents or image_extents.
template <class Shape>
concept shape_variable = requires(const Shape& shape, error_location where) {
  extents_of_shape(shape, where);
};

/// The extents in braces. @throws shape_error when one is negative
template <std::size_t Rank>
[[nodiscard]] extents<static_cast<int>(Rank)> extents_of_list(const index_t (&values)[Rank], error_location where) {
  std::array<index_t, Rank> copied{};
  for (std::size_t axis = 0; axis < Rank; ++axis) {
    copied[axis] = values[axis];
  }
  return at_call(where, [&] { return extents<static_cast<int>(Rank)>{copied}; });
}

/// A tensor whose element with the row-major index i is value_at(i), for any device. value_at is called on the threads
/// of a cpu, in any order.
template <class Element, class Layout, class Device, int Rank, class Function>
[[nodiscard]] tensor<Element, Rank, Layout, Device> tensor_of(Device& device, const extents<Rank>& shape,
                                                              const Function& value_at, error_location where) {
  tensor<Element, Rank, Layout, Device> result{device, shape, where};
  const auto fill = [&](Element* out) {
    for_all_rows<Layout>(device, shape, [&](index_t offset, index_t index, index_t step, index_t count) {
      for (index_t i = 0; i < count; ++i) {
        out[offset + i] = value_at(index + i * step);
      }
    });
  };
  if constexpr (has_host_memory<Device>) {
    device.synchronize();  // the zeros of the constructor are written
    fill(result.data());
  } else {
    const auto count = static_cast<std::size_t>(shape.size());
    const auto values = std::make_unique_for_overwrite<Element[]>(count);
    fill(values.get());
    device.copy_from_host(result.data(), values.get(), count * sizeof(Element));
    device.synchronize();  // afterwards the values are freed
  }
  return result;
}

}  // namespace gradus::detail

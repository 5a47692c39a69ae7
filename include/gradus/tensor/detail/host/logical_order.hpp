// SPDX-License-Identifier: BSL-1.0
//
// Loops of the host over dense tensors in memory order, with the logical index of each element.
#pragma once

#include <algorithm>    // std::max
#include <array>        // std::array
#include <concepts>     // std::same_as
#include <cstddef>      // std::size_t
#include <memory>       // std::make_unique_for_overwrite, std::unique_ptr
#include <type_traits>  // std::remove_const_t

#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::detail {

/// True if the elements of a dense tensor are in memory in their logical order.
template <class Layout, int Rank>
inline constexpr bool in_logical_order = [] {
  for (int axis = 0; axis < Rank; ++axis) {
    if (memory_order<Layout, Rank>[static_cast<std::size_t>(axis)] != axis) {
      return false;
    }
  }
  return true;
}();

/// Calls body(offset, index, step, count) for rows [first, last) of a dense tensor: a row is `count` adjacent elements
/// from `offset`, and their row-major indices are index, index + step, ... If the memory order is the logical order,
/// the tensor is rows of one element each, which are passed in one call.
template <class Layout, int Rank, class Body>
void for_rows(const extents<Rank>& shape, index_t first, index_t last, const Body& body) {
  if constexpr (in_logical_order<Layout, Rank>) {
    body(first, first, index_t{1}, last - first);
  } else {
    constexpr const auto& order = memory_order<Layout, Rank>;
    const auto strides = dense_strides<row_major, Rank>(shape);
    const auto fastest = static_cast<std::size_t>(order[Rank - 1]);
    const index_t length = shape[order[Rank - 1]];
    for (index_t row = first; row < last; ++row) {
      index_t rest = row;
      index_t index = 0;
      for (int position = Rank - 2; position >= 0; --position) {
        const int axis = order[static_cast<std::size_t>(position)];
        index += rest % shape[axis] * strides[static_cast<std::size_t>(axis)];
        rest /= shape[axis];
      }
      body(row * length, index, strides[fastest], length);
    }
  }
}

/// The number of rows of for_rows. @pre the shape has an element
template <class Layout, int Rank>
[[nodiscard]] index_t number_of_rows(const extents<Rank>& shape) {
  if constexpr (in_logical_order<Layout, Rank>) {
    return shape.size();
  } else {
    return shape.size() / shape[memory_order<Layout, Rank>[Rank - 1]];
  }
}

/// Calls body as for_rows does, for all rows; on the threads of a cpu.
template <class Layout, int Rank, class Device, class Body>
void for_all_rows(Device& device, const extents<Rank>& shape, const Body& body) {
  if (shape.size() == 0) {
    return;
  }
  const index_t rows = number_of_rows<Layout>(shape);
  if constexpr (std::same_as<Device, cpu>) {
    constexpr index_t elements_of_a_task = 4096;
    const index_t grain = std::max(index_t{1}, elements_of_a_task / (shape.size() / rows));
    device.parallel_for(rows, grain, [&](index_t begin, index_t end) { for_rows<Layout>(shape, begin, end, body); });
  } else {
    for_rows<Layout>(shape, 0, rows, body);
  }
}

/// The elements of a tensor or view for the host, in memory order: its own memory, or a copy from the device.
template <class Element>
class host_elements {
 public:
  template <class Tensor>
  explicit host_elements(const Tensor& x) : data_{x.data()} {
    auto& device = x.device();
    if constexpr (has_host_memory<typename Tensor::device_type>) {
      device.synchronize();
    } else {
      const auto count = static_cast<std::size_t>(x.extents().size());
      copy_ = std::make_unique_for_overwrite<Element[]>(count);
      device.copy_to_host(copy_.get(), x.data(), count * sizeof(Element));
      data_ = copy_.get();
    }
  }

  [[nodiscard]] const Element* data() const noexcept { return data_; }

 private:
  std::unique_ptr<Element[]> copy_;
  const Element* data_;
};

template <class Tensor>
host_elements(const Tensor&) -> host_elements<std::remove_const_t<typename Tensor::value_type>>;

}  // namespace gradus::detail

// SPDX-License-Identifier: BSL-1.0
//
// Copies of tensors between devices.
#pragma once

#include <concepts>     // std::same_as
#include <cstddef>      // std::size_t
#include <type_traits>  // std::remove_const_t, std::remove_cvref_t
#include <utility>      // std::forward

#include "gradus/core/error.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/tensor/expression.hpp"
#include "gradus/tensor/operand.hpp"
#include "gradus/tensor/tensor.hpp"

namespace gradus {

/// Copies a tensor or view to a tensor or view of the same element type, rank and layout, which may be on another
/// device. One of the devices must be a cpu, or both of one type. A copy from a GPU to the host blocks until it is
/// done; see cuda::copy_from_host for the other direction.
/// @throws shape_error when the shapes differ
template <class Destination, tensor_operand Source>
void copy(Destination&& destination, const Source& source, error_location where = error_location::current()) {
  using target = std::remove_cvref_t<Destination>;
  using target_device = typename target::device_type;
  using source_device = typename Source::device_type;
  static_assert(target::rank == Source::rank, "gradus::copy: tensors of the same rank");
  static_assert(std::same_as<typename target::value_type, typename Source::value_type>,
                "gradus::copy: tensors of the same element type: use cast<...>(x) on one of the devices");
  static_assert(std::same_as<typename target::layout_type, typename Source::layout_type>,
                "gradus::copy: tensors of the same layout: use layout_cast<...>(x) on one of the devices");
  static_assert(std::same_as<target_device, source_device> || std::same_as<target_device, cpu> ||
                    std::same_as<source_device, cpu>,
                "gradus::copy: one of the devices is a cpu, or both are of one type");
  if (destination.extents() != source.extents()) {
    raise<shape_error>("copy", to_string(destination.extents()), to_string(source.extents()), {}, where);
  }
  auto& to = destination.device();
  auto& from = source.device();
  const auto bytes = static_cast<std::size_t>(source.extents().size()) * sizeof(typename Source::value_type);
  if constexpr (std::same_as<target_device, source_device>) {
    if (&to != &from) {
      from.synchronize();
    }
    to.copy(destination.data(), source.data(), bytes);
    if (&to != &from) {
      to.synchronize();  // afterwards the source may change
    }
  } else if constexpr (std::same_as<source_device, cpu>) {
    to.copy_from_host(destination.data(), source.data(), bytes);
  } else {
    from.copy_to_host(destination.data(), source.data(), bytes);
  }
}

/// A new tensor on `device` with the values of a tensor, view or expression: `to(gpu, x)`.
template <class Device, operand Operand>
[[nodiscard]] auto to(Device&& device, Operand&& values) {
  const auto node = detail::stored(detail::as_node(std::forward<Operand>(values)));
  using type = std::remove_const_t<decltype(node)>;
  tensor<typename type::value_type, type::rank, typename type::layout_type, std::remove_cvref_t<Device>> result{
      std::forward<Device>(device), node.extents()};
  copy(result, node);
  return result;
}

}  // namespace gradus

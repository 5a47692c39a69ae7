// SPDX-License-Identifier: BSL-1.0
//
// From expressions to tensors: assign, evaluate, scalar_of.
// Module: tensor. Depends on: layout, device.
#pragma once

#include <type_traits>  // std::is_arithmetic_v, std::remove_cvref_t
#include <utility>      // std::forward

#include "gradus/tensor/elementwise.hpp"  // detail::make_map
#include "gradus/tensor/evaluate.hpp"     // detail::assign_node
#include "gradus/tensor/operand.hpp"      // detail::as_node
#include "gradus/tensor/tensor.hpp"       // tensor

namespace gradus {

/// Computes an expression (or copies a tensor) into a tensor or view; a number fills it. The destination may stand in
/// the expression, see tensor::operator=.
/// @throws shape_error when the shapes differ
template <class Destination, class Operand>
void assign(Destination&& destination, const Operand& values) {
  using target = std::remove_cvref_t<Destination>;
  const tensor_view<std::remove_reference_t<decltype(*destination.data())>, target::rank, typename target::layout_type,
                    typename target::device_type>
      view{destination.device(), destination.data(), destination.extents()};
  if constexpr (std::is_arithmetic_v<Operand>) {
    using element = typename target::value_type;
    auto one = detail::temporary<element, 0, row_major, typename target::device_type>{view.device(), extents<0>{}};
    const auto number = static_cast<element>(values);
    view.device().copy_from_host(one.data(), &number, sizeof(number));
    auto leaf = std::move(one).done();
    detail::assign_node(view, detail::broadcast<decltype(leaf), target::rank, typename target::layout_type, 0U>{
                                  std::move(leaf), view.extents()});
  } else {
    detail::assign_node(view, detail::as_node(values));
  }
}

/// The expression as a tensor of its own.
template <operand Operand>
[[nodiscard]] auto evaluate(Operand&& values) {
  auto node = detail::as_node(std::forward<Operand>(values));
  using type = decltype(node);
  return tensor<typename type::value_type, type::rank, typename type::layout_type, typename type::device_type>{node};
}

/// The value of an expression of rank 0. Waits for the device.
template <operand Operand>
[[nodiscard]] auto scalar_of(Operand&& value) {
  auto node = detail::stored(detail::as_node(std::forward<Operand>(value)));
  static_assert(decltype(node)::rank == 0, "gradus::scalar_of: an expression of rank 0, such as sum(x)");
  return node.value();
}

}  // namespace gradus

// SPDX-License-Identifier: BSL-1.0
//
// Evaluation of expressions into tensors: assign, evaluate, scalar_of.
#pragma once

#include <type_traits>  // std::is_arithmetic_v, std::remove_cvref_t
#include <utility>      // std::forward

#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/tensor/detail/expression/evaluate.hpp"
#include "gradus/tensor/expression.hpp"
#include "gradus/tensor/operand.hpp"
#include "gradus/tensor/tensor.hpp"

namespace gradus {

namespace detail {

/// One value with a shape and a device.
template <class Element, int Rank, class Layout, class Device>
class filled : public constant<Element, Rank, Layout, Device> {
 public:
  static constexpr bool has_shape = true;
  filled(Device& device, const gradus::extents<Rank>& shape, Element value) noexcept
      : constant<Element, Rank, Layout, Device>{value}, device_{&device}, extents_{shape} {}
  [[nodiscard]] Device& device() const noexcept { return *device_; }
  [[nodiscard]] const gradus::extents<Rank>& extents() const noexcept { return extents_; }

 private:
  Device* device_;
  gradus::extents<Rank> extents_;
};

}  // namespace detail

/// Evaluates an expression (or copies a tensor) into a tensor or view; a number fills it. The expression may read the
/// destination, see tensor::operator=.
/// @throws shape_error when the shapes differ
template <class Destination, class Operand>
void assign(Destination&& destination, const Operand& values, error_location where) {
  using target = std::remove_cvref_t<Destination>;
  const tensor_view<std::remove_reference_t<decltype(*destination.data())>, target::rank, typename target::layout_type,
                    typename target::device_type>
      view{destination.device(), destination.data(), destination.extents()};
  if constexpr (std::is_arithmetic_v<Operand>) {
    using element = typename target::value_type;
    detail::assign_node(
        view,
        detail::filled<element, target::rank, typename target::layout_type, typename target::device_type>{
            view.device(), view.extents(), static_cast<element>(values)},
        where);
  } else {
    detail::assign_node(view, detail::as_node(values), where);
  }
}

/// Evaluates an expression into a new tensor.
template <operand Operand>
[[nodiscard]] auto evaluate(Operand&& values) {
  auto node = detail::as_node(std::forward<Operand>(values));
  using type = decltype(node);
  return tensor<typename type::value_type, type::rank, typename type::layout_type, typename type::device_type>{node};
}

/// The value of an expression of rank 0, on the host. Waits for the device.
template <operand Operand>
[[nodiscard]] auto scalar_of(Operand&& value) {
  auto node = detail::stored(detail::as_node(std::forward<Operand>(value)));
  static_assert(decltype(node)::rank == 0, "gradus::scalar_of: an expression of rank 0, such as sum(x)");
  return node.value();
}

}  // namespace gradus

// SPDX-License-Identifier: BSL-1.0
//
// Everything that a device brings for expressions: one list that the compiler checks.
#pragma once

#include "gradus/core/config.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/tensor/detail/expression/evaluate.hpp"
#include "gradus/tensor/expression.hpp"
#include "gradus/tensor/matrix.hpp"
#include "gradus/tensor/reduction.hpp"

namespace gradus {

namespace detail {

template <class Device, class Element>
using matrix_leaf = leaf<Element, 2, row_major, Device>;

}  // namespace detail

/// A device that computes expressions of float or double. For a node of gradus::detail it overloads
///
///   void evaluate_to(Device&, Element* out, const Node&)        the values of the node, in memory order
///   auto reduce<Kind, Reduced>(Device&, const Node&)            a leaf with the kept axes in logical order
///   void copy_reordered(Device&, Element* out, const Element* from, shape, strides)
///   void multiply_matrices(Device&, Element* out, const matrix_reference<Element>&, const matrix_reference<Element>&)
///
/// in its own namespace, or in gradus::detail before gradus/tensor/expressions.hpp is used. A device that derives from
/// thrust_device has the first three. Checking `reduce` compiles one reduction. Semantics: tests/property/tensor.
template <class Device, class Element>
concept has_expressions = device_policy<Device> && detail::computable<detail::matrix_leaf<Device, Element>> &&
                          detail::has_copy_reordered<Device, Element, 2> &&
                          detail::has_multiply_matrices<Device, Element> && detail::has_reduce < Device,
        detail::sum_kind<Element>,
1U, detail::matrix_leaf < Device, Element >> ;

/// Says which overload of `has_expressions` the device misses. Always true when it compiles.
template <class Device, class Element>
consteval bool explain_expressions() {
  static_assert(explain_device_policy<Device>());
  static_assert(detail::require_computable<detail::matrix_leaf<Device, Element>>());
  static_assert(detail::explain_copy_reordered<Device, Element, 2>());
  static_assert(detail::explain_multiply_matrices<Device, Element>());
  static_assert(detail::explain_reduce<Device, detail::sum_kind<Element>, 1U, detail::matrix_leaf<Device, Element>>());
  return true;
}

}  // namespace gradus

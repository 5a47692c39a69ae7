// SPDX-License-Identifier: BSL-1.0
//
// What element-wise operations have in common: on an element, on a packet, and their derivatives.
//
// derivative<K>(adjoint, self, operands...) is the adjoint of operand K as an expression; self is the value of the
// operation. Operations without `derivative` are not differentiable. The derivatives compare the first `compared`
// operands. The result of an `exact` operation is not rounded: it has the same bits each time it is computed.
//
// For `approximated` functions, packets have other bits than the standard library's results for single elements. An
// expression with packets and such a function is computed by packets only, so that an element does not depend on its
// position.
#pragma once

#include "gradus/core/element.hpp"

namespace gradus::detail {

struct operation_traits {
  static constexpr bool takes_masks = false;
  static constexpr bool exact = false;
  static constexpr int compared = 0;
  static constexpr bool approximated = false;
};

/// Base of arithmetic operations: the result has the operands' type, and real elements have packets.
struct operation_base : operation_traits {
  template <class First, class...>
  struct result {
    using type = First;
  };
  template <class Element>
  static constexpr bool vectorizable = real_element<Element>;
};

/// Base of comparisons and logic: the result is bool; in packets, a mask.
struct predicate_base : operation_traits {
  static constexpr bool exact = true;
  template <class...>
  struct result {
    using type = bool;
  };
  template <class Element>
  static constexpr bool vectorizable = real_element<Element>;
};

}  // namespace gradus::detail

// SPDX-License-Identifier: BSL-1.0
//
// The base of expressions, which tensors know without the expressions themselves.
#pragma once

#include <concepts>     // std::derived_from
#include <type_traits>  // std::remove_cvref_t

#include "gradus/core/config.hpp"

namespace gradus {

/// The base of all expressions.
struct expression_base {};

/// An expression of tensors: `a + b`, `sum(x)`, `matmul(a, b)`. It has value_type, rank, layout_type, device_type,
/// extents() and device(), and can be assigned to a tensor of the same element type, rank, layout and device.
template <class Operand>
concept expression = std::derived_from<std::remove_cvref_t<Operand>, expression_base>;

}  // namespace gradus

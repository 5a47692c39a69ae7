// SPDX-License-Identifier: BSL-1.0
//
// The element-wise operators and functions of tensors.
// Module: tensor. Depends on: layout, device.
//
// Operands have one shape, layout, device and element type; numbers, tensors of rank 0 and per_channel(v), per_row(v),
// per_column(v), along<axes...>(v) adapt to the others. Every function returns an expression, which is computed in one
// pass when it is assigned. All throw shape_error when the shapes differ.
#pragma once

#include <type_traits>  // std::is_arithmetic_v
#include <utility>      // std::forward

#include "gradus/core/element.hpp"        // explain_element
#include "gradus/tensor/elementwise.hpp"  // detail::make_map
#include "gradus/tensor/operations.hpp"   // detail::add_operation, ...

namespace gradus {

/// At least one of the operands is a tensor.
template <class Left, class Right>
concept operands = operand_or_scalar<Left> && operand_or_scalar<Right> &&(operand<Left> || operand<Right>);

template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto operator+(Left&& left, Right&& right) {
  return detail::make_map<detail::add_operation>(std::forward<Left>(left), std::forward<Right>(right));
}
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto operator-(Left&& left, Right&& right) {
  return detail::make_map<detail::subtract_operation>(std::forward<Left>(left), std::forward<Right>(right));
}
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto operator*(Left&& left, Right&& right) {
  return detail::make_map<detail::multiply_operation>(std::forward<Left>(left), std::forward<Right>(right));
}
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto operator/(Left&& left, Right&& right) {
  return detail::make_map<detail::divide_operation>(std::forward<Left>(left), std::forward<Right>(right));
}
template <operand Operand>
[[nodiscard]] auto operator-(Operand&& x) {
  return detail::make_map<detail::negate_operation>(std::forward<Operand>(x));
}

// Comparisons and logic give expressions of bool.
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto operator==(Left&& left, Right&& right) {
  return detail::make_map<detail::equal_operation>(std::forward<Left>(left), std::forward<Right>(right));
}
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto operator!=(Left&& left, Right&& right) {
  return detail::make_map<detail::not_equal_operation>(std::forward<Left>(left), std::forward<Right>(right));
}
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto operator<(Left&& left, Right&& right) {
  return detail::make_map<detail::less_operation>(std::forward<Left>(left), std::forward<Right>(right));
}
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto operator<=(Left&& left, Right&& right) {
  return detail::make_map<detail::less_equal_operation>(std::forward<Left>(left), std::forward<Right>(right));
}
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto operator>(Left&& left, Right&& right) {
  return detail::make_map<detail::less_operation>(std::forward<Right>(right), std::forward<Left>(left));
}
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto operator>=(Left&& left, Right&& right) {
  return detail::make_map<detail::less_equal_operation>(std::forward<Right>(right), std::forward<Left>(left));
}
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto operator&&(Left&& left, Right&& right) {
  return detail::make_map<detail::and_operation>(std::forward<Left>(left), std::forward<Right>(right));
}
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto operator||(Left&& left, Right&& right) {
  return detail::make_map<detail::or_operation>(std::forward<Left>(left), std::forward<Right>(right));
}
template <operand Operand>
[[nodiscard]] auto operator!(Operand&& x) {
  return detail::make_map<detail::not_operation>(std::forward<Operand>(x));
}

/// The values of `yes` where the condition holds, else those of `no`.
template <operand Condition, class Yes, class No>
requires operands<Yes, No>
[[nodiscard]] auto where(Condition&& condition, Yes&& yes, No&& no) {
  static_assert(std::is_same_v<typename std::remove_cvref_t<Condition>::value_type, bool>,
                "gradus::where: the condition has the element type bool: write a comparison");
  return detail::make_map<detail::where_operation, 1>(std::forward<Condition>(condition), std::forward<Yes>(yes),
                                                      std::forward<No>(no));
}

template <operand Operand>
[[nodiscard]] auto exp(Operand&& x) {
  return detail::make_map<detail::exp_operation>(std::forward<Operand>(x));
}
/// The natural logarithm.
template <operand Operand>
[[nodiscard]] auto log(Operand&& x) {
  return detail::make_map<detail::log_operation>(std::forward<Operand>(x));
}
template <operand Operand>
[[nodiscard]] auto sqrt(Operand&& x) {
  return detail::make_map<detail::sqrt_operation>(std::forward<Operand>(x));
}
template <operand Operand>
[[nodiscard]] auto tanh(Operand&& x) {
  return detail::make_map<detail::tanh_operation>(std::forward<Operand>(x));
}
/// 1 / (1 + exp(-x))
template <operand Operand>
[[nodiscard]] auto sigmoid(Operand&& x) {
  return detail::make_map<detail::sigmoid_operation>(std::forward<Operand>(x));
}
template <operand Operand>
[[nodiscard]] auto abs(Operand&& x) {
  return detail::make_map<detail::abs_operation>(std::forward<Operand>(x));
}
template <operand Operand>
[[nodiscard]] auto square(Operand&& x) {
  return detail::make_map<detail::square_operation>(std::forward<Operand>(x));
}
/// x to the power of a number.
template <operand Operand, class Exponent>
requires std::is_arithmetic_v<Exponent>
[[nodiscard]] auto pow(Operand&& x, Exponent exponent) {
  return detail::make_map<detail::pow_operation>(std::forward<Operand>(x), exponent);
}

/// The smaller of two values.
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto minimum(Left&& left, Right&& right) {
  return detail::make_map<detail::minimum_operation>(std::forward<Left>(left), std::forward<Right>(right));
}
/// The larger of two values.
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto maximum(Left&& left, Right&& right) {
  return detail::make_map<detail::maximum_operation>(std::forward<Left>(left), std::forward<Right>(right));
}
/// The value of [low, high] that is nearest to x.
template <operand Operand, operand_or_scalar Low, operand_or_scalar High>
[[nodiscard]] auto clamp(Operand&& x, Low&& low, High&& high) {
  return detail::make_map<detail::clamp_operation>(std::forward<Operand>(x), std::forward<Low>(low),
                                                   std::forward<High>(high));
}

/// The values converted to another element type, as by static_cast.
template <class Element, operand Operand>
[[nodiscard]] auto cast(Operand&& x) {
  static_assert(explain_element<Element>());
  return detail::make_map<detail::cast_operation<Element>>(std::forward<Operand>(x));
}

}  // namespace gradus

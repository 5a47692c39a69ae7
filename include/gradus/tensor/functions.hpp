// SPDX-License-Identifier: BSL-1.0
//
// The element-wise operators and functions of tensors.
//
// Operands have one shape, layout, device and element type; numbers, tensors of rank 0 and per_channel(v), per_row(v),
// per_column(v), along<axes...>(v) adapt to the others. Every function returns an expression, which is computed in one
// pass when it is assigned. All throw shape_error when the shapes differ.
//
// Values along axes without a tensor beside them stay values along axes, which are computed at once:
// per_row(r) * 2 is per_row(r * 2). per_row(r) * per_column(k) is a matrix.
//
// Derivatives at borders are those of PyTorch; they are named below, for an adjoint of 1. An element has the derivative
// of the operand that it came from. An adjoint of 0 is multiplied as every other: 0 times an infinite derivative is
// NaN.
#pragma once

#include <type_traits>  // std::is_arithmetic_v
#include <utility>      // std::forward

#include "gradus/core/element.hpp"
#include "gradus/tensor/detail/expression/map.hpp"
#include "gradus/tensor/detail/expression/operations.hpp"

namespace gradus {

/// At least one of the operands is not a number.
template <class Left, class Right>
concept operands = operand_or_scalar<Left> && operand_or_scalar<Right> &&
    (elementwise_operand<Left> || elementwise_operand<Right>);

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
/// Derivatives by `left`: 1 / right, infinite at 0; by `right`: -left / right^2, at 0 infinite or, of 0 / 0, NaN.
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto operator/(Left&& left, Right&& right) {
  return detail::make_map<detail::divide_operation>(std::forward<Left>(left), std::forward<Right>(right));
}
template <elementwise_operand Operand>
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
template <elementwise_operand Operand>
[[nodiscard]] auto operator!(Operand&& x) {
  return detail::make_map<detail::not_operation>(std::forward<Operand>(x));
}

/// The values of `yes` where the condition holds, else those of `no`. The branch that is not taken has the adjoint 0,
/// and the derivative NaN where its own is infinite or NaN: for where(x > 0, sqrt(x), 0) write where(x > 0,
/// sqrt(where(x > 0, x, 1)), 0).
template <elementwise_operand Condition, class Yes, class No>
requires operands<Yes, No>
[[nodiscard]] auto where(Condition&& condition, Yes&& yes, No&& no) {
  static_assert(std::is_same_v<typename std::remove_cvref_t<Condition>::value_type, bool>,
                "gradus::where: the condition has the element type bool: write a comparison");
  return detail::make_map<detail::where_operation, 1>(std::forward<Condition>(condition), std::forward<Yes>(yes),
                                                      std::forward<No>(no));
}

/// Infinite, with its derivative, where it is larger than every number; 0 with the derivative 0 far below.
template <elementwise_operand Operand>
[[nodiscard]] auto exp(Operand&& x) {
  return detail::make_map<detail::exp_operation>(std::forward<Operand>(x));
}
/// The natural logarithm: -inf at 0, with an infinite derivative; NaN below, where the derivative is 1 / x.
template <elementwise_operand Operand>
[[nodiscard]] auto log(Operand&& x) {
  return detail::make_map<detail::log_operation>(std::forward<Operand>(x));
}
/// The square root. The derivative is infinite at 0; below, both are NaN.
template <elementwise_operand Operand>
[[nodiscard]] auto sqrt(Operand&& x) {
  return detail::make_map<detail::sqrt_operation>(std::forward<Operand>(x));
}
/// The derivative is 0 where the result is rounded to 1 or -1.
template <elementwise_operand Operand>
[[nodiscard]] auto tanh(Operand&& x) {
  return detail::make_map<detail::tanh_operation>(std::forward<Operand>(x));
}
/// 1 / (1 + exp(-x)). The derivative is 0 where the result is rounded to 0 or 1.
template <elementwise_operand Operand>
[[nodiscard]] auto sigmoid(Operand&& x) {
  return detail::make_map<detail::sigmoid_operation>(std::forward<Operand>(x));
}
/// The absolute value. The derivative is 0 at 0.
template <elementwise_operand Operand>
[[nodiscard]] auto abs(Operand&& x) {
  return detail::make_map<detail::abs_operation>(std::forward<Operand>(x));
}
template <elementwise_operand Operand>
[[nodiscard]] auto square(Operand&& x) {
  return detail::make_map<detail::square_operation>(std::forward<Operand>(x));
}
/// x to the power of a number e. The derivative is e x^(e-1): 0 everywhere for e = 0, and 1 for e = 1; at x = 0
/// infinite for all other e < 1, else 0; NaN, like the power, of x < 0 where e is not a whole number.
template <elementwise_operand Operand, class Exponent>
requires std::is_arithmetic_v<Exponent>
[[nodiscard]] auto pow(Operand&& x, Exponent exponent) {
  return detail::make_map<detail::pow_operation>(std::forward<Operand>(x), exponent);
}

/// The smaller of two values; NaN if one of them is. Each of two equal values has the derivative 1/2, each beside a
/// NaN 1.
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto minimum(Left&& left, Right&& right) {
  return detail::make_map<detail::minimum_operation>(std::forward<Left>(left), std::forward<Right>(right));
}
/// The larger of two values; NaN if one of them is. Each of two equal values has the derivative 1/2, each beside a
/// NaN 1.
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto maximum(Left&& left, Right&& right) {
  return detail::make_map<detail::maximum_operation>(std::forward<Left>(left), std::forward<Right>(right));
}
/// The value of [low, high] that is nearest to x; `high` where low > high; NaN if one of the three is. The derivative
/// by x is 1 inside and at low and high, else that by the bound that is the result is.
template <elementwise_operand Operand, operand_or_scalar Low, operand_or_scalar High>
[[nodiscard]] auto clamp(Operand&& x, Low&& low, High&& high) {
  return detail::make_map<detail::clamp_operation>(std::forward<Operand>(x), std::forward<Low>(low),
                                                   std::forward<High>(high));
}

/// The values converted to another element type, as by static_cast.
template <class Element, elementwise_operand Operand>
[[nodiscard]] auto cast(Operand&& x) {
  static_assert(explain_element<Element>());
  return detail::make_map<detail::cast_operation<Element>>(std::forward<Operand>(x));
}

}  // namespace gradus

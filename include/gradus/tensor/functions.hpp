// SPDX-License-Identifier: BSL-1.0
//
// Element-wise operators and functions of tensors.
//
// Operands have the same shape, layout, device and element type. Numbers, tensors of rank 0 and per_channel(v),
// per_row(v), per_column(v), along<axes...>(v) take the shape of the other operands. Every function returns an
// expression; assigning it evaluates all of it in one pass. All functions throw shape_error when the shapes differ.
//
// An operation on values along axes without a tensor is evaluated at once and gives values along axes:
// per_row(r) * 2 is per_row(r * 2). per_row(r) * per_column(k) is a matrix.
//
// Derivatives at non-differentiable points are those of PyTorch; the comments give them for an adjoint of 1. A result
// that is copied from an operand has that operand's derivative. An adjoint of 0 is multiplied like any other: 0 times
// an infinite derivative is NaN.
#pragma once

#include <concepts>     // std::derived_from
#include <type_traits>  // std::is_arithmetic_v
#include <utility>      // std::forward

#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/tensor/detail/expression/arithmetic.hpp"
#include "gradus/tensor/detail/expression/conditions.hpp"
#include "gradus/tensor/detail/expression/functions.hpp"
#include "gradus/tensor/detail/expression/map.hpp"

namespace gradus::detail {

/// x where the condition holds, else 0.
template <class Condition, class Operand>
[[nodiscard]] auto masked(const Condition& condition, const Operand& x) {
  return make_map<masked_operation, 1>(condition, x);
}

}  // namespace gradus::detail

namespace gradus {

/// Two operands of which at least one is not a number.
template <class Left, class Right>
concept operands = operand_or_scalar<Left> && operand_or_scalar<Right> &&
    (elementwise_operand<Left> || elementwise_operand<Right>);

/// The sum.
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto operator+(Left&& left, Right&& right) {
  return detail::make_map<detail::add_operation>(std::forward<Left>(left), std::forward<Right>(right));
}
/// The difference.
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto operator-(Left&& left, Right&& right) {
  return detail::make_map<detail::subtract_operation>(std::forward<Left>(left), std::forward<Right>(right));
}
/// The product, element by element.
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto operator*(Left&& left, Right&& right) {
  return detail::make_map<detail::multiply_operation>(std::forward<Left>(left), std::forward<Right>(right));
}
/// The quotient. Derivative by `left`: 1 / right, infinite at 0. By `right`: -left / right^2, infinite or, for 0 / 0,
/// NaN at 0.
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto operator/(Left&& left, Right&& right) {
  return detail::make_map<detail::divide_operation>(std::forward<Left>(left), std::forward<Right>(right));
}
/// The negative.
template <elementwise_operand Operand>
[[nodiscard]] auto operator-(Operand&& x) {
  return detail::make_map<detail::negate_operation>(std::forward<Operand>(x));
}

// Comparisons and logic: expressions of bool.
/// True where the operands are equal.
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto operator==(Left&& left, Right&& right) {
  return detail::make_map<detail::equal_operation>(std::forward<Left>(left), std::forward<Right>(right));
}
/// True where the operands differ.
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto operator!=(Left&& left, Right&& right) {
  return detail::make_map<detail::not_equal_operation>(std::forward<Left>(left), std::forward<Right>(right));
}
/// True where left < right.
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto operator<(Left&& left, Right&& right) {
  return detail::make_map<detail::less_operation>(std::forward<Left>(left), std::forward<Right>(right));
}
/// True where left <= right.
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto operator<=(Left&& left, Right&& right) {
  return detail::make_map<detail::less_equal_operation>(std::forward<Left>(left), std::forward<Right>(right));
}
/// True where left > right.
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto operator>(Left&& left, Right&& right) {
  return detail::make_map<detail::less_operation>(std::forward<Right>(right), std::forward<Left>(left));
}
/// True where left >= right.
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto operator>=(Left&& left, Right&& right) {
  return detail::make_map<detail::less_equal_operation>(std::forward<Right>(right), std::forward<Left>(left));
}
/// True where both operands are true.
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto operator&&(Left&& left, Right&& right) {
  return detail::make_map<detail::and_operation>(std::forward<Left>(left), std::forward<Right>(right));
}
/// True where at least one operand is true.
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto operator||(Left&& left, Right&& right) {
  return detail::make_map<detail::or_operation>(std::forward<Left>(left), std::forward<Right>(right));
}
/// True where x is false.
template <elementwise_operand Operand>
[[nodiscard]] auto operator!(Operand&& x) {
  return detail::make_map<detail::not_operation>(std::forward<Operand>(x));
}

/// The values of `yes` where the condition holds, else those of `no`. The branch that is not taken has the adjoint 0,
/// and its derivative is NaN where its own derivative is infinite or NaN: instead of where(x > 0, sqrt(x), 0) write
/// where(x > 0, sqrt(where(x > 0, x, 1)), 0).
template <elementwise_operand Condition, class Yes, class No>
requires operands<Yes, No>
[[nodiscard]] auto where(Condition&& condition, Yes&& yes, No&& no, error_location call = error_location::current()) {
  static_assert(std::is_same_v<typename std::remove_cvref_t<Condition>::value_type, bool>,
                "gradus::where: the condition has the element type bool: write a comparison");
  return at_call(call, [&] {
    return detail::make_map<detail::where_operation, 1>(std::forward<Condition>(condition), std::forward<Yes>(yes),
                                                        std::forward<No>(no));
  });
}

/// In a function that is differentiated, a number where the condition holds and another one elsewhere.
template <std::derived_from<formula_base> Condition, class Yes, class No>
requires std::is_arithmetic_v<Yes> && std::is_arithmetic_v<No>
[[nodiscard]] auto where(const Condition& condition, Yes yes, No no) {
  return detail::make_map<detail::where_operation, 1>(condition, yes, no);
}

/// The exponential. Above the largest finite result it is infinite, and so is its derivative; far below 0 both are 0.
template <elementwise_operand Operand>
[[nodiscard]] auto exp(Operand&& x) {
  return detail::make_map<detail::exp_operation>(std::forward<Operand>(x));
}
/// The natural logarithm. At 0 it is -inf with an infinite derivative; below 0 it is NaN with the derivative 1 / x.
template <elementwise_operand Operand>
[[nodiscard]] auto log(Operand&& x) {
  return detail::make_map<detail::log_operation>(std::forward<Operand>(x));
}
/// The square root. The derivative is infinite at 0; below 0 both are NaN.
template <elementwise_operand Operand>
[[nodiscard]] auto sqrt(Operand&& x) {
  return detail::make_map<detail::sqrt_operation>(std::forward<Operand>(x));
}
/// The hyperbolic tangent. The derivative is 0 where the result is rounded to 1 or -1.
template <elementwise_operand Operand>
[[nodiscard]] auto tanh(Operand&& x) {
  return detail::make_map<detail::tanh_operation>(std::forward<Operand>(x));
}
/// 1 / (1 + exp(-x)). The derivative is 0 where the result is rounded to 0 or 1.
template <elementwise_operand Operand>
[[nodiscard]] auto sigmoid(Operand&& x) {
  return detail::make_map<detail::sigmoid_operation>(std::forward<Operand>(x));
}
/// The error function: 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.
template <elementwise_operand Operand>
[[nodiscard]] auto erf(Operand&& x) {
  return detail::make_map<detail::erf_operation>(std::forward<Operand>(x));
}
/// log(1 + exp(x)), without overflow. The derivative is sigmoid(x).
template <elementwise_operand Operand>
[[nodiscard]] auto softplus(Operand&& x) {
  return detail::make_map<detail::softplus_operation>(std::forward<Operand>(x));
}
/// x where x > 0, else 0; NaN for NaN. The derivative is 1 where x > 0, else 0: at 0 too, where that of maximum(x, 0)
/// is 1/2.
template <elementwise_operand Operand>
[[nodiscard]] auto relu(Operand&& x) {
  return detail::make_map<detail::relu_operation>(std::forward<Operand>(x));
}
/// The absolute value. The derivative is 0 at 0.
template <elementwise_operand Operand>
[[nodiscard]] auto abs(Operand&& x) {
  return detail::make_map<detail::abs_operation>(std::forward<Operand>(x));
}
/// The square.
template <elementwise_operand Operand>
[[nodiscard]] auto square(Operand&& x) {
  return detail::make_map<detail::square_operation>(std::forward<Operand>(x));
}
/// x to the power of a number e. The derivative is e x^(e-1): 0 everywhere for e = 0, and 1 for e = 1. At x = 0 it is
/// infinite for all other e < 1, else 0. For x < 0 and e not a whole number, power and derivative are NaN.
template <elementwise_operand Operand, class Exponent>
requires std::is_arithmetic_v<Exponent>
[[nodiscard]] auto pow(Operand&& x, Exponent exponent) {
  return detail::make_map<detail::pow_operation>(std::forward<Operand>(x), exponent);
}

/// The smaller of two values; NaN if one of them is NaN. Two equal values have the derivative 1/2 each, two values of
/// which one is NaN have 1 each.
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto minimum(Left&& left, Right&& right, error_location where = error_location::current()) {
  return at_call(where, [&] {
    return detail::make_map<detail::minimum_operation>(std::forward<Left>(left), std::forward<Right>(right));
  });
}
/// The larger of two values; NaN if one of them is NaN. Two equal values have the derivative 1/2 each, two values of
/// which one is NaN have 1 each.
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto maximum(Left&& left, Right&& right, error_location where = error_location::current()) {
  return at_call(where, [&] {
    return detail::make_map<detail::maximum_operation>(std::forward<Left>(left), std::forward<Right>(right));
  });
}
/// The same as minimum. (With one operand, min is the smallest element of a tensor.)
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto min(Left&& left, Right&& right, error_location where = error_location::current()) {
  return minimum(std::forward<Left>(left), std::forward<Right>(right), where);
}
/// The same as maximum. (With one operand, max is the largest element of a tensor.)
template <class Left, class Right>
requires operands<Left, Right>
[[nodiscard]] auto max(Left&& left, Right&& right, error_location where = error_location::current()) {
  return maximum(std::forward<Left>(left), std::forward<Right>(right), where);
}
/// The value of [low, high] that is nearest to x; `high` where low > high; NaN if one of the three is NaN. The
/// derivative by x is 1 inside and at low and high. Outside, the bound that is the result has the derivative 1.
template <elementwise_operand Operand, operand_or_scalar Low, operand_or_scalar High>
[[nodiscard]] auto clamp(Operand&& x, Low&& low, High&& high, error_location where = error_location::current()) {
  return at_call(where, [&] {
    return detail::make_map<detail::clamp_operation>(std::forward<Operand>(x), std::forward<Low>(low),
                                                     std::forward<High>(high));
  });
}

/// The values converted to another element type, as by static_cast.
template <class Element, elementwise_operand Operand>
[[nodiscard]] auto cast(Operand&& x) {
  static_assert(explain_element<Element>());
  return detail::make_map<detail::cast_operation<Element>>(std::forward<Operand>(x));
}

}  // namespace gradus

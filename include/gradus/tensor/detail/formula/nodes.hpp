// SPDX-License-Identifier: BSL-1.0
//
// Formulas: what a function object gives for variables in place of tensors. Types that say which operations are applied
// to which variables; they hold nothing but numbers.
#pragma once

#include <concepts>     // std::derived_from, std::same_as
#include <cstddef>      // std::size_t
#include <type_traits>  // std::is_arithmetic_v
#include <utility>      // std::index_sequence, std::index_sequence_for

#include "gradus/tensor/detail/expression/conditions.hpp"
#include "gradus/tensor/detail/expression/map.hpp"
#include "gradus/tensor/functions.hpp"
#include "gradus/tensor/operand.hpp"

namespace gradus::detail {

/// Variable number K of a formula: an input, or in a derivative an operand, the result or the adjoint. Value is bool
/// for a condition.
template <int Index, class Value = double>
struct variable : formula_base {
  using value_type = Value;
};

/// A number in a formula.
struct formula_number {
  using value_type = double;
  double content;
  [[nodiscard]] constexpr double value() const noexcept { return content; }
};

template <class Indices, class... Children>
struct formula_children;
template <std::size_t... Index, class... Children>
struct formula_children<std::index_sequence<Index...>, Children...> : part<Index, Children>... {
  explicit formula_children(const Children&... each) : part<Index, Children>{each}... {}
};

/// Operation(children...)
template <class Operation, class... Children>
struct formula_node : formula_base {
  using value_type = typename Operation::template result<typename Children::value_type...>::type;
  formula_children<std::index_sequence_for<Children...>, Children...> children;

  explicit formula_node(const Children&... each) : children{each...} {}
};

/// A child of a node.
template <std::size_t Index, class Operation, class... Children>
[[nodiscard]] const auto& child_of(const formula_node<Operation, Children...>& node) noexcept {
  return static_cast<const part<Index, typename nth<Index, Children...>::type>&>(node.children).value;
}

/// A sum or mean of a formula over all elements: what a loss ends with.
template <class Node, bool Mean>
struct reduced_formula : formula_base {
  using value_type = double;
  Node terms;  // the formula of one element
  explicit reduced_formula(const Node& each) : terms{each} {}
};
template <class Node>
inline constexpr bool is_reduced_formula = false;
template <class Node, bool Mean>
inline constexpr bool is_reduced_formula<reduced_formula<Node, Mean>> = true;

template <class Operand>
[[nodiscard]] auto formula_operand(const Operand& operand) {
  if constexpr (std::is_arithmetic_v<Operand>) {
    return formula_number{static_cast<double>(operand)};
  } else {
    static_assert(std::derived_from<Operand, formula_base>,
                  "gradus: a function that is differentiated combines its arguments and numbers: pass a tensor as "
                  "another input of the layer, or as a parameter");
    static_assert(!is_reduced_formula<Operand>,
                  "gradus: sum and mean of a function that is differentiated end a loss: an element-wise function has "
                  "none, and a loss computes with elements inside of them, mean(2 * square(y - t))");
    return operand;
  }
}

template <class Node>
inline constexpr bool is_condition = std::same_as<typename Node::value_type, bool>;

/// Operands of where() are a condition and two numbers, those of logic are conditions, all others are numbers.
template <class Operation, class First, class... Rest>
consteval bool explain_formula_operands() {
  if constexpr (std::same_as<Operation, where_operation> || std::same_as<Operation, masked_operation>) {
    static_assert((!is_condition<Rest> && ...), "gradus::where: a formula chooses between numbers, not conditions");
  } else if constexpr (Operation::takes_masks) {
    static_assert(is_condition<First> && (is_condition<Rest> && ...),
                  "gradus: && || ! in a formula combine conditions: write comparisons, x > 0 && y > 0");
  } else {
    static_assert(!is_condition<First> && !(is_condition<Rest> || ...),
                  "gradus: a comparison is not differentiable and not a number in a formula: write "
                  "where(condition, 1, 0)");
  }
  return true;
}

/// The formula Operation(operands...): make_map calls it where an operand is a formula.
template <class Operation, class... Operands>
[[nodiscard]] auto make_formula(const Operands&... operands) {
  static_assert(explain_formula_operands<Operation, decltype(formula_operand(operands))...>());
  return formula_node<Operation, decltype(formula_operand(operands))...>{formula_operand(operands)...};
}

}  // namespace gradus::detail

// SPDX-License-Identifier: BSL-1.0
//
// The types that expressions take as operands, and their conversion to nodes.
#pragma once

#include <concepts>     // std::derived_from, std::same_as
#include <cstddef>      // std::size_t
#include <type_traits>  // std::is_arithmetic_v, std::remove_cvref_t, std::is_lvalue_reference_v
#include <utility>      // std::forward, std::move

#include "gradus/tensor/detail/expression/evaluate.hpp"
#include "gradus/tensor/expression.hpp"

namespace gradus::detail {

/// The shape, layout and device that operands must have.
template <int Rank, class Layout, class Device>
struct shape_of {
  static constexpr int rank = Rank;
  using layout_type = Layout;
  using device_type = Device;
  gradus::extents<Rank> shape;
  [[nodiscard]] const gradus::extents<Rank>& extents() const noexcept { return shape; }
};

template <class Operand>
inline constexpr bool is_tensor = false;
template <class Element, int Rank, class Layout, class Device>
inline constexpr bool is_tensor<tensor<Element, Rank, Layout, Device>> = true;

/// Returns expressions and scalars unchanged, and tensors as leaves: a view of an lvalue, an owner of an rvalue.
template <class Operand>
[[nodiscard]] auto as_node(Operand&& x) {
  using type = std::remove_cvref_t<Operand>;
  if constexpr (requires { x.as_node(); }) {
    return x.as_node();
  } else if constexpr (expression<type> || !tensor_operand<type>) {
    return type(std::forward<Operand>(x));
  } else {
    using leaf_type =
        leaf<typename type::value_type, type::rank, typename type::layout_type, typename type::device_type>;
    if constexpr (is_tensor<type> && !std::is_lvalue_reference_v<Operand> &&
                  !std::is_const_v<std::remove_reference_t<Operand>>) {
      auto& device = x.device();
      const auto shape = x.extents();
      const auto bytes = static_cast<std::size_t>(shape.size()) * sizeof(typename type::value_type);
      return leaf_type{device, shared_buffer<typename type::device_type>{device, x.release(), bytes}, shape};
    } else {
      return leaf_type{x.device(), x.data(), x.extents()};
    }
  }
}

/// Values in memory, and the expression that they were computed from.
template <class Result, class Child>
class computed_node : public Result {
 public:
  static constexpr int complexity = 1 + Child::complexity;
  computed_node(Result result, Child child) : Result{std::move(result)}, child_{std::move(child)} {}
  [[nodiscard]] const Child& child() const noexcept { return child_; }
  [[nodiscard]] bool reads(const void* data) const noexcept { return child_.reads(data); }
  template <class Leaf>
  static constexpr bool has_leaf = Child::template has_leaf<Leaf>;

 private:
  Child child_;
};

/// The stored result of an expression, and the expression.
template <class Child>
class stored_node : public computed_node<evaluated_leaf<Child>, Child> {
 public:
  explicit stored_node(Child child)
      : computed_node<evaluated_leaf<Child>, Child>{evaluate_stored(child), std::move(child)} {}
};

/// The node itself if its values are in memory, else its stored result.
template <class Node>
[[nodiscard]] auto stored(Node node) {
  if constexpr (Node::stored) {
    return node;
  } else {
    return stored_node<Node>{std::move(node)};
  }
}

}  // namespace gradus::detail

namespace gradus {

/// The base of operands that take the shape of another operand.
struct waiting_operand {};

/// The base of what a function object gives for variables in place of tensors (tensor/formula.hpp). The operators and
/// functions of tensors make formulas of formulas.
struct formula_base : waiting_operand {
  /// Refuses `if (x > 0)`.
  template <std::same_as<bool> Condition>
  explicit operator Condition() const {
    static_assert(!std::same_as<Condition, bool>,
                  "gradus: a function that is differentiated has no branches: write where(condition, yes, no) instead "
                  "of if and ?:");
    return false;
  }
};

/// An operand of operators: an expression, a tensor or a view.
template <class Operand>
concept operand = expression<Operand> || tensor_operand<Operand>;

/// An operand of element-wise functions: the same, and values along some axes of another operand.
template <class Operand>
concept elementwise_operand = operand<Operand> || std::derived_from<std::remove_cvref_t<Operand>, waiting_operand>;

/// An operand of binary element-wise functions: the same, and numbers.
template <class Operand>
concept operand_or_scalar = elementwise_operand<Operand> || std::is_arithmetic_v<std::remove_cvref_t<Operand>>;

}  // namespace gradus

// SPDX-License-Identifier: BSL-1.0
//
// Other orders of axes: permute and swap_axes.
#pragma once

#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <type_traits>  // std::remove_cvref_t
#include <utility>      // std::forward, std::index_sequence, std::make_index_sequence, std::move

#include "gradus/core/extents.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/tensor/assign.hpp"
#include "gradus/tensor/expression.hpp"
#include "gradus/tensor/matrix.hpp"
#include "gradus/tensor/operand.hpp"

namespace gradus::detail {

/// True if each number from 0 is in the list once.
template <std::size_t Rank>
[[nodiscard]] consteval bool is_permutation(const std::array<int, Rank>& axes) {
  std::array<bool, Rank> seen{};
  for (const int axis : axes) {
    if (axis < 0 || axis >= static_cast<int>(Rank) || seen[static_cast<std::size_t>(axis)]) {
      return false;
    }
    seen[static_cast<std::size_t>(axis)] = true;
  }
  return true;
}

/// The axis that takes the place of `axis` when two are exchanged.
[[nodiscard]] consteval int swapped(int axis, int first, int second) {
  return axis == first ? second : axis == second ? first : axis;
}

template <class Child>
using permuted_leaf = leaf<typename Child::value_type, Child::rank, row_major, typename Child::device_type>;

/// A tensor with its axes in another order: axis i is axis Axes[i] of the child.
template <class Child, int... Axes>
class permuted_node : public computed_node<permuted_leaf<Child>, Child> {
 public:
  static constexpr std::array<int, sizeof...(Axes)> axes{Axes...};
  /// True if the child's memory has the order of the result.
  static constexpr bool shares_memory = axes == memory_order<typename Child::layout_type, Child::rank>;

  explicit permuted_node(Child child) : computed_node<permuted_leaf<Child>, Child>{permuted(child), std::move(child)} {}

 private:
  static permuted_leaf<Child> permuted(const Child& child) {
    if constexpr (shares_memory) {
      return {child, 0, extents<Child::rank>{std::array<index_t, sizeof...(Axes)>{child.extents()[Axes]...}}};
    } else {
      return reordered<row_major>(child, axes);
    }
  }
};

template <class Child, int... Axes, class Adjoint, class Sink>
void backward(const permuted_node<Child, Axes...>& node, const Adjoint& adjoint, Sink& sink) {
  using layout = typename Child::layout_type;
  const auto values = detail::stored(adjoint);
  if constexpr (permuted_node<Child, Axes...>::shares_memory) {
    propagate(node.child(),
              leaf<typename Child::value_type, Child::rank, layout, typename Child::device_type>{
                  values, 0, node.child().extents()},
              sink);
  } else {
    constexpr auto inverse = [] {
      std::array<int, sizeof...(Axes)> result{};
      int position = 0;
      ((result[static_cast<std::size_t>(Axes)] = position++), ...);
      return result;
    }();
    propagate(node.child(), reordered<layout>(values, inverse), sink);
  }
}

/// The same tensor as row_major.
template <class Node>
[[nodiscard]] auto as_row_major(Node node) {
  return [&]<std::size_t... Axes>(std::index_sequence<Axes...>) {
    return permuted_node<Node, static_cast<int>(Axes)...>{std::move(node)};
  }
  (std::make_index_sequence<static_cast<std::size_t>(Node::rank)>{});
}

}  // namespace gradus::detail

namespace gradus {

/// The tensor with its axes in another order, as torch.permute and numpy.transpose: axis i of the result is axis
/// `Axes[i]` of x. permute<1, 2, 0>(x) of shape (2, 3, 5) has the shape (3, 5, 2). The result is row_major.
///
/// It shares the memory of x where that has the order of the result: permute<0, 2, 3, 1> of nhwc images. Otherwise it
/// is evaluated.
template <auto... Axes, operand Operand>
requires(sizeof...(Axes) > 0) [[nodiscard]] auto permute(Operand&& x) {
  auto node = detail::stored(detail::as_node(std::forward<Operand>(x)));
  using type = decltype(node);
  static_assert(type::rank == static_cast<int>(sizeof...(Axes)),
                "gradus::permute: one axis for each axis of the tensor");
  static_assert(detail::is_permutation(std::array<int, sizeof...(Axes)>{static_cast<int>(Axes)...}),
                "gradus::permute: each axis of the tensor once, numbered from 0");
  return detail::permuted_node<type, static_cast<int>(Axes)...>{std::move(node)};
}

/// The tensor with two axes exchanged, as numpy.swapaxes: swap_axes<0, 2>(x). The result is row_major, and shares the
/// memory of x as permute does. transpose(x) of a matrix is swap_axes<0, 1>(x), and costs nothing inside matmul.
template <auto First, auto Second, operand Operand>
[[nodiscard]] auto swap_axes(Operand&& x) {
  constexpr int rank = std::remove_cvref_t<Operand>::rank;
  constexpr int first = static_cast<int>(First);
  constexpr int second = static_cast<int>(Second);
  static_assert(first >= 0 && first < rank && second >= 0 && second < rank,
                "gradus::swap_axes: an axis that the tensor does not have: axes are numbered from 0 in logical order");
  return [&]<std::size_t... Axes>(std::index_sequence<Axes...>) {
    return permute<detail::swapped(static_cast<int>(Axes), first, second)...>(std::forward<Operand>(x));
  }
  (std::make_index_sequence<static_cast<std::size_t>(rank)>{});
}

}  // namespace gradus

// SPDX-License-Identifier: BSL-1.0
//
// Functions of scores in expressions: softmax, log_softmax. They run on every device with expressions and have
// derivatives. The layers of networks are in gradus/nn/layers.hpp.
#pragma once

#include <bit>          // std::popcount
#include <string_view>  // std::string_view
#include <type_traits>  // std::remove_cvref_t
#include <utility>      // std::forward, std::move

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/tensor/assign.hpp"
#include "gradus/tensor/broadcast.hpp"
#include "gradus/tensor/expression.hpp"
#include "gradus/tensor/functions.hpp"
#include "gradus/tensor/operand.hpp"
#include "gradus/tensor/reduction.hpp"

namespace gradus {

namespace detail {

/// x - max(x) along the axes in `Reduced`, and the values that a reduction leaves as an operand of the same shape.
template <unsigned Reduced>
struct along_kept {
  template <class Node, class Values>
  [[nodiscard]] static auto repeat(const Node& node, Values values) {
    constexpr unsigned kept = all_axes<Node::rank> & ~Reduced;
    return broadcast<Values, Node::rank, typename Node::layout_type, kept>{std::move(values), node.extents()};
  }

  /// The largest value is subtracted, so that exp does not overflow. The result does not depend on what is subtracted:
  /// it needs no derivative.
  template <class Node>
  [[nodiscard]] static auto shifted(const Node& node) {
    using element = typename Node::value_type;
    static_assert(explain_reduce<typename Node::device_type, max_kind<element>, Reduced, Node>());
    return node - repeat(node, reduce<max_kind<element>, Reduced>(node.device(), node));
  }

  template <class Node>
  [[nodiscard]] static auto sums(const Node& node) {
    auto result = reduction_node<sum_kind<typename Node::value_type>, Reduced, Node>{node};
    return repeat(node, std::move(result));
  }
};

template <class Node, unsigned Reduced>
void check_softmax(std::string_view operation, const Node& node, error_location where) {
  static_assert(real_element<typename Node::value_type>,
                "gradus: softmax and log_softmax of float or double: use cast<float>(x)");
  if (extents_of<Reduced>(node.extents()).size() == 0) {
    raise<shape_error>(operation, "at least one entry along the axis", to_string(node.extents()), {}, where);
  }
}

}  // namespace detail

/// exp(x) / (the sum of exp(x) along the axis): `softmax<1>(scores)` of a matrix gives a distribution in each row.
/// Large numbers do not overflow. Minus infinity gives 0. With NaN, infinity or only minus infinity along the axis, the
/// results along it are NaN. exp(x - max(x)) is evaluated at once, the quotient with the expression that it is part of.
/// @throws shape_error when there is no entry along the axis
template <auto Axis, operand Operand>
[[nodiscard]] auto softmax(Operand&& x, error_location where = error_location::current()) {
  const auto node = detail::stored(detail::as_node(std::forward<Operand>(x)));
  using type = std::remove_cvref_t<decltype(node)>;
  static_assert(static_cast<int>(Axis) >= 0 && static_cast<int>(Axis) < type::rank,
                "gradus::softmax: an axis that the tensor does not have: axes are numbered from 0 in logical order");
  constexpr unsigned reduced = detail::axis_mask<Axis>;
  detail::check_softmax<type, reduced>("softmax", node, where);
  using along_axis = detail::along_kept<reduced>;
  const auto weights = detail::stored(exp(along_axis::shifted(node)));
  return weights / along_axis::sums(weights);
}

/// The logarithm of softmax: x - max(x) - log(the sum of exp(x - max(x)) along the axis). It is finite where softmax is
/// rounded to 0.
/// @throws shape_error when there is no entry along the axis
template <auto Axis, operand Operand>
[[nodiscard]] auto log_softmax(Operand&& x, error_location where = error_location::current()) {
  const auto node = detail::stored(detail::as_node(std::forward<Operand>(x)));
  using type = std::remove_cvref_t<decltype(node)>;
  static_assert(
      static_cast<int>(Axis) >= 0 && static_cast<int>(Axis) < type::rank,
      "gradus::log_softmax: an axis that the tensor does not have: axes are numbered from 0 in logical order");
  constexpr unsigned reduced = detail::axis_mask<Axis>;
  detail::check_softmax<type, reduced>("log_softmax", node, where);
  using along_axis = detail::along_kept<reduced>;
  const auto shifted = along_axis::shifted(node);
  using sum_of_exp = detail::sum_kind<typename type::value_type>;
  auto exponentials = exp(shifted);
  auto logarithms =
      detail::stored(log(detail::reduction_node<sum_of_exp, reduced, decltype(exponentials)>{std::move(exponentials)}));
  return shifted - along_axis::repeat(node, std::move(logarithms));
}

}  // namespace gradus

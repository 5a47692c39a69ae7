// SPDX-License-Identifier: BSL-1.0
//
// Evaluation of nodes into temporaries and views.
#pragma once

#include <concepts>     // std::same_as
#include <cstddef>      // std::size_t
#include <type_traits>  // std::remove_cvref_t
#include <utility>      // std::move

#include "gradus/core/error.hpp"
#include "gradus/tensor/detail/cpu/evaluate.hpp"
#include "gradus/tensor/expression.hpp"

namespace gradus::detail {

template <class Node>
using evaluated_leaf =
    leaf<typename Node::value_type, Node::rank, typename Node::layout_type, typename Node::device_type>;

/// A node that its device can evaluate.
template <class Node>
concept computable = requires(const Node& node, typename Node::value_type* out) {
  evaluate_to(node.device(), out, node);
};

template <class Node>
constexpr bool require_computable() {
  static_assert(computable<Node>,
                "gradus: this device has no expressions yet: include the header that computes them on it, for "
                "gradus::cuda gradus/tensor/cuda.cuh");
  return true;
}

/// Evaluates a node into a temporary.
template <class Node>
[[nodiscard]] evaluated_leaf<Node> evaluate_stored(const Node& node) {
  static_assert(require_computable<Node>());
  temporary<typename Node::value_type, Node::rank, typename Node::layout_type, typename Node::device_type> result{
      node.device(), node.extents()};
  evaluate_to(node.device(), result.data(), node);
  return std::move(result).done();
}

/// Evaluates a node into a view.
template <class Element, int Rank, class Layout, class Device, class Node>
void assign_node(const tensor_view<Element, Rank, Layout, Device>& destination, const Node& node,
                 error_location where = error_location::current()) {
  static_assert(!std::is_const_v<Element>, "gradus: assignment to a view of const elements");
  static_assert(Node::rank == Rank, "gradus: assignment of an expression of another rank");
  static_assert(std::same_as<typename Node::device_type, Device>,
                "gradus: assignment of an expression on another device: copy it first");
  static_assert(Node::rank != Rank || std::same_as<typename Node::layout_type, Layout>,
                "gradus: assignment of an expression of another layout: use layout_cast<...>(x)");
  static_assert(std::same_as<typename Node::value_type, Element>,
                "gradus: assignment of an expression of another element type: use cast<...>(x)");
  static_assert(require_computable<Node>());
  if (node.extents() != destination.extents()) {
    raise<shape_error>("assignment", to_string(destination.extents()), to_string(node.extents()), {}, where);
  }
  if (node.overlaps(destination.data(), destination.data() + destination.size())) {
    const auto values = evaluate_stored(node);
    destination.device().copy(destination.data(), values.data(),
                              static_cast<std::size_t>(destination.size()) * sizeof(Element));
    return;
  }
  evaluate_to(destination.device(), destination.data(), node);
}

}  // namespace gradus::detail

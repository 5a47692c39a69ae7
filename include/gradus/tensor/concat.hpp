// SPDX-License-Identifier: BSL-1.0
//
// Several tensors as one: concat along an axis, stack along a new axis. Both are evaluated.
//
//   const gradus::tensor<float, 2> both = concat<1>(left, right);  // rows of left, continued by those of right
//   const gradus::tensor<float, 3> batch = stack<0>(rows);         // rows: a std::vector of matrices
//
// Up to four tensors are arguments; a std::vector holds any number.
#pragma once

#include <array>        // std::array
#include <concepts>     // std::same_as
#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <string_view>  // std::string_view
#include <tuple>        // std::apply, std::get, std::tuple
#include <type_traits>  // std::remove_cvref_t
#include <utility>      // std::forward, std::move
#include <vector>       // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/tensor/detail/rows/join.hpp"
#include "gradus/tensor/expression.hpp"
#include "gradus/tensor/operand.hpp"
#include "gradus/tensor/reshape.hpp"

namespace gradus::detail {

/// Stored nodes of several types.
template <class First, class... Rest>
struct different_nodes {
  using first_type = First;
  std::tuple<First, Rest...> nodes;

  static_assert((std::same_as<typename First::value_type, typename Rest::value_type> && ...),
                "gradus: operands of different element types in one expression: use cast<...>(x)");
  static_assert(((First::rank == Rest::rank) && ...), "gradus: concat and stack join tensors of the same rank");
  static_assert((std::same_as<typename First::layout_type, typename Rest::layout_type> && ...),
                "gradus: operands of different layouts in one expression: use layout_cast<...>(x)");
  static_assert((std::same_as<typename First::device_type, typename Rest::device_type> && ...),
                "gradus: operands on different devices in one expression: copy one of them first");

  [[nodiscard]] const First& front() const noexcept { return std::get<0>(nodes); }
  template <class Body>
  void each(const Body& body) const {
    std::apply([&](const auto&... node) { (body(node), ...); }, nodes);
  }
  template <class Leaf>
  static constexpr bool has_leaf = (First::template has_leaf<Leaf> || ... || Rest::template has_leaf<Leaf>);
};

/// Stored nodes of one type.
template <class Node>
struct equal_nodes {
  using first_type = Node;
  std::vector<Node> nodes;

  [[nodiscard]] const Node& front() const noexcept { return nodes.front(); }
  template <class Body>
  void each(const Body& body) const {
    for (const Node& node : nodes) {
      body(node);
    }
  }
  template <class Leaf>
  static constexpr bool has_leaf = Node::template has_leaf<Leaf>;
};

/// Tensors one after the other along an axis, in memory.
template <int Axis, class Nodes>
class concat_node : public evaluated_leaf<typename Nodes::first_type> {
  using first_type = typename Nodes::first_type;
  using base_type = evaluated_leaf<first_type>;

 public:
  concat_node(Nodes nodes, std::string_view operation, error_location where)
      : base_type{joined(nodes, operation, where)}, nodes_{std::move(nodes)} {}

  [[nodiscard]] const Nodes& nodes() const noexcept { return nodes_; }
  [[nodiscard]] bool reads(const void* data) const noexcept {
    bool result = false;
    nodes_.each([&](const auto& node) { result = result || node.reads(data); });
    return result;
  }
  template <class Leaf>
  static constexpr bool has_leaf = Nodes::template has_leaf<Leaf>;

 private:
  static base_type joined(const Nodes& nodes, std::string_view operation, error_location where) {
    using element = typename first_type::value_type;
    using layout = typename first_type::layout_type;
    const auto& first = nodes.front().extents();
    index_t extent = 0;
    std::vector<row_part<element>> parts;
    nodes.each([&](const auto& node) {
      const auto& shape = node.extents();
      if (with_extent(shape, Axis, first[Axis]) != first) {
        raise<shape_error>(operation, {"tensors of the shape ", to_string(first), " except along axis ", Axis},
                           to_string(shape), {}, where);
      }
      const auto lengths = lengths_around<layout, Axis>(shape);
      extent += lengths.extent;
      parts.push_back({node.data(), lengths.extent * lengths.inner, lengths.extent * lengths.inner});
    });
    auto& device = nodes.front().device();
    temporary<element, first_type::rank, layout, typename first_type::device_type> result{
        device, with_extent(first, Axis, extent)};
    join_rows(device, result.data(), lengths_around<layout, Axis>(first).outer,
              std::span<const row_part<element>>{parts});
    return std::move(result).done();
  }

  Nodes nodes_;
};

template <int Axis, class Nodes, class Adjoint, class Sink>
void backward(const concat_node<Axis, Nodes>& node, const Adjoint& adjoint, Sink& sink) {
  const auto values = detail::stored(adjoint);
  index_t begin = 0;
  node.nodes().each([&](const auto& child) {
    const index_t extent = child.extents()[Axis];
    propagate(child, entries_of<Axis>(values, {begin, extent, 1}), sink);
    begin += extent;
  });
}

/// The operand as a stored node, for stack with one more axis of extent 1.
template <int Axis, bool Stacked, class Operand>
[[nodiscard]] auto node_to_join(Operand&& x) {
  auto node = detail::stored(as_node(std::forward<Operand>(x)));
  if constexpr (Stacked) {
    constexpr int rank = decltype(node)::rank + 1;
    std::array<index_t, static_cast<std::size_t>(rank)> shape{};
    for (int axis = 0; axis < rank; ++axis) {
      shape[static_cast<std::size_t>(axis)] = axis == Axis ? 1 : node.extents()[axis < Axis ? axis : axis - 1];
    }
    return reshaped<row_major>(std::move(node), extents<rank>{shape});
  } else {
    return node;
  }
}

template <auto Axis, bool Stacked, class First, class... Rest>
[[nodiscard]] auto join(error_location where, First&& first, Rest&&... rest) {
  constexpr int axis = axis_number<Axis, std::remove_cvref_t<First>::rank + (Stacked ? 1 : 0)>();
  const auto build = [&]<class... Nodes>(Nodes... nodes) {
    using all = different_nodes<Nodes...>;
    return concat_node<axis, all>{all{{std::move(nodes)...}}, Stacked ? "stack" : "concat", where};
  };
  return build(node_to_join<axis, Stacked>(std::forward<First>(first)),
               node_to_join<axis, Stacked>(std::forward<Rest>(rest))...);
}

template <auto Axis, bool Stacked, class Operand>
[[nodiscard]] auto join_all(const std::vector<Operand>& list, error_location where) {
  constexpr const char* operation = Stacked ? "stack" : "concat";
  constexpr int axis = axis_number<Axis, Operand::rank + (Stacked ? 1 : 0)>();
  if (list.empty()) {
    raise<shape_error>(operation, "at least one tensor", "an empty std::vector", {}, where);
  }
  equal_nodes<decltype(node_to_join<axis, Stacked>(list.front()))> all;
  all.nodes.reserve(list.size());
  for (const Operand& x : list) {
    all.nodes.push_back(node_to_join<axis, Stacked>(x));
  }
  return concat_node<axis, decltype(all)>{std::move(all), operation, where};
}

}  // namespace gradus::detail

namespace gradus {

/// Tensors one after the other along an axis, as numpy.concatenate and torch.cat. The other extents, the layouts and
/// the element types are the same.
/// @throws shape_error when the other extents differ
template <auto Axis, operand First, operand Second>
[[nodiscard]] auto concat(First&& first, Second&& second, error_location where = error_location::current()) {
  return detail::join<Axis, false>(where, std::forward<First>(first), std::forward<Second>(second));
}
/// The same for three tensors. @throws shape_error when the other extents differ
template <auto Axis, operand First, operand Second, operand Third>
[[nodiscard]] auto concat(First&& first, Second&& second, Third&& third,
                          error_location where = error_location::current()) {
  return detail::join<Axis, false>(where, std::forward<First>(first), std::forward<Second>(second),
                                   std::forward<Third>(third));
}
/// The same for four tensors. @throws shape_error when the other extents differ
template <auto Axis, operand First, operand Second, operand Third, operand Fourth>
[[nodiscard]] auto concat(First&& first, Second&& second, Third&& third, Fourth&& fourth,
                          error_location where = error_location::current()) {
  return detail::join<Axis, false>(where, std::forward<First>(first), std::forward<Second>(second),
                                   std::forward<Third>(third), std::forward<Fourth>(fourth));
}
/// The same for a list of tensors, views or expressions of one type, such as split returns.
/// @throws shape_error when the other extents differ, or the list is empty
template <auto Axis, operand Operand>
[[nodiscard]] auto concat(const std::vector<Operand>& list, error_location where = error_location::current()) {
  return detail::join_all<Axis, false>(list, where);
}

/// Tensors of one shape along a new axis, as numpy.stack and torch.stack: stack<0>(a, b) of shape (3, 5) has the shape
/// (2, 3, 5), stack<2>(a, b) has (3, 5, 2). The result is row_major.
/// @throws shape_error when the shapes differ
template <auto Axis, operand First, operand Second>
[[nodiscard]] auto stack(First&& first, Second&& second, error_location where = error_location::current()) {
  return detail::join<Axis, true>(where, std::forward<First>(first), std::forward<Second>(second));
}
/// The same for three tensors. @throws shape_error when the shapes differ
template <auto Axis, operand First, operand Second, operand Third>
[[nodiscard]] auto stack(First&& first, Second&& second, Third&& third,
                         error_location where = error_location::current()) {
  return detail::join<Axis, true>(where, std::forward<First>(first), std::forward<Second>(second),
                                  std::forward<Third>(third));
}
/// The same for four tensors. @throws shape_error when the shapes differ
template <auto Axis, operand First, operand Second, operand Third, operand Fourth>
[[nodiscard]] auto stack(First&& first, Second&& second, Third&& third, Fourth&& fourth,
                         error_location where = error_location::current()) {
  return detail::join<Axis, true>(where, std::forward<First>(first), std::forward<Second>(second),
                                  std::forward<Third>(third), std::forward<Fourth>(fourth));
}
/// The same for a list of tensors, views or expressions of one type.
/// @throws shape_error when the shapes differ, or the list is empty
template <auto Axis, operand Operand>
[[nodiscard]] auto stack(const std::vector<Operand>& list, error_location where = error_location::current()) {
  return detail::join_all<Axis, true>(list, where);
}

}  // namespace gradus

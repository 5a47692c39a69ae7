// SPDX-License-Identifier: BSL-1.0
//
// Element-wise nodes, and the conversion of their operands (tensors, scalars, values along axes).
#pragma once

#include <algorithm>    // std::all_of, std::find, std::max, std::max_element
#include <array>        // std::array
#include <bit>          // std::popcount
#include <concepts>     // std::derived_from, std::same_as
#include <cstddef>      // std::size_t
#include <string_view>  // std::string_view
#include <type_traits>  // std::is_arithmetic_v, std::remove_cvref_t
#include <utility>      // std::forward, std::index_sequence, std::index_sequence_for, std::move

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/tensor/broadcast.hpp"
#include "gradus/tensor/expression.hpp"
#include "gradus/tensor/operand.hpp"

namespace gradus::detail {

/// True if the packets of a node hold its values. (Packets of comparisons are masks.)
template <class Node>
inline constexpr bool same_as_packet = std::same_as<typename Node::value_type, typename Node::packet_element>;

/// The K-th type of a list.
template <std::size_t Index, class First, class... Rest>
struct nth : nth<Index - 1, Rest...> {};
template <class First, class... Rest>
struct nth<0, First, Rest...> {
  using type = First;
};

template <std::size_t Index, class First, class... Rest>
[[nodiscard]] const auto& pick([[maybe_unused]] const First& first, const Rest&... rest) noexcept {
  if constexpr (Index == 0) {
    return first;
  } else {
    return pick<Index - 1>(rest...);
  }
}

template <class Operation, class... Children>
class map;

/// One of several values of a node. As a base class it compiles in a fraction of the time of a std::tuple, and an
/// expression with its derivatives has hundreds of them.
template <std::size_t Index, class Value>
struct part {
  Value value;
};

template <class Operation, class Indices, class... Cursors>
class map_cursor;

template <class Operation, std::size_t... Index, class... Cursors>
class map_cursor<Operation, std::index_sequence<Index...>, Cursors...> : part<Index, Cursors>... {
 public:
  static constexpr bool approximated = Operation::approximated || (Cursors::approximated || ...);
  explicit map_cursor(const Cursors&... children) noexcept : part<Index, Cursors>{children}... {}
  GRADUS_ALWAYS_INLINE auto scalar(index_t j) const noexcept {
    return Operation::scalar(part<Index, Cursors>::value.scalar(j)...);
  }
  template <class Packet>
  GRADUS_ALWAYS_INLINE Packet packet(index_t j) const noexcept {
    return Operation::packet(part<Index, Cursors>::value.template packet<Packet>(j)...);
  }
  template <class Packet>
  GRADUS_ALWAYS_INLINE Packet first_lanes(index_t j, index_t count) const noexcept {
    return Operation::packet(part<Index, Cursors>::value.template first_lanes<Packet>(j, count)...);
  }
};

template <class Operation, class Indices, class... Children>
class map_children;

/// The functions of a map that call all of its children.
template <class Operation, std::size_t... Index, class... Children>
class map_children<Operation, std::index_sequence<Index...>, Children...> : part<Index, Children>... {
 public:
  using cursor = map_cursor<Operation, std::index_sequence<Index...>, typename Children::cursor...>;

  [[nodiscard]] cursor row(index_t r) const noexcept { return cursor{part<Index, Children>::value.row(r)...}; }
  [[nodiscard]] auto detached() const {
    return map<Operation, std::remove_cvref_t<decltype(part<Index, Children>::value.detached())>...>{
        part<Index, Children>::value.detached()...};
  }
  [[nodiscard]] bool reads(const void* data) const noexcept {
    return (part<Index, Children>::value.reads(data) || ...);
  }
  [[nodiscard]] bool overlaps(const void* begin, const void* end) const noexcept {
    return (part<Index, Children>::value.overlaps(begin, end) || ...);
  }

  template <std::size_t Position>
  [[nodiscard]] const typename nth<Position, Children...>::type& child() const noexcept {
    return static_cast<const part<Position, typename nth<Position, Children...>::type>&>(*this).value;
  }

 protected:
  explicit map_children(Children&... children) : part<Index, Children>{std::move(children)}... {}
};

/// Operation(children...), element by element. The children have the same shape, layout and device.
template <class Operation, class... Children>
class map : public expression_base, public map_children<Operation, std::index_sequence_for<Children...>, Children...> {
 public:
  static constexpr std::size_t last = sizeof...(Children) - 1;
  template <std::size_t Index>
  using child_type = typename nth<Index, Children...>::type;

  using operation_type = Operation;
  using value_type = typename Operation::template result<typename Children::value_type...>::type;
  using layout_type = typename child_type<0>::layout_type;
  using device_type = typename child_type<0>::device_type;
  using packet_element = typename child_type<last>::packet_element;
  static constexpr int rank = child_type<0>::rank;
  static constexpr bool stored = false;
  static constexpr bool has_shape = true;
  static constexpr bool linear = (Children::linear && ...);
  static constexpr bool vectorizable =
      (Children::vectorizable && ...) && (std::same_as<typename Children::packet_element, packet_element> && ...) &&
      (Operation::takes_masks || (same_as_packet<Children> && ...)) && Operation::template vectorizable<packet_element>;
  static constexpr int complexity = (1 + ... + Children::complexity);

  explicit map(Children... children)
      : map_children<Operation, std::index_sequence_for<Children...>, Children...>{children...} {}

  [[nodiscard]] device_type& device() const noexcept { return shaped().device(); }
  [[nodiscard]] const gradus::extents<rank>& extents() const noexcept { return shaped().extents(); }
  template <class Leaf>
  static constexpr bool has_leaf = (Children::template has_leaf<Leaf> || ...);

 private:
  [[nodiscard]] const auto& shaped() const noexcept {
    constexpr std::array<bool, sizeof...(Children)> has{Children::has_shape...};
    constexpr std::size_t first = [&] {
      std::size_t k = 0;
      while (!has[k]) {
        ++k;
      }
      return k;
    }();
    return this->template child<first>();
  }
};

/// The rank of an operand; scalars and values along axes have no shape of their own and adapt to the others.
template <class Node>
inline constexpr int shape_rank = [] {
  if constexpr (expression<Node>) {
    return Node::has_shape ? Node::rank : -1;
  } else {
    return -1;
  }
}();

/// Converts the operand to a node with the shape, layout and device of `prototype`.
template <class Scalar, class Node, class Prototype>
[[nodiscard]] auto bind(std::string_view operation, Node node, const Prototype& prototype) {
  using layout = typename Prototype::layout_type;
  using device = typename Prototype::device_type;
  constexpr int rank = Prototype::rank;
  if constexpr (std::is_arithmetic_v<Node>) {
    return constant<Scalar, rank, layout, device>{static_cast<Scalar>(node)};
  } else if constexpr (is_constant<Node>) {
    return constant<Scalar, rank, layout, device>{node.value()};
  } else {
    static_assert(std::same_as<typename Node::device_type, device>,
                  "gradus: operands on different devices in one expression: copy one of them first");
    if constexpr (is_along<Node>) {
      return bind_along(operation, std::move(node), prototype);
    } else if constexpr (Node::rank == 0 && rank > 0) {
      auto value = stored(std::move(node));
      return broadcast<decltype(value), rank, layout, 0U>{std::move(value), prototype.extents()};
    } else {
      static_assert(Node::rank == rank,
                    "gradus: operands of different rank in one expression: use per_channel(v), per_row(v), "
                    "per_column(v) or along<axes...>(v)");
      static_assert(Node::rank != rank || std::same_as<typename Node::layout_type, layout>,
                    "gradus: operands of different layouts in one expression: use layout_cast<...>(x)");
      if (!(node.extents() == prototype.extents())) {
        raise<shape_error>(operation, "operands of one shape",
                           to_string(prototype.extents()) + " and " + to_string(node.extents()));
      }
      return node;
    }
  }
}

/// The element type of scalars, which the operands with index `First` and above must share.
template <std::size_t First, class... Nodes>
struct common_element {
  template <class Node>
  struct element {
    using type = Node;  // a number
  };
  template <class Node>
  requires(!std::is_arithmetic_v<Node>) struct element<Node> {
    using type = typename Node::value_type;
  };

  static constexpr std::array<bool, sizeof...(Nodes)> is_number{std::is_arithmetic_v<Nodes>...};
  static constexpr std::size_t chosen = [] {
    std::size_t k = First;
    while (k + 1 < sizeof...(Nodes) && is_number[k]) {
      ++k;
    }
    return k;
  }();
  static_assert(!is_number[chosen], "gradus: an operation on numbers only: give it a tensor");
  using type = typename element<typename nth<chosen, Nodes...>::type>::type;

  static constexpr std::array<bool, sizeof...(Nodes)> same{
      (std::is_arithmetic_v<Nodes> || std::same_as<typename element<Nodes>::type, type>)...};
  static_assert(std::all_of(same.begin() + First, same.end(), [](bool is) { return is; }),
                "gradus: operands of different element types in one expression: use cast<...>(x)");
};

/// For values along axes: the axes, as bits, and the rank of the tensors that they adapt to, 0 for any.
template <class Node>
struct along_axes {
  static constexpr unsigned mask = 0;
  static constexpr int rank = 0;
};
template <class Value, int Rank, unsigned Mask>
struct along_axes<along_vector<Value, Rank, Mask>> {
  static constexpr unsigned mask = Mask;
  static constexpr int rank = Rank;
};

/// The axes of `Mask` renumbered within those of `All`: bit i is the i-th axis of `All`.
template <unsigned Mask, unsigned All>
inline constexpr unsigned axes_within = [] {
  unsigned result = 0;
  unsigned position = 0;
  for (unsigned axis = 0; axis < 32; ++axis) {
    if ((All >> axis & 1U) != 0) {
      result |= (Mask >> axis & 1U) << position++;
    }
  }
  return result;
}();

/// Writes the extents of values along `Mask` into the shape of values along `All`.
template <unsigned All, class Node>
void put_extents(std::array<index_t, static_cast<std::size_t>(std::popcount(All))>& shape, const Node& node) {
  if constexpr (is_along<Node>) {
    constexpr unsigned within = axes_within<along_axes<Node>::mask, All>;
    for (int axis = 0, own = 0; axis < std::popcount(All); ++axis) {
      if ((within >> static_cast<unsigned>(axis) & 1U) != 0) {
        shape[static_cast<std::size_t>(axis)] = node.value.extents()[own++];
      }
    }
  }
}

/// Values along `Mask` as values along some axes of the common shape; unchanged if they have all of its axes.
template <unsigned All, class Node>
[[nodiscard]] auto within_axes(Node node) {
  if constexpr (!is_along<Node>) {
    return node;
  } else if constexpr (along_axes<Node>::mask == All) {
    return std::move(node.value);
  } else {
    using value = decltype(node.value);
    return along_vector<value, 0, axes_within<along_axes<Node>::mask, All>>{std::move(node.value)};
  }
}

/// An operation on numbers and values along axes, without a tensor of all axes. The result has the axes of all
/// operands; per_row and per_column give a matrix.
template <class Operation, std::size_t First, class... Nodes>
[[nodiscard]] auto make_map_along(Nodes... nodes) {
  constexpr unsigned all = (0U | ... | along_axes<Nodes>::mask);
  constexpr int rank = std::max({along_axes<Nodes>::rank...});
  static_assert(
      ((along_axes<Nodes>::rank == 0 || along_axes<Nodes>::rank == rank) && ...),
      "gradus: per_channel needs images in the same expression; per_row and per_column need a tensor of rank 2");
  using scalar = typename common_element<First, Nodes...>::type;
  constexpr std::array<bool, sizeof...(Nodes)> is_one{is_along<Nodes>...};
  constexpr auto one = static_cast<std::size_t>(std::find(is_one.begin(), is_one.end(), true) - is_one.begin());
  using device = typename nth<one, Nodes...>::type::device_type;
  std::array<index_t, static_cast<std::size_t>(std::popcount(all))> shape{};
  (put_extents<all>(shape, nodes), ...);
  const shape_of<std::popcount(all), row_major, device> prototype{gradus::extents<std::popcount(all)>{shape}};
  const auto build = []<class... Bound>(Bound... bound) { return map<Operation, Bound...>{std::move(bound)...}; };
  auto result = build(bind<scalar>(Operation::name, within_axes<all>(std::move(nodes)), prototype)...);
  if constexpr (rank == 2 && all == all_axes<2>) {
    return result;
  } else {
    auto values = stored(std::move(result));
    return along_vector<decltype(values), rank, all>{std::move(values)};
  }
}

/// Declared here, so that the call in make_map is one of a template. The argument finds the overload of formulas.
template <class Operation>
void make_formula() = delete;

template <class Operation, std::size_t First, class... Nodes>
[[nodiscard]] auto make_map_of_nodes(Nodes... nodes) {
  constexpr std::array<int, sizeof...(Nodes)> ranks{shape_rank<Nodes>...};
  constexpr auto widest = static_cast<std::size_t>(std::max_element(ranks.begin(), ranks.end()) - ranks.begin());
  if constexpr (ranks[widest] <= 0 && (is_along<Nodes> || ...)) {
    return make_map_along<Operation, First>(std::move(nodes)...);
  } else {
    using scalar = typename common_element<First, Nodes...>::type;
    const auto& wide = pick<widest>(nodes...);
    using node = std::remove_cvref_t<decltype(wide)>;
    const shape_of<node::rank, typename node::layout_type, typename node::device_type> prototype{wide.extents()};
    const auto build = []<class... Bound>(Bound... bound) { return map<Operation, Bound...>{std::move(bound)...}; };
    return build(bind<scalar>(Operation::name, std::move(nodes), prototype)...);
  }
}

/// The node Operation(operands...). The operands with index `First` and above have one element type. If an operand is a
/// formula, so is the result (tensor/formula.hpp).
/// @throws shape_error when the shapes differ
template <class Operation, std::size_t First = 0, class... Operands>
[[nodiscard]] auto make_map(Operands&&... operands) {
  if constexpr ((std::derived_from<std::remove_cvref_t<Operands>, formula_base> || ...)) {
    return make_formula<Operation>(std::remove_cvref_t<Operands>(operands)...);
  } else {
    return make_map_of_nodes<Operation, First>(as_node(std::forward<Operands>(operands))...);
  }
}

}  // namespace gradus::detail

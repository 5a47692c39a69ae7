// SPDX-License-Identifier: BSL-1.0
//
// Other extents for the same elements: reshape.
#pragma once

#include <array>    // std::array
#include <cstddef>  // std::size_t
#include <utility>  // std::forward, std::move

#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/tensor/expression.hpp"
#include "gradus/tensor/matrix.hpp"
#include "gradus/tensor/operand.hpp"
#include "gradus/tensor/permute.hpp"

namespace gradus::detail {

template <class Layout, int Rank, class Child>
using reshaped_leaf = leaf<typename Child::value_type, Rank, Layout, typename Child::device_type>;

/// The memory of the child with other extents and another layout. Both are in memory in their logical order.
template <class Layout, int Rank, class Child>
class reshaped_node : public computed_node<reshaped_leaf<Layout, Rank, Child>, Child> {
 public:
  reshaped_node(Child child, const extents<Rank>& shape)
      : computed_node<reshaped_leaf<Layout, Rank, Child>, Child>{reshaped_leaf<Layout, Rank, Child>{child, 0, shape},
                                                                 std::move(child)} {}
};

template <class Layout, int Rank, class Child, class Adjoint, class Sink>
void backward(const reshaped_node<Layout, Rank, Child>& node, const Adjoint& adjoint, Sink& sink) {
  const auto values = detail::stored(adjoint);
  propagate(node.child(),
            reshaped_leaf<typename Child::layout_type, Child::rank, Child>{values, 0, node.child().extents()}, sink);
}

template <class Layout, int Rank>
inline constexpr bool has_logical_memory = memory_order<Layout, Rank> == memory_order<row_major, Rank>;

template <class Layout, int Rank, class Node>
[[nodiscard]] auto reshaped(Node node, const extents<Rank>& shape) {
  static_assert(explain_tensor_layout<Layout, Rank>());
  if constexpr (!has_logical_memory<typename Node::layout_type, Node::rank>) {
    return reshaped<Layout>(as_row_major(std::move(node)), shape);
  } else if constexpr (has_logical_memory<Layout, Rank>) {
    return reshaped_node<Layout, Rank, Node>{std::move(node), shape};
  } else {
    using plain = reshaped_node<nchw, 4, Node>;
    return layout_cast_node<Layout, plain>{plain{std::move(node), shape}};
  }
}

/// The extents in braces, with the one that is -1 computed from the number of elements.
template <std::size_t Rank, int OldRank>
[[nodiscard]] extents<static_cast<int>(Rank)> inferred_extents(const index_t (&values)[Rank],
                                                               const extents<OldRank>& from, error_location where) {
  std::array<index_t, Rank> shape{};
  index_t known = 1;
  std::size_t unknown = Rank;
  for (std::size_t axis = 0; axis < Rank; ++axis) {
    shape[axis] = values[axis];
    if (values[axis] == -1 && unknown == Rank) {
      unknown = axis;
    } else if (values[axis] < 0) {
      raise<shape_error>("reshape", "extents of at least 0, or -1 for one of them", {values[axis]}, {}, where);
    } else {
      known = at_call(where, [&] { return checked_product(known, values[axis]); });
    }
  }
  if (unknown < Rank) {
    if (known == 0 || from.size() % known != 0) {
      raise<shape_error>("reshape",
                         {"extents whose product divides the ", from.size(), " elements of ", to_string(from)},
                         {"a product of ", known, " without the extent that is -1"}, {}, where);
    }
    shape[unknown] = from.size() / known;
  }
  return extents<static_cast<int>(Rank)>{shape};
}

}  // namespace gradus::detail

namespace gradus {

/// The same elements in the same logical (row-major) order with other extents, as numpy.reshape. The result is
/// row_major, or of another layout: `reshape<nhwc>(rows, extents<4>{n, c, h, w})`.
///
/// It shares the memory of x if both layouts store elements in logical order (row_major, nchw). With nhwc on either
/// side it is evaluated.
/// @throws shape_error when the number of elements differs
template <class Layout = row_major, operand Operand, int Rank>
[[nodiscard]] auto reshape(Operand&& x, const extents<Rank>& shape, error_location where = error_location::current()) {
  auto node = detail::stored(detail::as_node(std::forward<Operand>(x)));
  const index_t size = at_call(where, [&] { return shape.size(); });
  if (size != node.extents().size()) {
    raise<shape_error>("reshape", {node.extents().size(), " elements as in ", to_string(node.extents())},
                       {to_string(shape), ", which has ", size}, {}, where);
  }
  return detail::reshaped<Layout>(std::move(node), shape);
}

/// The same for a shape in braces, in which one extent may be -1: it is computed from the number of elements.
/// `reshape(x, {2, -1})`. @throws shape_error when the number of elements differs
template <class Layout = row_major, operand Operand, std::size_t Rank>
[[nodiscard]] auto reshape(Operand&& x, const index_t (&shape)[Rank],
                           error_location where = error_location::current()) {
  const auto inferred = detail::inferred_extents(shape, x.extents(), where);
  return reshape<Layout>(std::forward<Operand>(x), inferred, where);
}

}  // namespace gradus

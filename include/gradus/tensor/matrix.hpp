// SPDX-License-Identifier: BSL-1.0
//
// Operations whose elements depend on elements at other positions: matmul, transpose, layout_cast. They are evaluated
// immediately, so the same statement may assign to their operands.
#pragma once

#include <array>        // std::array
#include <concepts>     // std::same_as
#include <cstddef>      // std::size_t
#include <type_traits>  // std::remove_cvref_t
#include <utility>      // std::forward, std::move

#include "gradus/core/error.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/tensor/detail/cpu/matmul.hpp"
#include "gradus/tensor/operand.hpp"

namespace gradus::detail {

/// A device that copies dense tensors into the memory order of the destination: transpose and layout_cast ask for it.
template <class Device, class Element, std::size_t Rank>
concept has_copy_reordered = requires(Device& device, Element* out, const Element* from,
                                      const std::array<index_t, Rank>& shape,
                                      const std::array<index_t, Rank>& strides) {
  copy_reordered(device, out, from, shape, strides);
};

/// A device that multiplies matrices of expressions: matmul asks for it.
template <class Device, class Element>
concept has_multiply_matrices = requires(Device& device, Element* out, const matrix_reference<Element>& left,
                                         const matrix_reference<Element>& right) {
  multiply_matrices(device, out, left, right);
};

/// Says which overload of matrix.hpp the device misses. Always true when it compiles.
template <class Device, class Element, std::size_t Rank>
consteval bool explain_copy_reordered() {
  static_assert(
      has_copy_reordered<Device, Element, Rank>,
      "gradus: the device lacks an overload for expressions: void copy_reordered(Device&, Element* out, const "
      "Element* from, const std::array<index_t, Rank>& shape, const std::array<index_t, Rank>& strides); for "
      "gradus::cuda include gradus/tensor/cuda.cuh");
  return true;
}
template <class Device, class Element>
consteval bool explain_multiply_matrices() {
  static_assert(has_multiply_matrices<Device, Element>,
                "gradus: the device lacks an overload for expressions: void multiply_matrices(Device&, Element* out, "
                "const detail::matrix_reference<Element>& left, const detail::matrix_reference<Element>& right); for "
                "gradus::cuda include gradus/tensor/cuda.cuh");
  return true;
}

/// The elements of a stored node in the memory order of `To`. Axis i of the result is axis `axes[i]` of the node.
template <class To, class Node>
[[nodiscard]] auto reordered(const Node& node, const std::array<int, static_cast<std::size_t>(Node::rank)>& axes) {
  constexpr int rank = Node::rank;
  constexpr auto size = static_cast<std::size_t>(rank);
  using element = typename Node::value_type;
  static_assert(explain_copy_reordered<typename Node::device_type, element, size>());
  std::array<index_t, size> shape{};
  std::array<index_t, size> memory_shape{};
  std::array<index_t, size> memory_strides{};
  const auto strides = dense_strides<typename Node::layout_type, rank>(node.extents());
  for (std::size_t i = 0; i < size; ++i) {
    shape[i] = node.extents()[axes[i]];
  }
  for (std::size_t i = 0; i < size; ++i) {
    const auto logical = static_cast<std::size_t>(memory_order<To, rank>[i]);
    memory_shape[i] = shape[logical];
    memory_strides[i] = strides[static_cast<std::size_t>(axes[logical])];
  }
  temporary<element, rank, To, typename Node::device_type> result{node.device(), extents<rank>{shape}};
  copy_reordered(node.device(), result.data(), node.data(), memory_shape, memory_strides);
  return std::move(result).done();
}

template <class Child>
using transposed_leaf = leaf<typename Child::value_type, 2, row_major, typename Child::device_type>;

/// A transposed matrix in memory.
template <class Child>
class transposed_node : public computed_node<transposed_leaf<Child>, Child> {
 public:
  explicit transposed_node(const Child& child)
      : computed_node<transposed_leaf<Child>, Child>{reordered<row_major>(child, {1, 0}), child} {}
};

/// A transposed matrix that is not evaluated; matmul reads the original.
template <class Child>
class transpose_of : public expression_base {
 public:
  using value_type = typename Child::value_type;
  using layout_type = row_major;
  using device_type = typename Child::device_type;
  static constexpr int rank = 2;

  explicit transpose_of(Child child) : child_{std::move(child)} {}
  [[nodiscard]] device_type& device() const noexcept { return child_.device(); }
  [[nodiscard]] gradus::extents<2> extents() const { return {child_.extents()[1], child_.extents()[0]}; }
  [[nodiscard]] auto as_node() const { return transposed_node<Child>{child_}; }
  [[nodiscard]] const Child& child() const noexcept { return child_; }

 private:
  Child child_;
};

template <class Operand>
inline constexpr bool is_transpose = false;
template <class Child>
inline constexpr bool is_transpose<transpose_of<Child>> = true;

/// A factor of a product: a stored matrix, read as it is or as its transpose.
template <class Child, bool Transposed>
struct factor {
  using child_type = Child;
  static constexpr bool transposed = Transposed;
  Child child;
  [[nodiscard]] index_t rows() const noexcept { return child.extents()[Transposed ? 1 : 0]; }
  [[nodiscard]] index_t columns() const noexcept { return child.extents()[Transposed ? 0 : 1]; }
  [[nodiscard]] matrix_reference<typename Child::value_type> reference() const noexcept {
    return {child.data(), child.extents()[0], child.extents()[1], Transposed};
  }
};

template <class Operand>
[[nodiscard]] auto make_factor(Operand&& operand) {
  if constexpr (is_transpose<std::remove_cvref_t<Operand>>) {
    using child = std::remove_cvref_t<decltype(operand.child())>;
    return factor<child, true>{operand.child()};
  } else {
    auto node = detail::stored(as_node(std::forward<Operand>(operand)));
    using child = decltype(node);
    static_assert(child::rank == 2, "gradus::matmul: two tensors of rank 2");
    return factor<child, false>{std::move(node)};
  }
}

template <class Left, class Right>
[[nodiscard]] auto multiply(const Left& left, const Right& right, error_location where = error_location::current()) {
  using child = typename Left::child_type;
  using element = typename child::value_type;
  static_assert(real_element<element>, "gradus::matmul: float or double: use cast<float>(x)");
  static_assert(std::same_as<element, typename Right::child_type::value_type>,
                "gradus: operands of different element types in one expression: use cast<...>(x)");
  static_assert(std::same_as<typename child::device_type, typename Right::child_type::device_type>,
                "gradus: operands on different devices in one expression: copy one of them first");
  static_assert(explain_multiply_matrices<typename child::device_type, element>());
  if (left.columns() != right.rows()) {
    raise<shape_error>("matmul", "as many columns on the left as rows on the right",
                       to_string(extents<2>{left.rows(), left.columns()}) + " and " +
                           to_string(extents<2>{right.rows(), right.columns()}),
                       {}, where);
  }
  temporary<element, 2, row_major, typename child::device_type> result{left.child.device(),
                                                                       {left.rows(), right.columns()}};
  multiply_matrices(left.child.device(), result.data(), left.reference(), right.reference());
  return std::move(result).done();
}

/// A matrix product in memory, with its factors.
template <class Left, class Right>
class product_node : public transposed_leaf<typename Left::child_type> {
 public:
  static constexpr int complexity = 1 + Left::child_type::complexity + Right::child_type::complexity;
  product_node(Left left, Right right, error_location where)
      : transposed_leaf<typename Left::child_type>{multiply(left, right, where)},
        left_{std::move(left)},
        right_{std::move(right)} {}
  [[nodiscard]] const Left& left() const noexcept { return left_; }
  [[nodiscard]] const Right& right() const noexcept { return right_; }
  [[nodiscard]] bool reads(const void* data) const noexcept {
    return left_.child.reads(data) || right_.child.reads(data);
  }
  template <class Leaf>
  static constexpr bool has_leaf =
      Left::child_type::template has_leaf<Leaf> || Right::child_type::template has_leaf<Leaf>;

 private:
  Left left_;
  Right right_;
};

template <class Layout, class Child>
using cast_leaf = leaf<typename Child::value_type, 4, Layout, typename Child::device_type>;

/// Images in another layout, in memory.
template <class Layout, class Child>
class layout_cast_node : public computed_node<cast_leaf<Layout, Child>, Child> {
 public:
  explicit layout_cast_node(const Child& child)
      : computed_node<cast_leaf<Layout, Child>, Child>{reordered<Layout>(child, {0, 1, 2, 3}), child} {}
};

}  // namespace gradus::detail

namespace gradus {

/// The product of two matrices: (m, k) times (k, n) gives (m, n).
/// @throws shape_error when the inner extents differ
template <operand Left, operand Right>
[[nodiscard]] auto matmul(Left&& left, Right&& right, error_location where = error_location::current()) {
  auto left_factor = detail::make_factor(std::forward<Left>(left));
  auto right_factor = detail::make_factor(std::forward<Right>(right));
  return detail::product_node<decltype(left_factor), decltype(right_factor)>{std::move(left_factor),
                                                                             std::move(right_factor), where};
}

/// The transpose of a matrix: (m, n) gives (n, m). Inside matmul it costs nothing.
template <operand Operand>
[[nodiscard]] auto transpose(Operand&& x) {
  auto node = detail::stored(detail::as_node(std::forward<Operand>(x)));
  static_assert(decltype(node)::rank == 2, "gradus::transpose: a tensor of rank 2");
  return detail::transpose_of<decltype(node)>{std::move(node)};
}

/// The same images in another layout: `layout_cast<nhwc>(x)`. The element at (n, c, h, w) stays the same.
template <class Layout, operand Operand>
[[nodiscard]] auto layout_cast(Operand&& x) {
  auto node = detail::stored(detail::as_node(std::forward<Operand>(x)));
  static_assert(decltype(node)::rank == 4, "gradus::layout_cast: images, that is, a tensor of rank 4");
  static_assert(explain_tensor_layout<Layout, 4>());
  return detail::layout_cast_node<Layout, decltype(node)>{node};
}

}  // namespace gradus

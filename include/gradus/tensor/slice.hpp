// SPDX-License-Identifier: BSL-1.0
//
// Parts of tensors along an axis: slice and split.
//
//   const auto odd = slice<1>(x, {.begin = 1, .step = 2});  // columns 1, 3, 5, ...
//   const auto last = slice<0>(x, {.begin = -3});           // the last three rows
//   const auto parts = split<axis::c>(images, {64, 32});    // parts[0] has 64 channels, parts[1] has 32
#pragma once

#include <cstddef>           // std::size_t
#include <initializer_list>  // std::initializer_list
#include <limits>            // std::numeric_limits
#include <span>              // std::span
#include <string>            // std::to_string
#include <type_traits>       // std::remove_cvref_t
#include <utility>           // std::forward, std::move
#include <vector>            // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/tensor/assign.hpp"
#include "gradus/tensor/detail/rows/join.hpp"
#include "gradus/tensor/expression.hpp"
#include "gradus/tensor/operand.hpp"

namespace gradus {

/// Entries of an axis: begin, begin + step, ... below `end`. Negative positions count from the end of the axis: -1 is
/// the last entry.
struct slice_range {
  /// The end of the axis.
  static constexpr index_t to_end = std::numeric_limits<index_t>::max();

  index_t begin = 0;     ///< the first entry
  index_t end = to_end;  ///< behind the last entry
  index_t step = 1;      ///< at least 1
};

namespace detail {

/// The entries of an axis of a stored child.
template <int Axis, class Child>
class slice_node : public computed_node<evaluated_leaf<Child>, Child> {
 public:
  slice_node(Child child, const axis_entries& entries)
      : computed_node<evaluated_leaf<Child>, Child>{entries_of<Axis>(child, entries), std::move(child)},
        entries_{entries} {}
  [[nodiscard]] const axis_entries& entries() const noexcept { return entries_; }

 private:
  axis_entries entries_;
};

/// The adjoint of the entries, and zeros for all other entries of the child.
template <int Axis, class Child, class Adjoint, class Sink>
void backward(const slice_node<Axis, Child>& node, const Adjoint& adjoint, Sink& sink) {
  using element = typename Child::value_type;
  using device_type = typename Child::device_type;
  if constexpr (Sink::template reachable<Child>) {
    const auto values = detail::stored(adjoint);
    device_type& device = node.device();
    const auto& entries = node.entries();
    const auto [outer, extent, inner] = lengths_around<typename Child::layout_type, Axis>(node.child().extents());
    const temporary<element, 1, row_major, device_type> zeros{device, {extent * inner}};
    device.fill_zero(zeros.data(), static_cast<std::size_t>(extent * inner) * sizeof(element));
    std::vector<row_part<element>> parts{{zeros.data(), entries.begin * inner, 0}};
    const index_t count = entries.step == 1 ? 1 : entries.count;  // adjacent entries are one part
    const index_t length = entries.step == 1 ? entries.count * inner : inner;
    for (index_t i = 0; i < count; ++i) {
      parts.push_back({values.data() + i * length, length, entries.count * inner});
      const index_t next = i + 1 < count ? entries.begin + (i + 1) * entries.step : extent;
      const index_t end = entries.step == 1 ? entries.begin + entries.count : entries.begin + i * entries.step + 1;
      parts.push_back({zeros.data(), (next - end) * inner, 0});
    }
    if (count == 0) {
      parts.push_back({zeros.data(), (extent - entries.begin) * inner, 0});
    }
    temporary<element, Child::rank, typename Child::layout_type, device_type> result{device, node.child().extents()};
    join_rows(device, result.data(), outer, std::span<const row_part<element>>{parts});
    propagate(node.child(), std::move(result).done(), sink);
  }
}

/// The entries that a range names. @throws shape_error when it is not inside the axis
template <int Rank>
[[nodiscard]] axis_entries entries_in(const slice_range& range, int axis, const extents<Rank>& shape,
                                      error_location where) {
  const index_t extent = shape[axis];
  const index_t begin = range.begin < 0 ? range.begin + extent : range.begin;
  const index_t end = range.end == slice_range::to_end ? extent : range.end < 0 ? range.end + extent : range.end;
  if (begin < 0 || begin > end || end > extent || range.step < 1) {
    raise<shape_error>(
        "slice",
        {"0 <= begin <= end <= ", extent, " along axis ", axis, " of ", to_string(shape), ", and a step of at least 1"},
        {"begin ", range.begin, ", end ", range.end == slice_range::to_end ? "to_end" : std::to_string(range.end),
         ", step ", range.step},
        "negative positions count from the end", where);
  }
  return {begin, (end - begin + range.step - 1) / range.step, range.step};
}

template <int Axis, class Node>
[[nodiscard]] auto split_node(const Node& node, std::span<const index_t> sizes, error_location where) {
  index_t sum = 0;
  for (const index_t size : sizes) {
    if (size < 0 || size > node.extents()[Axis] - sum) {
      sum = -1;
      break;
    }
    sum += size;
  }
  if (sum != node.extents()[Axis]) {
    std::string text;
    for (const index_t size : sizes) {
      append_text(text, {text.empty() ? "" : ", ", size});
    }
    raise<shape_error>("split",
                       {"sizes of at least 0 with the sum ", node.extents()[Axis], ", the extent of axis ", Axis,
                        " of ", to_string(node.extents())},
                       {"(", text, ")"}, {}, where);
  }
  std::vector<slice_node<Axis, Node>> parts;
  parts.reserve(sizes.size());
  index_t begin = 0;
  for (const index_t size : sizes) {
    parts.emplace_back(node, axis_entries{begin, size, 1});
    begin += size;
  }
  return parts;
}

}  // namespace detail

/// The entries of a range along one axis: `slice<1>(x, {.begin = 2, .end = 10, .step = 2})`. The layout is that of x.
///
/// Without a step it shares the memory of x along the slowest axis in memory, along every axis if the slower axes have
/// the extent 1, and if the range is the whole axis. Otherwise it is evaluated. To write to a slice, use
/// tensor_view::slice.
/// @throws shape_error when the range is not inside the axis, or the step is less than 1
template <auto Axis, operand Operand>
[[nodiscard]] auto slice(Operand&& x, const slice_range& range, error_location where = error_location::current()) {
  auto node = detail::stored(detail::as_node(std::forward<Operand>(x)));
  using type = decltype(node);
  constexpr int axis = detail::axis_number<Axis, type::rank>();
  const auto entries = detail::entries_in(range, axis, node.extents(), where);
  return detail::slice_node<axis, type>{std::move(node), entries};
}

/// Consecutive parts along one axis with the given sizes, as a std::vector of slices: `split<1>(x, {2, 3})`. They share
/// the memory of x as slices do.
/// @throws shape_error when the sum of the sizes is not the extent
template <auto Axis, operand Operand>
[[nodiscard]] auto split(Operand&& x, std::span<const index_t> sizes,
                         error_location where = error_location::current()) {
  auto node = detail::stored(detail::as_node(std::forward<Operand>(x)));
  return detail::split_node<detail::axis_number<Axis, decltype(node)::rank>()>(node, sizes, where);
}

/// The same for sizes in braces. @throws shape_error when the sum of the sizes is not the extent
template <auto Axis, operand Operand>
[[nodiscard]] auto split(Operand&& x, std::initializer_list<index_t> sizes,
                         error_location where = error_location::current()) {
  return split<Axis>(std::forward<Operand>(x), std::span<const index_t>{sizes.begin(), sizes.size()}, where);
}

/// The same in `count` parts of one size, as numpy.split: `split<0>(x, 4)`.
/// @throws shape_error when the count is less than 1 or does not divide the extent
template <auto Axis, operand Operand>
[[nodiscard]] auto split(Operand&& x, index_t count, error_location where = error_location::current()) {
  constexpr int axis = detail::axis_number<Axis, std::remove_cvref_t<Operand>::rank>();
  const auto& shape = x.extents();
  if (count < 1 || shape[axis] % count != 0) {
    raise<shape_error>(
        "split",
        {"a number of parts that divides ", shape[axis], ", the extent of axis ", axis, " of ", to_string(shape)},
        {count}, "give the sizes of the parts: split<axis>(x, {2, 3})", where);
  }
  const std::vector<index_t> sizes(static_cast<std::size_t>(count), shape[axis] / count);
  return split<Axis>(std::forward<Operand>(x), std::span<const index_t>{sizes}, where);
}

}  // namespace gradus

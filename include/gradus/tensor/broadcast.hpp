// SPDX-License-Identifier: BSL-1.0
//
// Broadcasting: tensors of fewer axes in expressions of more, per channel, per row, per column or along any axes.
#pragma once

#include <array>        // std::array
#include <bit>          // std::popcount
#include <concepts>     // std::same_as
#include <cstddef>      // std::size_t
#include <string_view>  // std::string_view
#include <utility>      // std::forward, std::move

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/tensor/expression.hpp"
#include "gradus/tensor/operand.hpp"

namespace gradus::detail {

/// A set of axes as bits: bit i is logical axis i.
template <auto... Axes>
inline constexpr unsigned axis_mask = (0U | ... | (1U << static_cast<unsigned>(Axes)));
template <int Rank>
inline constexpr unsigned all_axes = (1U << static_cast<unsigned>(Rank)) - 1U;

/// The extents of the axes in `Mask`, in logical order.
template <unsigned Mask, int Rank>
[[nodiscard]] extents<std::popcount(Mask)> extents_of(const extents<Rank>& shape) {
  std::array<index_t, static_cast<std::size_t>(std::popcount(Mask))> values{};
  [[maybe_unused]] std::size_t count = 0;
  for (int axis = 0; axis < Rank; ++axis) {
    if ((Mask >> static_cast<unsigned>(axis) & 1U) != 0) {
      values[count++] = shape[axis];
    }
  }
  return extents<std::popcount(Mask)>{values};
}

/// Stored values that vary along the axes in `Mask` (in logical order) and repeat along the other axes.
template <class Value, int Rank, class Layout, unsigned Mask>
class broadcast : public expression_base {
 public:
  using value_type = typename Value::value_type;
  using layout_type = Layout;
  using device_type = typename Value::device_type;
  using packet_element = value_type;
  static constexpr int rank = Rank;
  static constexpr unsigned mask = Mask;
  static constexpr bool stored = false;
  static constexpr bool has_shape = true;
  static constexpr bool linear = Mask == 0;
  static constexpr int complexity = 1 + Value::complexity;

  // Along a row the values repeat, are adjacent (the row's axis is the last one of Mask), or have a stride.
  static constexpr unsigned row_axis =
      Rank == 0 ? 0U : static_cast<unsigned>(memory_order<Layout, Rank>[static_cast<std::size_t>(Rank - 1)]);
  static constexpr bool repeats = Rank == 0 || (Mask >> row_axis & 1U) == 0;
  static constexpr bool adjacent = !repeats && (Mask >> (row_axis + 1U)) == 0;
  static constexpr bool vectorizable = real_element<value_type> && (repeats || adjacent);

  class cursor {
   public:
    static constexpr bool approximated = false;
    cursor(const value_type* data, index_t distance) noexcept : data_{data}, distance_{distance} {}
    GRADUS_ALWAYS_INLINE value_type scalar(index_t j) const noexcept {
      if constexpr (repeats) {
        return *data_;
      } else if constexpr (adjacent) {
        return data_[j];
      } else {
        return data_[j * distance_];
      }
    }
    template <class Packet>
    GRADUS_ALWAYS_INLINE Packet packet(index_t j) const noexcept {
      if constexpr (repeats) {
        return set_packet<Packet>(*data_);
      } else {
        return load_packet<Packet>(data_ + j);
      }
    }
    template <class Packet>
    GRADUS_ALWAYS_INLINE Packet first_lanes(index_t j, index_t count) const noexcept {
      if constexpr (repeats) {
        return packet<Packet>(j);
      } else {
        return load_part<Packet>(data_ + j, count);
      }
    }

   private:
    const value_type* data_;
    index_t distance_;
  };

  broadcast(Value value, const gradus::extents<Rank>& shape) : value_{std::move(value)}, extents_{shape} {
    index_t stride = 1;
    for (int axis = Rank - 1; axis >= 0; --axis) {
      if ((Mask >> static_cast<unsigned>(axis) & 1U) != 0) {
        strides_[static_cast<std::size_t>(axis)] = stride;
        stride *= shape[axis];
      }
    }
  }

  [[nodiscard]] device_type& device() const noexcept { return value_.device(); }
  [[nodiscard]] const gradus::extents<Rank>& extents() const noexcept { return extents_; }
  [[nodiscard]] cursor row(index_t r) const noexcept {
    index_t offset = 0;
    if constexpr (Mask != 0) {
      for (int position = Rank - 2; position >= 0; --position) {
        const int axis = memory_order<Layout, Rank>[static_cast<std::size_t>(position)];
        offset += r % extents_[axis] * strides_[static_cast<std::size_t>(axis)];
        r /= extents_[axis];
      }
      return cursor{value_.data() + offset, strides_[row_axis]};
    } else {
      return cursor{value_.data(), 0};
    }
  }
  [[nodiscard]] auto detached() const {
    return broadcast<evaluated_leaf<Value>, Rank, Layout, Mask>{value_.detached(), extents_};
  }
  [[nodiscard]] bool reads(const void* data) const noexcept { return value_.reads(data); }
  /// A repeated element is read after other elements have been written.
  [[nodiscard]] bool overlaps(const void* begin, const void* end) const noexcept { return value_.meets(begin, end); }
  template <class Leaf>
  static constexpr bool has_leaf = Value::template has_leaf<Leaf>;

  [[nodiscard]] const Value& value() const noexcept { return value_; }

 private:
  Value value_;
  gradus::extents<Rank> extents_;
  // Strides of the value by logical axis, in elements; 0 where it repeats.
  std::array<index_t, static_cast<std::size_t>(Rank)> strides_{};
};

/// Values along the axes in `Mask` of the tensor that they are combined with; that tensor sets the shape.
template <class Value, int Rank, unsigned Mask>
struct along_vector : waiting_operand {
  explicit along_vector(Value values) : value{std::move(values)} {}
  using value_type = typename Value::value_type;
  using device_type = typename Value::device_type;
  Value value;
};

template <class Node>
inline constexpr bool is_along = false;
template <class Value, int Rank, unsigned Mask>
inline constexpr bool is_along<along_vector<Value, Rank, Mask>> = true;

template <class Value, int Rank, unsigned Mask, class Prototype>
[[nodiscard]] auto bind_along(std::string_view operation, along_vector<Value, Rank, Mask> node,
                              const Prototype& prototype) {
  constexpr int rank = Prototype::rank;
  static_assert(
      Rank == 0 || Rank == rank,
      "gradus: per_channel needs images in the same expression; per_row and per_column need a tensor of rank 2");
  static_assert(Mask <= all_axes<rank>,
                "gradus: along<axes...> names an axis that the tensor in the same expression does not have");
  const auto expected = extents_of<Mask>(prototype.extents());
  if (node.value.extents() != expected) {
    raise<shape_error>(
        operation,
        "values of shape " + to_string(expected) + " for a tensor of shape " + to_string(prototype.extents()),
        to_string(node.value.extents()));
  }
  return broadcast<Value, rank, typename Prototype::layout_type, Mask>{std::move(node.value), prototype.extents()};
}

template <int Rank, unsigned Mask, class Vector>
[[nodiscard]] auto make_along(Vector&& vector) {
  auto value = detail::stored(as_node(std::forward<Vector>(vector)));
  using value_type = decltype(value);
  static_assert(value_type::rank == std::popcount(Mask), "gradus: along<axes...>(v): v has one axis for each of them");
  static_assert(std::same_as<typename value_type::layout_type, row_major>,
                "gradus: along<axes...>(v): v has the layout row_major");
  return along_vector<value_type, Rank, Mask>{std::move(value)};
}

}  // namespace gradus::detail

namespace gradus {

/// One value for each channel of the images (n, c, h, w) in the same expression: `images + per_channel(bias)`.
template <operand Vector>
[[nodiscard]] auto per_channel(Vector&& vector) {
  return detail::make_along<4, detail::axis_mask<axis::c>>(std::forward<Vector>(vector));
}

/// One value for each row of the matrix in the same expression: `x - per_row(max<1>(x))`.
template <operand Vector>
[[nodiscard]] auto per_row(Vector&& vector) {
  return detail::make_along<2, 1U>(std::forward<Vector>(vector));
}

/// One value for each column of the matrix in the same expression: `matmul(x, w) + per_column(bias)`.
template <operand Vector>
[[nodiscard]] auto per_column(Vector&& vector) {
  return detail::make_along<2, 2U>(std::forward<Vector>(vector));
}

/// The values of v along the given axes (ascending) of the tensor in the same expression, repeated along the others:
/// `x - along<axis::n, axis::c>(mean<axis::h, axis::w>(x))`, `x / along<0>(v)`.
template <auto... Axes, operand Vector>
requires(sizeof...(Axes) > 0) [[nodiscard]] auto along(Vector&& vector) {
  return detail::make_along<0, detail::axis_mask<Axes...>>(std::forward<Vector>(vector));
}

}  // namespace gradus

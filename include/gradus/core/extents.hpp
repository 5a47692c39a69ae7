// SPDX-License-Identifier: BSL-1.0
//
// The extents of tensors: `extents` for any rank, in logical order, and `image_extents`.
#pragma once

#include <array>             // std::array
#include <cstddef>           // std::size_t
#include <initializer_list>  // std::initializer_list
#include <limits>            // std::numeric_limits
#include <ostream>           // std::ostream
#include <string>            // std::string

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"

namespace gradus {

namespace detail {

[[noreturn]] inline void refuse_product() {
  raise<shape_error>("extents", "a number of elements that fits 64 bits", "a larger product");
}

[[noreturn]] inline void refuse_extent(index_t value) {
  raise<shape_error>("extents", "extents of at least 0", {value});
}

[[noreturn]] inline void refuse_count(int rank, std::size_t count) {
  raise<shape_error>("extents", {rank, " values"}, {count});
}

/// a * b for non-negative extents.
/// @throws shape_error if the product does not fit index_t
constexpr index_t checked_product(index_t a, index_t b) {
  if (a != 0 && b > std::numeric_limits<index_t>::max() / a) {
    refuse_product();
  }
  return a * b;
}

/// a * b for non-negative numbers that are estimates, or the largest number.
constexpr index_t bounded_product(index_t a, index_t b) noexcept {
  return a != 0 && b > std::numeric_limits<index_t>::max() / a ? std::numeric_limits<index_t>::max() : a * b;
}

/// a + b for non-negative numbers that are estimates, or the largest number.
constexpr index_t bounded_sum(index_t a, index_t b) noexcept {
  return b > std::numeric_limits<index_t>::max() - a ? std::numeric_limits<index_t>::max() : a + b;
}

}  // namespace detail

namespace detail {

/// The values of extents.
template <int Rank>
class extent_values {
 protected:
  constexpr void set(int axis, index_t value) noexcept { values_[static_cast<std::size_t>(axis)] = value; }
  [[nodiscard]] constexpr index_t get(int axis) const noexcept { return values_[static_cast<std::size_t>(axis)]; }
  [[nodiscard]] constexpr std::array<index_t, static_cast<std::size_t>(Rank)> all() const noexcept { return values_; }

  friend constexpr bool operator==(const extent_values&, const extent_values&) noexcept = default;

 private:
  std::array<index_t, static_cast<std::size_t>(Rank)> values_{};
};

/// The extents of images have names.
template <>
class extent_values<4> {
 public:
  index_t n = 0;  ///< images
  index_t c = 0;  ///< channels
  index_t h = 0;  ///< rows
  index_t w = 0;  ///< columns

 protected:
  constexpr void set(int axis, index_t value) noexcept { (axis == 0 ? n : axis == 1 ? c : axis == 2 ? h : w) = value; }
  [[nodiscard]] constexpr index_t get(int axis) const noexcept {
    return axis == 0 ? n : axis == 1 ? c : axis == 2 ? h : w;
  }
  [[nodiscard]] constexpr std::array<index_t, 4> all() const noexcept { return {n, c, h, w}; }

  friend constexpr bool operator==(const extent_values&, const extent_values&) noexcept = default;
};

}  // namespace detail

/// The extents of a tensor of `Rank` axes, in elements, in logical order. Four axes are those of a batch of images and
/// have the names n, c, h and w too: `shape.h` is `shape[2]`.
///
/// Construct it as an aggregate: `extents<2>{32, 784}`. Every extent is at least 0.
template <int Rank>
class extents : public detail::extent_values<Rank> {
  static_assert(Rank >= 0, "gradus: the rank of a tensor is at least 0");

 public:
  /// The number of axes.
  static constexpr int rank = Rank;

  constexpr extents() noexcept = default;

  /// One value per axis. @throws shape_error if there are not Rank values or one is negative
  constexpr extents(std::initializer_list<index_t> values) {
    if (values.size() != static_cast<std::size_t>(Rank)) {
      detail::refuse_count(Rank, values.size());
    }
    take(values.begin());
  }

  /// One value per axis. @throws shape_error if one is negative
  explicit constexpr extents(const std::array<index_t, static_cast<std::size_t>(Rank)>& values) { take(values.data()); }

  /// @pre 0 <= axis < Rank
  [[nodiscard]] constexpr index_t operator[](int axis) const noexcept { return this->get(axis); }

  /// The number of elements: the product of all extents, 1 for rank 0.
  /// @throws shape_error if it does not fit index_t
  [[nodiscard]] constexpr index_t size() const {
    index_t product = 1;
    for (int axis = 0; axis < Rank; ++axis) {
      product = detail::checked_product(product, this->get(axis));
    }
    return product;
  }

  /// The extents in logical order.
  [[nodiscard]] constexpr std::array<index_t, static_cast<std::size_t>(Rank)> values() const noexcept {
    return this->all();
  }

  /// True if all extents are equal.
  friend constexpr bool operator==(const extents&, const extents&) noexcept = default;

 private:
  constexpr void take(const index_t* values) {
    for (int axis = 0; axis < Rank; ++axis) {
      if (values[axis] < 0) {
        detail::refuse_extent(values[axis]);
      }
      this->set(axis, values[axis]);
    }
  }
};

/// The shape as text: "(2, 3, 5)".
template <int Rank>
[[nodiscard]] std::string to_string(const extents<Rank>& shape) {
  std::string text{"("};
  for (int axis = 0; axis < Rank; ++axis) {
    append_text(text, {axis == 0 ? "" : ", ", shape[axis]});
  }
  return text.append(")");
}

/// Writes the extents as to_string does.
template <int Rank>
std::ostream& operator<<(std::ostream& out, const extents<Rank>& shape) {
  return out << to_string(shape);
}

/// The extents of an image batch: n images of c channels, h rows and w columns, in elements. They are what extents<4>
/// is too, made from four numbers or members by name, and not checked.
struct image_extents {
  index_t n = 0;  ///< images
  index_t c = 0;  ///< channels
  index_t h = 0;  ///< rows
  index_t w = 0;  ///< columns

  constexpr image_extents() noexcept = default;
  /// Extents in the order n, c, h, w, in elements.
  constexpr image_extents(index_t images, index_t channels, index_t height, index_t width) noexcept
      : n{images}, c{channels}, h{height}, w{width} {}
  /// Reads the axes as n, c, h, w.
  constexpr image_extents(const extents<4>& shape) noexcept : n{shape[0]}, c{shape[1]}, h{shape[2]}, w{shape[3]} {}

  /// The extents in the order n, c, h, w. @throws shape_error if one is negative
  GRADUS_NEVER_INLINE constexpr operator extents<4>() const { return extents<4>{n, c, h, w}; }

  /// The extent of axis 0 (n) to 3 (w), as extents<4> gives it. @pre 0 <= axis < 4
  [[nodiscard]] constexpr index_t operator[](int axis) const noexcept {
    return axis == 0 ? n : axis == 1 ? c : axis == 2 ? h : w;
  }

  /// The number of elements: n * c * h * w. @throws shape_error if it does not fit index_t
  [[nodiscard]] GRADUS_NEVER_INLINE constexpr index_t size() const {
    return detail::checked_product(detail::checked_product(detail::checked_product(n, c), h), w);
  }

  /// True if all members are equal.
  friend constexpr bool operator==(const image_extents&, const image_extents&) noexcept = default;
};

/// The shape as text in the order n, c, h, w: "(2, 3, 5, 7)".
[[nodiscard]] inline std::string to_string(const image_extents& shape) {
  return gradus::join({"(", shape.n, ", ", shape.c, ", ", shape.h, ", ", shape.w, ")"});
}

/// Writes the extents as to_string does.
inline std::ostream& operator<<(std::ostream& out, const image_extents& shape) {
  return out << to_string(shape);
}

}  // namespace gradus

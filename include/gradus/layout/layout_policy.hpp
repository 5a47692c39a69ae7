// SPDX-License-Identifier: BSL-1.0
//
// The axes of an image batch and the concept of a layout, which fixes their order in memory.
#pragma once

#include <array>        // std::array
#include <concepts>     // std::convertible_to, std::same_as
#include <string_view>  // std::string_view
#include <type_traits>  // std::bool_constant, std::remove_cvref_t

#include "gradus/core/config.hpp"

namespace gradus {

/// The axes of an image batch in their logical order.
enum class axis : unsigned char {
  n,  ///< images of the batch
  c,  ///< channels
  h,  ///< rows of pixels
  w   ///< columns of pixels
};

namespace detail {

constexpr bool names_every_axis_once(const std::array<axis, 4>& order) noexcept {
  unsigned seen = 0;
  for (const axis a : order) {
    seen |= 1U << static_cast<unsigned>(a);
  }
  return seen == 0b1111U;
}

}  // namespace detail

/// A requirement of `layout_policy`: L has a constant axis order that names each axis once.
// Nested requirements make a missing or non-constant `order` evaluate to false instead of a hard error.
template <class L>
concept has_axis_order = requires {
  requires std::same_as<std::remove_cvref_t<decltype(L::order)>, std::array<axis, 4>>;
  requires std::bool_constant<detail::names_every_axis_once(L::order)>::value;
};

/// A requirement of `layout_policy`: L has `L::name`, a constant string.
template <class L>
concept has_layout_name = requires {
  { L::name } -> std::convertible_to<std::string_view>;
};

/// A compile-time rule that fixes the memory order of an image batch.
///
/// A type L models `layout_policy` when
///   1. `L::order` is a constant `std::array<axis, 4>` that names n, c, h, w once each, slowest first;
///   2. `L::name` is a constant string used in messages.
/// Semantics (tests/property/layout): `dense_mapping<L>` is a bijection from the valid coordinates onto
/// [0, N*C*H*W).
template <class L>
concept layout_policy = has_axis_order<L> && has_layout_name<L>;

/// Reports at compile time which requirement of `layout_policy` the type L does not meet. Returns true if it compiles.
template <class L>
consteval bool explain_layout_policy() {
  static_assert(has_axis_order<L>,
                "gradus: not a layout policy: give it the axis order, slowest first, e.g. "
                "static constexpr std::array order{axis::n, axis::h, axis::w, axis::c};");
  static_assert(has_layout_name<L>,
                "gradus: not a layout policy: give it a name, e.g. "
                "static constexpr std::string_view name = \"nhwc\";");
  return true;
}

}  // namespace gradus

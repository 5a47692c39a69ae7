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

/// A requirement of `layout_policy`: Layout has a constant axis order that names each axis once.
// Nested requirements make a missing or non-constant `order` evaluate to false instead of a hard error.
template <class Layout>
concept has_axis_order = requires {
  requires std::same_as<std::remove_cvref_t<decltype(Layout::order)>, std::array<axis, 4>>;
  requires std::bool_constant<detail::names_every_axis_once(Layout::order)>::value;
};

/// A requirement of `layout_policy`: Layout has `Layout::name`, a constant string.
template <class Layout>
concept has_layout_name = requires {
  { Layout::name } -> std::convertible_to<std::string_view>;
};

/// A compile-time rule that fixes the memory order of an image batch.
///
/// A type Layout models `layout_policy` when
///   1. `Layout::order` is a constant `std::array<axis, 4>` that names n, c, h, w once each, slowest first;
///   2. `Layout::name` is a constant string used in messages.
/// Semantics (tests/property/layout): `dense_mapping<Layout>` is a bijection from the valid coordinates onto
/// [0, N*C*H*W).
template <class Layout>
concept layout_policy = has_axis_order<Layout> && has_layout_name<Layout>;

/// Reports at compile time which requirement of `layout_policy` the type Layout does not meet. Returns true if it
/// compiles.
template <class Layout>
consteval bool explain_layout_policy() {
  static_assert(has_axis_order<Layout>,
                "gradus: not a layout policy: give it the axis order, slowest first, e.g. "
                "static constexpr std::array order{axis::n, axis::h, axis::w, axis::c};");
  static_assert(has_layout_name<Layout>,
                "gradus: not a layout policy: give it a name, e.g. "
                "static constexpr std::string_view name = \"nhwc\";");
  return true;
}

}  // namespace gradus

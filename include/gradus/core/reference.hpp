// SPDX-License-Identifier: BSL-1.0
//
// Arguments that an object refers to for as long as it lives.
#pragma once

#include <concepts>     // std::same_as
#include <type_traits>  // std::is_const_v, std::is_lvalue_reference_v, std::remove_cvref_t, std::remove_reference_t

#include "gradus/core/config.hpp"

namespace gradus {

/// An argument of type `Wanted` that cannot be kept as a `Wanted&`: a temporary, or a const object. Constructors that
/// keep a reference have an overload for it, which says what to write instead.
template <class Argument, class Wanted>
concept not_kept = std::same_as<std::remove_cvref_t<Argument>, Wanted> && !std::same_as<Argument, Wanted&>;

template <class Argument>
inline constexpr bool is_const_argument = std::is_const_v<std::remove_reference_t<Argument>>;

/// Says why an object of any kind is not kept. Always true when it compiles.
template <class Argument>
consteval bool explain_kept() {
  static_assert(std::is_lvalue_reference_v<Argument>,
                "gradus: a temporary is gone at the end of this statement, and what is made here refers to it: give it "
                "a name on a line before, as in auto it = ...;, and pass the name");
  return true;
}

/// Says why a device is not kept. Always true when it compiles.
template <class Argument>
consteval bool explain_kept_device() {
  static_assert(!is_const_argument<Argument>,
                "gradus: the device is const, but takes memory and runs work: write gradus::cpu device; without const");
  static_assert(std::is_lvalue_reference_v<Argument>,
                "gradus: the device is a temporary, gone at the end of this statement, and what is made here refers to "
                "it: write gradus::cpu device; on a line before and pass device");
  return true;
}

}  // namespace gradus

// SPDX-License-Identifier: BSL-1.0
//
// Checks for arguments that an object keeps a reference to.
#pragma once

#include <concepts>     // std::same_as
#include <type_traits>  // std::is_const_v, std::is_lvalue_reference_v, std::remove_cvref_t, std::remove_reference_t

#include "gradus/core/config.hpp"

namespace gradus {

/// An argument of type `Wanted` that cannot be kept as a `Wanted&`: a temporary or a const object. Constructors that
/// keep a reference have an overload for such arguments, whose message shows what to write instead.
template <class Argument, class Wanted>
concept not_kept = std::same_as<std::remove_cvref_t<Argument>, Wanted> && !std::same_as<Argument, Wanted&>;

/// True for an argument that is const.
template <class Argument>
inline constexpr bool is_const_argument = std::is_const_v<std::remove_reference_t<Argument>>;

/// Reports at compile time why an object cannot be kept by reference. Returns true if it compiles.
template <class Argument>
consteval bool explain_kept() {
  static_assert(
      std::is_lvalue_reference_v<Argument>,
      "gradus: this object keeps a reference to its argument, but a temporary is destroyed at the end of this "
      "statement: give it a name on the line before (auto it = ...;) and pass the name");
  return true;
}

/// Reports at compile time why a device cannot be kept by reference. Returns true if it compiles.
template <class Argument>
consteval bool explain_kept_device() {
  static_assert(
      !is_const_argument<Argument>,
      "gradus: the device is const, but allocating memory and running work change it: write gradus::cpu device; "
      "without const");
  static_assert(
      std::is_lvalue_reference_v<Argument>,
      "gradus: the device is a temporary that is destroyed at the end of this statement, but this object keeps "
      "a reference to it: write gradus::cpu device; on a line before and pass device");
  return true;
}

}  // namespace gradus

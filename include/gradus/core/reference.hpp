// SPDX-License-Identifier: BSL-1.0
//
// Arguments that an object keeps a reference to.
#pragma once

#include <type_traits>  // std::add_pointer_t, std::is_const_v, std::is_convertible_v, std::is_lvalue_reference_v, ...

#include "gradus/core/config.hpp"

namespace gradus {

/// Reports at compile time why an argument cannot be kept as a `Kept&`. Returns true if it compiles.
template <class Argument, class Kept = const std::remove_reference_t<Argument>>
consteval bool explain_kept() {
  static_assert(
      std::is_lvalue_reference_v<Argument>,
      "gradus: this argument is a temporary that is destroyed at the end of the statement, but a reference to "
      "it is kept: name it on the line before (auto it = ...;) and pass the name");
  static_assert(
      std::is_const_v<Kept> || !std::is_const_v<std::remove_reference_t<Argument>>,
      "gradus: this argument is const, but the object that keeps a reference to it changes it: pass one that is not "
      "const (auto& it, not const auto& it)");
  return true;
}

/// An argument of the class of `Kept` that cannot be kept as a `Kept&`: a temporary, or a const object.
template <class Argument, class Kept>
concept not_kept = std::is_convertible_v<std::add_pointer_t<Argument>, std::add_pointer_t<const Kept>> &&
    !(std::is_lvalue_reference_v<Argument> &&
      std::is_convertible_v<std::add_pointer_t<Argument>, std::add_pointer_t<Kept>>);

/// A parameter `Kept&` of a function that keeps the reference. An object that is passed needs a name; for a temporary,
/// or a const object where `Kept` is not const, the compiler says what to write instead.
///
///   explicit evaluation(borrowed<Loader> loader) : loader_{&loader.get()} {}
///
/// No template argument is deduced through it: a class that deduces `Kept` has a deduction guide for `Kept&&`.
template <class Kept>
class borrowed {
 public:
  /// Refers to an object with a name.
  // NOLINTNEXTLINE(google-explicit-constructor): stands for a parameter Kept&
  constexpr borrowed(Kept& named) noexcept : kept_{&named} {}
  /// Refuses a temporary, and a const object.
  template <not_kept<Kept> Argument>
  borrowed(Argument&& /*refused*/) noexcept : kept_{nullptr} {
    static_assert(explain_kept<Argument, Kept>());
  }

  /// The object.
  [[nodiscard]] constexpr Kept& get() const noexcept { return *kept_; }
  /// The object, for a function that takes a `Kept&`.
  // NOLINTNEXTLINE(google-explicit-constructor): stands for a parameter Kept&
  constexpr operator Kept&() const noexcept { return *kept_; }

 private:
  Kept* kept_;
};

}  // namespace gradus

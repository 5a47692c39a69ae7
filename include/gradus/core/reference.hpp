// SPDX-License-Identifier: BSL-1.0
//
// Arguments that an object keeps a reference to.
#pragma once

#include <type_traits>  // std::is_const_v, std::remove_const_t

#include "gradus/core/config.hpp"

namespace gradus {

/// A parameter `Kept&` of a function that keeps the reference. It converts from an object with a name. A temporary is
/// refused, and a const object where `Kept` is not const: compilers show the declaration, with what to write.
///
///   explicit evaluation(borrowed<Loader> loader) : loader_{&loader.get()} {}
///
/// No template argument is deduced through it: a class that deduces `Kept` has a deduction guide for `Kept&&`, and a
/// function that is given an `Argument&&` passes on borrowed(std::forward<Argument>(argument)).get().
template <class Kept>
class borrowed {
 public:
  /// Refers to an object with a name.
  // NOLINTNEXTLINE(google-explicit-constructor): stands for a parameter Kept&
  constexpr borrowed(Kept& named) noexcept : kept_{&named} {}
  borrowed(const Kept&&) = delete;  // gradus: a temporary is gone after this statement: name it on the line before
  borrowed(const std::remove_const_t<Kept>&)  // gradus: a const object, but it changes: write auto& it, without const
      requires(!std::is_const_v<Kept>) = delete;

  /// The object.
  [[nodiscard]] constexpr Kept& get() const noexcept { return *kept_; }
  /// The object, for a function that takes a `Kept&`.
  // NOLINTNEXTLINE(google-explicit-constructor): stands for a parameter Kept&
  constexpr operator Kept&() const noexcept { return *kept_; }

 private:
  Kept* kept_;
};

}  // namespace gradus

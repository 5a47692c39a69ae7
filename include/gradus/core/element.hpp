// SPDX-License-Identifier: BSL-1.0
//
// The types that a tensor can hold, and their names in messages and files.
// Module: core. Depends on: std.
#pragma once

#include <cstdint>      // std::int32_t, std::int64_t, std::uint8_t
#include <string_view>  // std::string_view
#include <type_traits>  // std::is_same_v

namespace gradus {

/// The name of an element type as NumPy and safetensors users know it; empty for a type that is not an element.
template <class Element>
inline constexpr std::string_view element_name = "";
template <>
inline constexpr std::string_view element_name<float> = "float32";
template <>
inline constexpr std::string_view element_name<double> = "float64";
template <>
inline constexpr std::string_view element_name<std::int32_t> = "int32";
template <>
inline constexpr std::string_view element_name<std::int64_t> = "int64";
template <>
inline constexpr std::string_view element_name<std::uint8_t> = "uint8";
template <>
inline constexpr std::string_view element_name<bool> = "bool";

/// A type that tensors can hold: one with an `element_name`.
template <class E>
concept element = !element_name<E>.empty();

/// A type that networks compute in: float or double.
template <class E>
concept real_element = std::is_same_v<E, float> || std::is_same_v<E, double>;

/// Says why the type E is not an element. Always true when it compiles.
template <class E>
consteval bool explain_element() {
  static_assert(element<E>,
                "gradus: not an element type: use float, double, std::int32_t, std::int64_t, std::uint8_t "
                "or bool");
  return true;
}

/// Says why the type E cannot be computed with. Always true when it compiles.
template <class E>
consteval bool explain_real_element() {
  static_assert(real_element<E>, "gradus: networks compute in float or double");
  return true;
}

}  // namespace gradus

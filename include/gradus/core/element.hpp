// SPDX-License-Identifier: BSL-1.0
//
// The element types of tensors and their names in messages and files.
#pragma once

#include <cstdint>      // std::int32_t, std::int64_t, std::uint8_t
#include <string_view>  // std::string_view
#include <type_traits>  // std::is_same_v

#include "gradus/core/config.hpp"

namespace gradus {

/// The name of an element type as in NumPy and safetensors; empty for a type that is not an element.
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
template <class Element>
concept element = !element_name<Element>.empty();

/// A type for arithmetic: float or double.
template <class Element>
concept real_element = std::is_same_v<Element, float> || std::is_same_v<Element, double>;

namespace detail {
template <class Element>
struct parameter_element {};
template <>
struct parameter_element<float> {
  using type = float;
};
template <>
struct parameter_element<double> {
  using type = double;
};

/// Converts SIMD vectors of a 16-bit storage type to vectors of float and back. A type that networks can store
/// specializes it as well as `parameter_element`, with
///   widen<Floats>(words)   the numbers whose bits are the upper halves of the words; the lower halves are zero;
///   narrow<Words>(floats)  the inverse, rounded as the type's constructor rounds; the other bits of the words are
///                          unspecified.
template <class Element>
struct storage_lanes;
}  // namespace detail

/// A type in which networks store images, activations and their gradients: float, double, `bfloat16`
/// (gradus/core/bfloat16.hpp) or `float16` (gradus/core/float16.hpp).
template <class Element>
concept network_element = requires {
  typename detail::parameter_element<Element>::type;
};

/// A type that is only for storage, with arithmetic in another type: bfloat16 or float16.
template <class Element>
concept storage_element = network_element<Element> && !real_element<Element>;

/// The type in which a network of `Element` computes, accumulates, and stores its parameters, their gradients and its
/// running statistics: float for bfloat16 and float16, otherwise `Element` itself.
template <network_element Element>
using parameter_element_t = typename detail::parameter_element<Element>::type;

/// Reports at compile time why the type Element is not an element. Returns true if it compiles.
template <class Element>
consteval bool explain_element() {
  static_assert(element<Element>,
                "gradus: not an element type: use float, double, std::int32_t, std::int64_t, std::uint8_t "
                "or bool");
  return true;
}

/// Reports at compile time why Element is not a type for arithmetic. Returns true if it compiles.
template <class Element>
consteval bool explain_real_element() {
  static_assert(real_element<Element>, "gradus: arithmetic needs float or double");
  return true;
}

/// Reports at compile time why networks cannot store the type Element. Returns true if it compiles.
template <class Element>
consteval bool explain_network_element() {
  static_assert(
      network_element<Element>,
      "gradus: networks hold float, double, gradus::bfloat16 (of gradus/core/bfloat16.hpp) or gradus::float16 "
      "(of gradus/core/float16.hpp)");
  return true;
}

}  // namespace gradus

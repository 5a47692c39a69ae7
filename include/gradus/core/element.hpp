// SPDX-License-Identifier: BSL-1.0
//
// The types that a tensor can hold, and their names in messages and files.
#pragma once

#include <cstdint>      // std::int32_t, std::int64_t, std::uint8_t
#include <string_view>  // std::string_view
#include <type_traits>  // std::is_same_v

#include "gradus/core/config.hpp"

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

/// A type that is computed in: float or double.
template <class E>
concept real_element = std::is_same_v<E, float> || std::is_same_v<E, double>;

namespace detail {
template <class E>
struct parameter_element {};
template <>
struct parameter_element<float> {
  using type = float;
};
template <>
struct parameter_element<double> {
  using type = double;
};

/// How vectors of a type that is stored in 16 bits become vectors of floats and back. A type that networks hold
/// specializes it beside `parameter_element`, with
///   widen<Floats>(words)   the numbers whose bits are the upper halves of the words, of which the rest is zero;
///   narrow<Words>(floats)  the way back, rounded as the type's constructor rounds; the rest of the words may be
///   anything.
template <class E>
struct storage_lanes;
}  // namespace detail

/// A type that networks keep images, activations and their gradients in: float, double, `bfloat16` of
/// gradus/core/bfloat16.hpp, or `float16` of gradus/core/float16.hpp.
template <class E>
concept network_element = requires {
  typename detail::parameter_element<E>::type;
};

/// One that is only stored, and computed with in another: bfloat16 or float16.
template <class E>
concept storage_element = network_element<E> && !real_element<E>;

/// What a network of `Element` computes and accumulates in, and keeps its parameters, their gradients and its running
/// statistics in: float for bfloat16 and float16, else `Element` itself.
template <network_element Element>
using parameter_element_t = typename detail::parameter_element<Element>::type;

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
  static_assert(real_element<E>, "gradus: computed is in float or double");
  return true;
}

/// Says why networks cannot hold the type E. Always true when it compiles.
template <class E>
consteval bool explain_network_element() {
  static_assert(
      network_element<E>,
      "gradus: networks hold float, double, gradus::bfloat16 (of gradus/core/bfloat16.hpp) or gradus::float16 "
      "(of gradus/core/float16.hpp)");
  return true;
}

}  // namespace gradus

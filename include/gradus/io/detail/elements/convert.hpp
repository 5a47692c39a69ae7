// SPDX-License-Identifier: BSL-1.0
//
// Elements of files as elements of memory.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t, std::uint16_t
#include <cstring>      // std::memcpy
#include <type_traits>  // std::is_floating_point_v, std::is_same_v

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/io/element_type.hpp"

namespace gradus::io::detail {

/// Returns function(Element{}) for the type of elements in a file.
template <class Function>
decltype(auto) with_element_type(element_type type, const Function& function) {
  switch (type) {
    case element_type::boolean:
    case element_type::u8:
      return function(std::uint8_t{});
    case element_type::i8:
      return function(std::int8_t{});
    case element_type::i16:
      return function(std::int16_t{});
    case element_type::u16:
      return function(std::uint16_t{});
    case element_type::f16:
      return function(float16{});
    case element_type::bf16:
      return function(bfloat16{});
    case element_type::i32:
      return function(std::int32_t{});
    case element_type::u32:
      return function(std::uint32_t{});
    case element_type::f32:
      return function(float{});
    case element_type::i64:
      return function(std::int64_t{});
    case element_type::u64:
      return function(std::uint64_t{});
    case element_type::f64:
    default:
      return function(double{});
  }
}

/// True for the types that store real numbers.
template <class Element>
inline constexpr bool is_real =
    std::is_floating_point_v<Element> || std::is_same_v<Element, float16> || std::is_same_v<Element, bfloat16>;

/// A number as another type, rounded to nearest; to 16 bits through float.
template <class To, class From>
[[nodiscard]] To rounded_to(From value) noexcept {
  if constexpr (std::is_same_v<To, float16> || std::is_same_v<To, bfloat16>) {
    return static_cast<To>(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

/// True if elements of a file can be read as `To`: any as a real number, otherwise as their own type, and truths as
/// bytes.
template <class To>
[[nodiscard]] bool reads_as(element_type type) noexcept {
  return is_real<To> || type == element_type_of<To>() ||
         (std::is_same_v<To, std::uint8_t> && type == element_type::boolean);
}

/// Converts elements of a file, which need not be aligned. @pre reads_as<To>(type)
template <class To>
void convert_elements(element_type type, const std::uint8_t* from, To* to, std::size_t count) {
  if (type == element_type_of<To>() || type == element_type::boolean) {
    if (type == element_type::boolean) {
      for (std::size_t i = 0; i < count; ++i) {
        to[i] = rounded_to<To>(from[i] != 0 ? 1 : 0);
      }
    } else if (count > 0) {
      std::memcpy(to, from, count * sizeof(To));
    }
    return;
  }
  if constexpr (is_real<To>) {
    with_element_type(type, [&](auto stored) {
      using stored_type = decltype(stored);
      for (std::size_t i = 0; i < count; ++i) {
        std::memcpy(&stored, from + i * sizeof(stored_type), sizeof(stored_type));
        to[i] = rounded_to<To>(stored);
      }
    });
  }
}

}  // namespace gradus::io::detail

// SPDX-License-Identifier: BSL-1.0
//
// The types of elements in files.
#pragma once

#include <array>        // std::array
#include <bit>          // std::endian
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t, std::uint16_t
#include <optional>     // std::optional
#include <string_view>  // std::string_view
#include <type_traits>  // std::is_same_v

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"

namespace gradus::io {

static_assert(std::endian::native == std::endian::little, "gradus::io: the files are little-endian, as the machine is");

/// The type of the elements of a tensor in a file.
enum class element_type : unsigned char {
  boolean,  ///< "BOOL": a byte, 0 or 1
  u8,       ///< "U8"
  i8,       ///< "I8"
  i16,      ///< "I16"
  u16,      ///< "U16"
  f16,      ///< "F16": IEEE 754 half precision
  bf16,     ///< "BF16": the upper 16 bits of a float
  i32,      ///< "I32"
  u32,      ///< "U32"
  f32,      ///< "F32"
  f64,      ///< "F64"
  i64,      ///< "I64"
  u64       ///< "U64"
};

namespace detail {

struct element_properties {
  std::string_view name;
  std::string_view element_name;  // as gradus::element_name
  std::size_t size;               // bytes
};
inline constexpr std::array<element_properties, 13> all_element_types{{{"BOOL", "bool", 1},
                                                                       {"U8", "uint8", 1},
                                                                       {"I8", "int8", 1},
                                                                       {"I16", "int16", 2},
                                                                       {"U16", "uint16", 2},
                                                                       {"F16", "float16", 2},
                                                                       {"BF16", "bfloat16", 2},
                                                                       {"I32", "int32", 4},
                                                                       {"U32", "uint32", 4},
                                                                       {"F32", "float32", 4},
                                                                       {"F64", "float64", 8},
                                                                       {"I64", "int64", 8},
                                                                       {"U64", "uint64", 8}}};

}  // namespace detail

/// The name of the type in a file: "F32".
[[nodiscard]] constexpr std::string_view name_of(element_type type) noexcept {
  return detail::all_element_types[static_cast<std::size_t>(type)].name;
}
/// The name that messages have for it, that of NumPy: "float32".
[[nodiscard]] constexpr std::string_view element_name_of(element_type type) noexcept {
  return detail::all_element_types[static_cast<std::size_t>(type)].element_name;
}
/// The type of such a name; nothing for any other text.
[[nodiscard]] constexpr std::optional<element_type> element_type_named(std::string_view name) noexcept {
  for (std::size_t k = 0; k < detail::all_element_types.size(); ++k) {
    if (detail::all_element_types[k].element_name == name) {
      return static_cast<element_type>(k);
    }
  }
  return {};
}
/// The size of an element, in bytes.
[[nodiscard]] constexpr std::size_t size_of(element_type type) noexcept {
  return detail::all_element_types[static_cast<std::size_t>(type)].size;
}

/// The type in a file of elements of a C++ type.
template <class Element>
[[nodiscard]] constexpr element_type element_type_of() noexcept {
  const auto is = []<class... Other>() { return (std::is_same_v<Element, Other> || ...); };
  if constexpr (is.template operator()<bool>()) {
    return element_type::boolean;
  } else if constexpr (is.template operator()<std::uint8_t>()) {
    return element_type::u8;
  } else if constexpr (is.template operator()<std::int8_t>()) {
    return element_type::i8;
  } else if constexpr (is.template operator()<std::int16_t>()) {
    return element_type::i16;
  } else if constexpr (is.template operator()<std::uint16_t>()) {
    return element_type::u16;
  } else if constexpr (is.template operator()<float16>()) {
    return element_type::f16;
  } else if constexpr (is.template operator()<bfloat16>()) {
    return element_type::bf16;
  } else if constexpr (is.template operator()<std::int32_t>()) {
    return element_type::i32;
  } else if constexpr (is.template operator()<std::uint32_t>()) {
    return element_type::u32;
  } else if constexpr (is.template operator()<float>()) {
    return element_type::f32;
  } else if constexpr (is.template operator()<double>()) {
    return element_type::f64;
  } else if constexpr (is.template operator()<std::int64_t, long long>()) {
    return element_type::i64;
  } else {
    static_assert(is.template operator()<std::uint64_t, unsigned long long>(),
                  "gradus::io: a file has no such elements: use bool, an integer type of 8 to 64 bits, float, double, "
                  "gradus::bfloat16 or gradus::float16");
    return element_type::u64;
  }
}

}  // namespace gradus::io

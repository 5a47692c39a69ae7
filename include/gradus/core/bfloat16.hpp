// SPDX-License-Identifier: BSL-1.0
//
// bfloat16: the upper half of a float, as a type that is stored and not computed with.
#pragma once

#include <bit>          // std::bit_cast
#include <cstdint>      // std::uint16_t, std::uint32_t
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"

namespace gradus {

/// A number of 16 bits with the range of a float and 8 bits of precision (sign, 8 bits of exponent, 7 of fraction).
///
/// It converts to float without loss, and explicitly from float by rounding to nearest, ties to even; a NaN stays a
/// NaN with its sign, numbers too small for a normal one become subnormal, numbers too large infinite. Arithmetic is
/// that of float. A network of bfloat16 keeps images, activations and their gradients in it; its parameters are float.
class bfloat16 {
 public:
  constexpr bfloat16() noexcept = default;
  constexpr explicit bfloat16(float value) noexcept : bits_{rounded(std::bit_cast<std::uint32_t>(value))} {}

  // NOLINTNEXTLINE(google-explicit-constructor): every value is a float
  constexpr operator float() const noexcept { return std::bit_cast<float>(std::uint32_t{bits_} << 16U); }

  [[nodiscard]] static constexpr bfloat16 from_bits(std::uint16_t bits) noexcept {
    bfloat16 result;
    result.bits_ = bits;
    return result;
  }
  [[nodiscard]] constexpr std::uint16_t bits() const noexcept { return bits_; }

 private:
  [[nodiscard]] static constexpr std::uint16_t rounded(std::uint32_t bits) noexcept {
    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
      return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);  // a quiet NaN: its fraction may be in the lower half
    }
    return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
  }

  std::uint16_t bits_ = 0;
};

template <>
inline constexpr std::string_view element_name<bfloat16> = "bfloat16";

namespace detail {
template <>
struct parameter_element<bfloat16> {
  using type = float;
};

template <>
struct storage_lanes<bfloat16> {
  template <class Floats, class Words>
  GRADUS_ALWAYS_INLINE static Floats widen(Words bits) noexcept {
    return std::bit_cast<Floats>(bits);
  }
  template <class Words, class Floats>
  GRADUS_ALWAYS_INLINE static Words narrow(Floats value) noexcept {
    const Words bits = reinterpret_cast<Words>(value);
    const Words number = bits + 0x7FFFU + ((bits >> 16U) & 1U);
    return value != value ? bits | 0x400000U : number;
  }
};
}  // namespace detail

}  // namespace gradus

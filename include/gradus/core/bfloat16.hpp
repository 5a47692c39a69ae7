// SPDX-License-Identifier: BSL-1.0
//
// bfloat16: the upper 16 bits of a float, as a storage type. Arithmetic on it is done in float.
#pragma once

#include <bit>          // std::bit_cast
#include <cstdint>      // std::uint16_t, std::uint32_t
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"

namespace gradus {

/// A 16-bit number with the range of a float and 8 bits of precision (1 sign bit, 8 exponent bits, 7 fraction bits).
///
/// The conversion to float is exact. The explicit conversion from float rounds to nearest, ties to even. A NaN stays a
/// NaN and keeps its sign, numbers below the smallest normal one become subnormal, and numbers that are too large
/// become infinite. Arithmetic is done in float. A network of bfloat16 stores images, activations and their gradients
/// as bfloat16, and its parameters as float.
class bfloat16 {
 public:
  /// Zero.
  constexpr bfloat16() noexcept = default;
  /// Rounds to nearest, ties to even.
  constexpr explicit bfloat16(float value) noexcept : bits_{rounded(std::bit_cast<std::uint32_t>(value))} {}

  /// The same value as a float; exact.
  // NOLINTNEXTLINE(google-explicit-constructor): every value is a float
  constexpr operator float() const noexcept { return std::bit_cast<float>(std::uint32_t{bits_} << 16U); }

  /// The number with this bit pattern.
  [[nodiscard]] static constexpr bfloat16 from_bits(std::uint16_t bits) noexcept {
    bfloat16 result;
    result.bits_ = bits;
    return result;
  }
  /// The bit pattern of the number.
  [[nodiscard]] constexpr std::uint16_t bits() const noexcept { return bits_; }

 private:
  [[nodiscard]] static constexpr std::uint16_t rounded(std::uint32_t bits) noexcept {
    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
      // A quiet NaN: its fraction bits may all be in the lower half.
      return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);
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

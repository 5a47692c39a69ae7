// SPDX-License-Identifier: BSL-1.0
//
// A test for finite numbers that also holds with -ffast-math.
#pragma once

#include <bit>      // std::bit_cast
#include <cstdint>  // std::uint32_t, std::uint64_t

#include "gradus/core/config.hpp"

namespace gradus {

/// True if the number is neither infinite nor NaN. Tests the bits: with -ffast-math compilers assume that std::isfinite
/// is true.
[[nodiscard]] constexpr bool is_finite(double number) noexcept {
  constexpr std::uint64_t exponent = 0x7ff0'0000'0000'0000U;
  return (std::bit_cast<std::uint64_t>(number) & exponent) != exponent;
}
/// The same for float.
[[nodiscard]] constexpr bool is_finite(float number) noexcept {
  constexpr std::uint32_t exponent = 0x7f80'0000U;
  return (std::bit_cast<std::uint32_t>(number) & exponent) != exponent;
}

}  // namespace gradus

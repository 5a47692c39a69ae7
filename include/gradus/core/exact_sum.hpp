// SPDX-License-Identifier: BSL-1.0
//
// Sums of doubles without rounding: their bits depend neither on the order of the numbers nor on who adds which.
#pragma once

#include <array>    // std::array
#include <bit>      // std::bit_cast
#include <cmath>    // std::ldexp
#include <cstddef>  // std::size_t
#include <cstdint>  // std::int64_t, std::uint32_t, std::uint64_t
#include <span>     // std::span

#include "gradus/core/compiled.hpp"

namespace gradus {

/// A sum of doubles that is rounded once, in value(). Ranks bring their sums together as numbers that are integers, so
/// that an all-reduce of doubles adds them without rounding, too.
///
/// The sum is an integer in units of the smallest double, in digits of 32 bits: a long accumulator (U. Kulisch,
/// Computer arithmetic and validity, 2008, chapter 8), whose carries are put off until they are needed. Numbers that
/// are infinite or NaN are added beside it.
class exact_sum {
  static constexpr std::size_t digits = 69;  // the largest double has its last bit in digit 65; 2^62 of them fit

 public:
  /// How many doubles ranks exchange.
  static constexpr std::size_t numbers = digits + 1;

  /// Adds a number.
  void add(double number) noexcept;

  /// Adds what another sum has.
  void add(const exact_sum& other) noexcept;

  /// The sum, rounded to a double within one unit in the last shift. A sum that fits into a double is exact. Infinite
  /// if it is too large or a number was infinite; NaN if one was NaN, or some were infinite with different signs.
  [[nodiscard]] double value() const noexcept;

  /// Writes the sum as numbers that ranks may add up, one by one.
  void write(std::span<double, numbers> to) noexcept;

  /// Reads what `write` has written, or sums of it over at most 2^20 ranks.
  void read(std::span<const double, numbers> from) noexcept;

 private:
  static constexpr std::uint64_t low_bits = 0xffffffffU;
  static constexpr std::uint32_t most_without_carry = 1U << 28U;
  static constexpr int smallest_exponent = -1074;

  /// Makes all digits but the last numbers of [0, 2^32).
  void carry() noexcept;

  std::array<std::int64_t, digits> digits_{};  // from the lowest on
  double not_finite_ = 0;
  std::uint32_t since_carry_ = 0;
};

}  // namespace gradus

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus {

GRADUS_INLINE void exact_sum::add(double number) noexcept {
  const auto bits = std::bit_cast<std::uint64_t>(number);
  const std::uint64_t exponent = bits >> 52U & 0x7ffU;
  if (exponent == 0x7ffU) {
    not_finite_ += number;
    return;
  }
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52U) - 1);
  const std::uint64_t mantissa = exponent == 0 ? fraction : fraction | std::uint64_t{1} << 52U;
  const std::uint64_t shift = exponent == 0 ? 0 : exponent - 1;  // |number| = mantissa * 2^shift units
  const std::uint64_t low = (mantissa & low_bits) << shift % 32;
  const std::uint64_t high = (mantissa >> 32U) << shift % 32;
  std::int64_t* const to = digits_.data() + shift / 32;
  const std::int64_t sign = bits >> 63U == 0 ? 1 : -1;
  to[0] += sign * static_cast<std::int64_t>(low & low_bits);
  to[1] += sign * static_cast<std::int64_t>((low >> 32U) + (high & low_bits));
  to[2] += sign * static_cast<std::int64_t>(high >> 32U);
  if (++since_carry_ == most_without_carry) {
    carry();
  }
}

GRADUS_INLINE void exact_sum::add(const exact_sum& other) noexcept {
  exact_sum settled = other;
  settled.carry();
  carry();
  for (std::size_t i = 0; i < digits; ++i) {
    digits_[i] += settled.digits_[i];
  }
  not_finite_ += other.not_finite_;
  carry();
}

GRADUS_INLINE double exact_sum::value() const noexcept {
  if (!(not_finite_ == 0)) {
    return not_finite_;
  }
  exact_sum positive = *this;
  positive.carry();
  const bool negative = positive.digits_[digits - 1] < 0;
  if (negative) {
    for (std::int64_t& each : positive.digits_) {
      each = -each;
    }
    positive.carry();
  }
  std::size_t top = digits - 1;
  while (top > 2 && positive.digits_[top] == 0) {
    --top;
  }
  double result = 0;  // the three highest digits: 65 bits or more
  for (std::size_t i = top - 2; i <= top; ++i) {
    result += std::ldexp(static_cast<double>(positive.digits_[i]), 32 * static_cast<int>(i + 2 - top));
  }
  result = std::ldexp(result, 32 * static_cast<int>(top - 2) + smallest_exponent);
  return negative ? -result : result;
}

GRADUS_INLINE void exact_sum::write(std::span<double, numbers> to) noexcept {
  carry();
  for (std::size_t i = 0; i < digits; ++i) {
    to[i] = static_cast<double>(digits_[i]);
  }
  to[digits] = not_finite_;
}

GRADUS_INLINE void exact_sum::read(std::span<const double, numbers> from) noexcept {
  for (std::size_t i = 0; i < digits; ++i) {
    digits_[i] = static_cast<std::int64_t>(from[i]);
  }
  not_finite_ = from[digits];
  carry();
}

GRADUS_INLINE void exact_sum::carry() noexcept {
  std::int64_t over = 0;
  for (std::size_t i = 0; i + 1 < digits; ++i) {
    const std::int64_t digit = digits_[i] + over;
    over = digit >> 32;  // rounded down, of negative numbers too
    digits_[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(digit) & low_bits);
  }
  digits_[digits - 1] += over;
  since_carry_ = 0;
}

}  // namespace gradus
#endif

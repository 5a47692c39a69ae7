// SPDX-License-Identifier: BSL-1.0
//
// float16: the binary16 format of IEEE 754, for storage and messages. Arithmetic on it is done in float.
#pragma once

#include <bit>          // std::bit_cast
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint16_t, std::uint32_t
#include <cstring>      // std::memcpy
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/cpuid.hpp"
#include "gradus/core/element.hpp"

namespace gradus {

/// A 16-bit number with 11 bits of precision and magnitudes up to 65504 (1 sign bit, 5 exponent bits, 10 fraction
/// bits).
///
/// The conversion to float is exact. The explicit conversion from float rounds to nearest, ties to even. A NaN stays a
/// NaN and keeps its sign. Below 2^-14 the precision falls gradually, up to 2^-25 the result is zero, and from 65520 on
/// it is infinite. Arithmetic is done in float. A network of float16 stores images, activations and their gradients as
/// float16, and its parameters as float. Small gradients need a scaled loss: gradus/optim/update.hpp.
class float16 {
 public:
  /// Zero.
  constexpr float16() noexcept = default;
  /// Rounds to nearest, ties to even.
  constexpr explicit float16(float value) noexcept : bits_{rounded(std::bit_cast<std::uint32_t>(value))} {}

  /// The same value as a float; exact.
  // NOLINTNEXTLINE(google-explicit-constructor): every value is a float
  constexpr operator float() const noexcept {
    const std::uint32_t sign = std::uint32_t{bits_} >> 15U << 31U;
    const std::uint32_t exponent = std::uint32_t{bits_} >> 10U & 0x1FU;
    const std::uint32_t fraction = bits_ & 0x3FFU;
    if (exponent == 0x1F) {
      return std::bit_cast<float>(sign | 0x7F800000U | fraction << 13U | (fraction != 0 ? 0x400000U : 0U));
    }
    if (exponent == 0) {  // fraction * 2^-24, exact in float
      const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(static_cast<float>(fraction) * 0x1p-24F);
      return std::bit_cast<float>(sign | magnitude);
    }
    return std::bit_cast<float>(sign | (exponent + 112U) << 23U | fraction << 13U);
  }

  /// The number with this bit pattern.
  [[nodiscard]] static constexpr float16 from_bits(std::uint16_t bits) noexcept {
    float16 result;
    result.bits_ = bits;
    return result;
  }
  /// The bit pattern of the number.
  [[nodiscard]] constexpr std::uint16_t bits() const noexcept { return bits_; }

 private:
  [[nodiscard]] static constexpr std::uint16_t rounded(std::uint32_t bits) noexcept {
    const std::uint32_t sign = bits >> 16U & 0x8000U;
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    std::uint32_t result = 0;
    if (magnitude > 0x7F800000U) {
      result = 0x7E00U | (magnitude >> 13U & 0x3FFU);  // a quiet NaN: its fraction bits may all be in the lower bits
    } else if (magnitude >= 0x477FF000U) {             // 65520
      result = 0x7C00U;
    } else if (magnitude >= 0x38800000U) {  // 2^-14
      result = (magnitude - 0x38000000U + 0xFFFU + (magnitude >> 13U & 1U)) >> 13U;
    } else if (magnitude > 0x33000000U) {  // 2^-25
      const std::uint32_t shift = 126U - (magnitude >> 23U);
      const std::uint32_t fraction = (magnitude & 0x7FFFFFU) | 0x800000U;
      result = (fraction + (1U << (shift - 1U)) - 1U + (fraction >> shift & 1U)) >> shift;
    }
    return static_cast<std::uint16_t>(sign | result);
  }

  std::uint16_t bits_ = 0;
};

template <>
inline constexpr std::string_view element_name<float16> = "float16";

namespace detail {

template <>
struct parameter_element<float16> {
  using type = float;
};

template <>
struct storage_lanes<float16> {
  template <class Floats, class Words>
  GRADUS_ALWAYS_INLINE static Floats widen(Words bits) noexcept {
    using signed_words = decltype(Floats{} < Floats{});
    const signed_words magnitude = std::bit_cast<signed_words>((bits & 0x7FFFFFFFU) >> 3U);
    // Below 2^-14 the unit of the fraction is 2^-24. A float with the exponent of 2^-14 and that fraction is 2^-14 too
    // large.
    const auto subnormal = std::bit_cast<signed_words>(std::bit_cast<Floats>(magnitude + 0x38800000) - 0x1p-14F);
    const signed_words infinite =
        magnitude | (magnitude > 0x0F800000 ? 0x7FC00000 - signed_words{} : 0x7F800000 - signed_words{});
    signed_words number = magnitude + 0x38000000;
    number = magnitude < 0x00800000 ? subnormal : number;
    number = magnitude >= 0x0F800000 ? infinite : number;
    return std::bit_cast<Floats>(std::bit_cast<Words>(number) | (bits & 0x80000000U));
  }
  template <class Words, class Floats>
  GRADUS_ALWAYS_INLINE static Words narrow(Floats value) noexcept {
    using signed_words = decltype(Floats{} < Floats{});
    const Words bits = std::bit_cast<Words>(value);
    const Words unsigned_magnitude = bits & 0x7FFFFFFFU;
    const signed_words magnitude = std::bit_cast<signed_words>(unsigned_magnitude);
    // From 0.5 on, the unit of a float's fraction is 2^-24, so the addition rounds to it.
    const signed_words subnormal = std::bit_cast<signed_words>(std::bit_cast<Floats>(magnitude) + 0.5F) - 0x3F000000;
    signed_words number = std::bit_cast<signed_words>(
        (unsigned_magnitude - 0x38000000U + 0xFFFU + ((unsigned_magnitude >> 13U) & 1U)) >> 13U);
    number = magnitude < 0x38800000 ? subnormal : number;                 // 2^-14
    number = magnitude >= 0x477FF000 ? 0x7C00 - signed_words{} : number;  // 65520
    number = magnitude > 0x7F800000 ? 0x7E00 | ((magnitude >> 13) & 0x3FF) : number;
    return std::bit_cast<Words>(number) << 16U | (bits & 0x80000000U);
  }
};

#if defined(__x86_64__) || defined(__i386__)

/// True if the processor has AVX2 and F16C.
[[nodiscard]] inline bool converts_float16() noexcept {
  static const bool converts = [] {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") != 0 && has_f16c();
  }();
  return converts;
}

// The builtin functions of the instructions: <immintrin.h> would be read by every program that trains.

/// Converts the part of `count` that fills whole vectors, and returns the number of converted elements.
__attribute__((target("avx2,f16c"))) inline std::size_t convert_by_f16c(const float* source, float16* target,
                                                                        std::size_t count) noexcept {
  using eight_floats = float __attribute__((vector_size(32)));
  constexpr int to_nearest = 0;
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    eight_floats values;
    std::memcpy(&values, source + i, sizeof(values));
    const auto rounded = __builtin_ia32_vcvtps2ph256(values, to_nearest);
    static_assert(sizeof(rounded) == 8 * sizeof(float16));
    std::memcpy(static_cast<void*>(target + i), &rounded, sizeof(rounded));
  }
  return i;
}

__attribute__((target("avx2,f16c"))) inline std::size_t convert_by_f16c(const float16* source, float* target,
                                                                        std::size_t count) noexcept {
  using eight_halves = short __attribute__((vector_size(16)));
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    eight_halves bits;
    std::memcpy(&bits, static_cast<const void*>(source + i), sizeof(bits));
    const auto values = __builtin_ia32_vcvtph2ps256(bits);
    std::memcpy(target + i, &values, sizeof(values));
  }
  return i;
}

#endif

/// Converts from float to float16 or back.
template <class From, class To>
void convert_float16(const From* source, To* target, std::size_t count) noexcept {
  std::size_t i = 0;
#if defined(__x86_64__) || defined(__i386__)
  i = converts_float16() ? convert_by_f16c(source, target, count) : 0;
#endif
  for (; i < count; ++i) {
    target[i] = To{source[i]};
  }
}

}  // namespace detail

/// Rounds `count` floats to float16, with the processor's instructions where it has them. The result is the same bits
/// everywhere.
inline void narrow(const float* source, float16* target, std::size_t count) noexcept {
  detail::convert_float16(source, target, count);
}

/// Converts `count` numbers of float16 to float; exact.
inline void widen(const float16* source, float* target, std::size_t count) noexcept {
  detail::convert_float16(source, target, count);
}

}  // namespace gradus

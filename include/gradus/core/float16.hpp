// SPDX-License-Identifier: BSL-1.0
//
// float16: IEEE 754's binary16, as a type that is stored and sent, and not computed with.
#pragma once

#include <bit>          // std::bit_cast
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint16_t, std::uint32_t
#include <string_view>  // std::string_view

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>  // _mm256_cvtph_ps, _mm256_cvtps_ph
#endif

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"

namespace gradus {

/// A number of 16 bits with 11 bits of precision and magnitudes up to 65504 (sign, 5 bits of exponent, 10 of fraction).
///
/// It converts to float without loss, and explicitly from float by rounding to nearest, ties to even: a NaN stays a NaN
/// with its sign, below 2^-14 precision is lost by and by, what is below 2^-25 becomes zero, and from 65520 on
/// infinite. Arithmetic is that of float. A network of float16 keeps images, activations and their gradients in it; its
/// parameters are float. Gradients that are small want a loss that is scaled: gradus/optim/scaled_loss.hpp.
class float16 {
 public:
  constexpr float16() noexcept = default;
  constexpr explicit float16(float value) noexcept : bits_{rounded(std::bit_cast<std::uint32_t>(value))} {}

  // NOLINTNEXTLINE(google-explicit-constructor): every value is a float
  constexpr operator float() const noexcept {
    const std::uint32_t sign = std::uint32_t{bits_} >> 15U << 31U;
    const std::uint32_t exponent = std::uint32_t{bits_} >> 10U & 0x1FU;
    const std::uint32_t fraction = bits_ & 0x3FFU;
    if (exponent == 0x1F) {
      return std::bit_cast<float>(sign | 0x7F800000U | fraction << 13U | (fraction != 0 ? 0x400000U : 0U));
    }
    if (exponent == 0) {  // fraction * 2^-24, which float has
      const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(static_cast<float>(fraction) * 0x1p-24F);
      return std::bit_cast<float>(sign | magnitude);
    }
    return std::bit_cast<float>(sign | (exponent + 112U) << 23U | fraction << 13U);
  }

  [[nodiscard]] static constexpr float16 from_bits(std::uint16_t bits) noexcept {
    float16 result;
    result.bits_ = bits;
    return result;
  }
  [[nodiscard]] constexpr std::uint16_t bits() const noexcept { return bits_; }

 private:
  [[nodiscard]] static constexpr std::uint16_t rounded(std::uint32_t bits) noexcept {
    const std::uint32_t sign = bits >> 16U & 0x8000U;
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    std::uint32_t result = 0;
    if (magnitude > 0x7F800000U) {
      result = 0x7E00U | (magnitude >> 13U & 0x3FFU);  // a quiet NaN: its fraction may be in the lower bits
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
    // Below 2^-14 the fraction counts 2^-24; a float of the exponent of 2^-14 with that fraction is 2^-14 too large.
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
    const signed_words magnitude = std::bit_cast<signed_words>(bits & 0x7FFFFFFFU);
    // The fraction of a float from 0.5 on counts 2^-24: the addition rounds to that.
    const signed_words subnormal = std::bit_cast<signed_words>(std::bit_cast<Floats>(magnitude) + 0.5F) - 0x3F000000;
    signed_words number = (magnitude - 0x38000000 + 0xFFF + ((magnitude >> 13) & 1)) >> 13;
    number = magnitude < 0x38800000 ? subnormal : number;                 // 2^-14
    number = magnitude >= 0x477FF000 ? 0x7C00 - signed_words{} : number;  // 65520
    number = magnitude > 0x7F800000 ? 0x7E00 | ((magnitude >> 13) & 0x3FF) : number;
    return std::bit_cast<Words>(number) << 16U | (bits & 0x80000000U);
  }
};

#if defined(__x86_64__) || defined(__i386__)

/// Whether there are the instructions of F16C, which every processor with AVX2 has.
[[nodiscard]] inline bool converts_float16() noexcept {
  static const bool converts = [] {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") != 0;
  }();
  return converts;
}

/// Converts as many of `count` as fit into whole vectors, and returns how many.
__attribute__((target("avx2,f16c"))) inline std::size_t convert_by_f16c(const float* source, float16* target,
                                                                        std::size_t count) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(source + i), _MM_FROUND_TO_NEAREST_INT));
  }
  return i;
}

__attribute__((target("avx2,f16c"))) inline std::size_t convert_by_f16c(const float16* source, float* target,
                                                                        std::size_t count) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(target + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i))));
  }
  return i;
}

#endif

/// From float to float16 or back.
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

/// Rounds `count` floats, by the processor's instructions where it has them; the same bits everywhere.
inline void narrow(const float* source, float16* target, std::size_t count) noexcept {
  detail::convert_float16(source, target, count);
}

/// The floats that `count` of them are.
inline void widen(const float16* source, float* target, std::size_t count) noexcept {
  detail::convert_float16(source, target, count);
}

}  // namespace gradus

// SPDX-License-Identifier: BSL-1.0
//
// Packet functions that are correct where Eigen's are not.
//
// Eigen's exp saturates at the smallest and largest numbers (exp(-inf) is not 0, and with AVX exp(88.5F) is infinite).
// Its log treats subnormal numbers as the smallest normal one. Its float sqrt on x86 is an estimate: NaN at infinity
// and 0 for subnormal numbers. Elements outside the valid range use the standard library, one by one.
#pragma once

#include <Eigen/Core>  // Eigen::internal packet operations

#include <cmath>        // std::exp, std::log
#include <cstddef>      // std::size_t
#include <limits>       // std::numeric_limits
#include <type_traits>  // std::is_same_v

#include "gradus/core/config.hpp"
#include "gradus/tensor/detail/packet/packet.hpp"

namespace gradus::detail {

namespace packets = Eigen::internal;

/// True if a SIMD lane of the mask is set.
template <class Packet>
[[nodiscard]] GRADUS_ALWAYS_INLINE bool any_lane(const Packet& mask) noexcept {
  return packets::predux_any(mask);
}
/// The square root, correctly rounded.
template <class Packet>
[[nodiscard]] GRADUS_ALWAYS_INLINE Packet sqrt_packet(const Packet& a) noexcept {
  return packets::psqrt(a);
}
#if defined(EIGEN_VECTORIZE_SSE2)
[[nodiscard]] GRADUS_ALWAYS_INLINE bool any_lane(const __m128d& mask) noexcept {
  return _mm_movemask_pd(mask) != 0;
}
[[nodiscard]] GRADUS_ALWAYS_INLINE __m128 sqrt_packet(const __m128& a) noexcept {
  return _mm_sqrt_ps(a);
}
#endif
#if defined(EIGEN_VECTORIZE_AVX)
[[nodiscard]] GRADUS_ALWAYS_INLINE bool any_lane(const __m256d& mask) noexcept {
  return _mm256_movemask_pd(mask) != 0;
}
[[nodiscard]] GRADUS_ALWAYS_INLINE __m256 sqrt_packet(const __m256& a) noexcept {
  return _mm256_sqrt_ps(a);
}
#endif
#if defined(EIGEN_VECTORIZE_AVX512)
[[nodiscard]] GRADUS_ALWAYS_INLINE __m512 sqrt_packet(const __m512& a) noexcept {
  return _mm512_maskz_sqrt_ps(0xffff, a);
}
[[nodiscard]] GRADUS_ALWAYS_INLINE __m512d sqrt_packet(const __m512d& a) noexcept {
  return _mm512_maskz_sqrt_pd(0xff, a);
}
#endif

/// The range of exp outside +-limit, where results approach the smallest and the largest normal numbers.
template <class Element>
struct exp_range {
  static constexpr Element limit = std::is_same_v<Element, float> ? Element(87) : Element(708);
  static bool outside(Element a) noexcept { return a < -limit || limit < a; }
  template <class Packet>
  static Packet outside(const Packet& a) noexcept {
    return packets::pcmp_lt(set_packet<Packet>(limit), packets::pabs(a));
  }
  static Element library(Element a) noexcept { return std::exp(a); }
};

/// The range of log for positive subnormal numbers.
template <class Element>
struct log_range {
  static constexpr Element limit = std::numeric_limits<Element>::min();
  static bool outside(Element a) noexcept { return Element{0} < a && a < limit; }
  template <class Packet>
  static Packet outside(const Packet& a) noexcept {
    return packets::pand(packets::pcmp_lt(packets::pzero(a), a), packets::pcmp_lt(a, set_packet<Packet>(limit)));
  }
  static Element library(Element a) noexcept { return std::log(a); }
};

/// The function values `inside`, replaced by those of the standard library where `a` is outside the range.
template <class Range, class Packet>
[[nodiscard]] GRADUS_COLD Packet with_library(const Packet& a, const Packet& inside) noexcept {
  using element_type = typename packets::unpacket_traits<Packet>::type;
  constexpr std::size_t width = packets::unpacket_traits<Packet>::size;
  element_type arguments[width];
  element_type values[width];
  packets::pstoreu(arguments, a);
  packets::pstoreu(values, inside);
  for (std::size_t lane = 0; lane < width; ++lane) {
    if (Range::outside(arguments[lane])) {
      values[lane] = Range::library(arguments[lane]);
    }
  }
  return packets::ploadu<Packet>(values);
}

template <class Packet>
[[nodiscard]] Packet exp_packet(const Packet& a) noexcept {
  using range = exp_range<typename packets::unpacket_traits<Packet>::type>;
  const Packet inside = packets::pexp(a);
  if (any_lane(range::outside(a))) [[unlikely]] {
    return with_library<range>(a, inside);
  }
  return inside;
}

template <class Packet>
[[nodiscard]] Packet log_packet(const Packet& a) noexcept {
  using range = log_range<typename packets::unpacket_traits<Packet>::type>;
  const Packet inside = packets::plog(a);
  if (any_lane(range::outside(a))) [[unlikely]] {
    return with_library<range>(a, inside);
  }
  return inside;
}

}  // namespace gradus::detail

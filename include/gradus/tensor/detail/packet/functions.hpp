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

GRADUS_BEGIN_PACKETS
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

/// The error function of floats, to 2 units in the last place: a polynomial near 0; elsewhere 1 - exp(q), where q is a
/// polynomial for log(erfc(|a|)). Both were fitted by weighted minimax approximation.
template <class Packet>
[[nodiscard]] Packet erf_packet(const Packet& a) noexcept {
  static_assert(std::is_same_v<typename packets::unpacket_traits<Packet>::type, float>);
  constexpr float near_zero[] = {-5.9196255e-4F, 4.9791809e-3F, -2.67570798e-2F,
                                 0.112815542F,   -0.376124689F, 0.128379146F};
  constexpr float far_from_zero[] = {-2.130625851e-5F, 4.3690911e-4F, -4.18294802e-3F, 2.51508119e-2F,
                                     -0.108328777F,    -0.633302509F, -1.12953698F,    1.79289037e-4F};
  const auto polynomial = [](const auto& coefficients, const Packet& x) {
    Packet result = set_packet<Packet>(coefficients[0]);
    for (std::size_t k = 1; k < sizeof(coefficients) / sizeof(float); ++k) {
      result = packets::pmadd(result, x, set_packet<Packet>(coefficients[k]));
    }
    return result;
  };
  const Packet size = packets::pabs(a);
  const Packet inner = packets::pmadd(a, polynomial(near_zero, packets::pmul(a, a)), a);
  const Packet is_outer = packets::pcmp_lt(set_packet<Packet>(0.9375F), size);
  const Packet most = set_packet<Packet>(4.0F);  // where the result is rounded to 1
  const Packet bounded = packets::pselect(packets::pcmp_lt(size, most), size, most);
  const Packet outer = packets::psub(set_packet<Packet>(1.0F), packets::pexp(polynomial(far_from_zero, bounded)));
  const Packet sign = packets::pand(a, set_packet<Packet>(-0.0F));
  return packets::pselect(is_outer, packets::por(outer, sign), inner);
}

/// log(1 + exp(a)) = max(a, 0) + log(1 + e), where e = exp(-|a|). What 1 + e loses of e is added by its first order.
template <class Packet>
[[nodiscard]] Packet softplus_packet(const Packet& a) noexcept {
  using element_type = typename packets::unpacket_traits<Packet>::type;
  const Packet one = set_packet<Packet>(element_type{1});
  const Packet e = exp_packet(packets::pnegate(packets::pabs(a)));
  const Packet sum = packets::padd(one, e);
  const Packet lost = packets::psub(e, packets::psub(sum, one));
  const Packet logarithm = packets::padd(packets::plog(sum), packets::pdiv(lost, sum));
  return packets::padd(packets::pandnot(a, packets::pcmp_lt(a, packets::pzero(a))), logarithm);
}

}  // namespace gradus::detail
GRADUS_END_PACKETS

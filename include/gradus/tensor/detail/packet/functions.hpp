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

// Unqualified, so that the numbers of module simd, which have functions of these names, are packets too.
using packets::pabs, packets::padd, packets::pand, packets::pandnot, packets::pcmp_eq, packets::pcmp_le,
    packets::pcmp_lt, packets::pcmp_lt_or_nan, packets::pdiv, packets::pexp, packets::plog, packets::pmadd,
    packets::pmax, packets::pmul, packets::pnegate, packets::por, packets::pselect, packets::pset1, packets::psqrt,
    packets::psub, packets::ptrue, packets::pxor, packets::pzero;

/// True if a SIMD lane of the mask is set.
template <class Packet>
[[nodiscard]] GRADUS_ALWAYS_INLINE bool any_lane(const Packet& mask) noexcept {
  return packets::predux_any(mask);
}
/// The square root, correctly rounded.
template <class Packet>
[[nodiscard]] GRADUS_ALWAYS_INLINE Packet sqrt_packet(const Packet& a) noexcept {
  return psqrt(a);
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

/// The function values `inside`, replaced by those of the standard library where the mask `outside` is set.
template <class Packet, class Function>
[[nodiscard]] GRADUS_COLD Packet with_library(const Packet& a, const Packet& inside, const Packet& outside,
                                              const Function& library) noexcept {
  constexpr std::size_t width = packets::unpacket_traits<Packet>::size;
  typename packets::unpacket_traits<Packet>::type lanes[3][width];
  packets::pstoreu(lanes[0], a);
  packets::pstoreu(lanes[1], inside);
  packets::pstoreu(lanes[2], outside);
  for (std::size_t lane = 0; lane < width; ++lane) {
    if (lanes[2][lane] != 0) {  // a mask of all bits is NaN
      lanes[1][lane] = library(lanes[0][lane]);
    }
  }
  return packets::ploadu<Packet>(lanes[1]);
}

template <class Packet>
[[nodiscard]] Packet exp_packet(const Packet& a) noexcept {
  using element_type = typename packets::unpacket_traits<Packet>::type;
  // Beyond it, results approach the smallest and the largest normal numbers.
  constexpr element_type limit = std::is_same_v<element_type, float> ? element_type(87) : element_type(708);
  const Packet inside = pexp(a);
  const Packet outside = pcmp_lt(set_packet<Packet>(limit), pabs(a));
  if (any_lane(outside)) [[unlikely]] {
    return with_library(a, inside, outside, [](element_type x) { return std::exp(x); });
  }
  return inside;
}

template <class Packet>
[[nodiscard]] Packet log_packet(const Packet& a) noexcept {
  using element_type = typename packets::unpacket_traits<Packet>::type;
  const Packet least = set_packet<Packet>(std::numeric_limits<element_type>::min());
  const Packet inside = plog(a);
  const Packet subnormal = pand(pcmp_lt(pzero(a), a), pcmp_lt(a, least));
  if (any_lane(subnormal)) [[unlikely]] {
    return with_library(a, inside, subnormal, [](element_type x) { return std::log(x); });
  }
  return inside;
}

/// The polynomial with these coefficients, the highest power first.
template <class Real, std::size_t Count, class Packet>
[[nodiscard]] Packet polynomial(const Real (&coefficients)[Count], const Packet& x) noexcept {
  Packet result = set_packet<Packet>(coefficients[0]);
  for (std::size_t k = 1; k < Count; ++k) {
    result = pmadd(result, x, set_packet<Packet>(coefficients[k]));
  }
  return result;
}

/// The error function of floats, to 2 units in the last place: a polynomial near 0; elsewhere 1 - exp(q), where q is a
/// polynomial for log(erfc(|a|)). Both were fitted by weighted minimax approximation.
template <class Packet>
[[nodiscard]] GRADUS_FLATTENED Packet erf_packet(const Packet& a) noexcept {
  constexpr float near_zero[] = {-5.9196255e-4F, 4.9791809e-3F, -2.67570798e-2F,
                                 0.112815542F,   -0.376124689F, 0.128379146F};
  constexpr float far_from_zero[] = {-2.130625851e-5F, 4.3690911e-4F, -4.18294802e-3F, 2.51508119e-2F,
                                     -0.108328777F,    -0.633302509F, -1.12953698F,    1.79289037e-4F};
  const Packet size = pabs(a);
  const Packet inner = pmadd(a, polynomial(near_zero, pmul(a, a)), a);
  const Packet is_outer = pcmp_lt(set_packet<Packet>(0.9375F), size);
  const Packet most = set_packet<Packet>(4.0F);  // where the result is rounded to 1
  const Packet bounded = pselect(pcmp_lt(size, most), size, most);
  const Packet outer = psub(set_packet<Packet>(1.0F), pexp(polynomial(far_from_zero, bounded)));
  const Packet sign = pand(a, set_packet<Packet>(-0.0F));
  return pselect(is_outer, por(outer, sign), inner);
}

/// log(1 + exp(a)) = max(a, 0) + log(1 + e), where e = exp(-|a|). What 1 + e loses of e is added by its first order.
template <class Packet>
[[nodiscard]] GRADUS_FLATTENED Packet softplus_packet(const Packet& a) noexcept {
  using element_type = typename packets::unpacket_traits<Packet>::type;
  const Packet one = set_packet<Packet>(element_type{1});
  const Packet e = exp_packet(pnegate(pabs(a)));
  const Packet sum = padd(one, e);
  const Packet lost = psub(e, psub(sum, one));
  const Packet logarithm = padd(plog(sum), pdiv(lost, sum));
  return padd(pandnot(a, pcmp_lt(a, pzero(a))), logarithm);
}

}  // namespace gradus::detail
GRADUS_END_PACKETS

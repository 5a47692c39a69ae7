// SPDX-License-Identifier: BSL-1.0
//
// Functions of the numbers of transform_body.hpp, for one instruction set.
//
// They have the names of Eigen's packet functions, which the operations of tensor expressions call: these numbers are
// one more kind of packet. A condition has all bits of a SIMD lane set where it holds, else none.

// No `#pragma once`: for_each_target.hpp says what to compile.
#if defined(GRADUS_TARGET)

namespace gradus::simd::GRADUS_TARGET {

template <class Real>
struct number_bits {
  using integer = std::conditional_t<sizeof(Real) == 4, std::uint32_t, std::uint64_t>;
  typedef integer type __attribute__((vector_size(GRADUS_TARGET_BYTES)));
};
template <class Real>
typename number_bits<Real>::type bits(const numbers<Real>& a) noexcept {
  return __builtin_bit_cast(typename number_bits<Real>::type, a.value);
}
template <class Real, class Bits>
numbers<Real> from_bits(const Bits& pattern) noexcept {
  return numbers<Real>::of(__builtin_bit_cast(typename packet<Real>::type, pattern));
}

template <class Real>
numbers<Real> pzero(const numbers<Real>& /*a*/) noexcept {
  return Real{0};
}
template <class Real>
numbers<Real> ptrue(const numbers<Real>& /*a*/) noexcept {
  return from_bits<Real>(~bits(numbers<Real>{Real{0}}));
}
template <class Real>
numbers<Real> pand(const numbers<Real>& a, const numbers<Real>& b) noexcept {
  return from_bits<Real>(bits(a) & bits(b));
}
template <class Real>
numbers<Real> por(const numbers<Real>& a, const numbers<Real>& b) noexcept {
  return from_bits<Real>(bits(a) | bits(b));
}
template <class Real>
numbers<Real> pxor(const numbers<Real>& a, const numbers<Real>& b) noexcept {
  return from_bits<Real>(bits(a) ^ bits(b));
}
template <class Real>
numbers<Real> pandnot(const numbers<Real>& a, const numbers<Real>& b) noexcept {
  return from_bits<Real>(bits(a) & ~bits(b));
}
template <class Real>
numbers<Real> pselect(const numbers<Real>& mask, const numbers<Real>& a, const numbers<Real>& b) noexcept {
  return from_bits<Real>((bits(mask) & bits(a)) | (~bits(mask) & bits(b)));
}
template <class Real>
numbers<Real> pcmp_eq(const numbers<Real>& a, const numbers<Real>& b) noexcept {
  return from_bits<Real>(a.value == b.value);
}
template <class Real>
numbers<Real> pcmp_lt(const numbers<Real>& a, const numbers<Real>& b) noexcept {
  return from_bits<Real>(a.value < b.value);
}
template <class Real>
numbers<Real> pcmp_le(const numbers<Real>& a, const numbers<Real>& b) noexcept {
  return from_bits<Real>(a.value <= b.value);
}
template <class Real>
numbers<Real> pcmp_lt_or_nan(const numbers<Real>& a, const numbers<Real>& b) noexcept {
  return from_bits<Real>(~(a.value >= b.value));
}
template <class Real>
numbers<Real> pmin(const numbers<Real>& a, const numbers<Real>& b) noexcept {
  return smaller(b, a);  // a where one of them is NaN
}
template <class Real>
numbers<Real> pmax(const numbers<Real>& a, const numbers<Real>& b) noexcept {
  return larger(b, a);
}
template <class Real>
numbers<Real> pabs(const numbers<Real>& a) noexcept {
  return pandnot(a, numbers<Real>{-Real{0}});
}
template <class Real>
numbers<Real> sqrt_packet(const numbers<Real>& a) noexcept {
  return square_root(a);
}

/// The polynomial with these coefficients, the highest power first.
template <class Real, std::size_t Count>
numbers<Real> polynomial(const Real (&coefficients)[Count], const numbers<Real>& x) noexcept {
  numbers<Real> result{coefficients[0]};
  for (std::size_t k = 1; k < Count; ++k) {
    result = result * x + coefficients[k];
  }
  return result;
}

/// e^a = 2^k e^r, where |r| <= ln 2 / 2, to 1 unit in the last place.
template <class Real>
numbers<Real> exp_packet(const numbers<Real>& a) noexcept {
  using of = detail::elementary_constants<Real>;
  using number = numbers<Real>;
  const number x = smaller(number{of::most}, larger(number{of::least}, a));  // NaN stays
  const number shifted = x * Real(1.4426950408889634) + of::shift;
  const number k = shifted - of::shift;
  const number r = (x - k * of::high) - k * of::low;
  const number power = polynomial(of::exp, r) * (r * r) + r + Real{1};
  // 2^k in two factors: it may be subnormal or too large.
  const auto zero = bits(number{of::shift});
  const auto some = bits(k * Real(0.5) + of::shift) - zero;
  const auto rest = bits(shifted) - zero - some;
  return power * from_bits<Real>((some << of::digits) + of::one) * from_bits<Real>((rest << of::digits) + of::one);
}

/// log a = k ln 2 + log m, where a = 2^k m, sqrt(1/2) <= m < sqrt(2), to 1 unit in the last place, from
/// s = (m - 1) / (m + 1).
template <class Real>
numbers<Real> log_packet(const numbers<Real>& a) noexcept {
  using of = detail::elementary_constants<Real>;
  using number = numbers<Real>;
  using limits = std::numeric_limits<Real>;
  constexpr auto unit = typename number_bits<Real>::integer{1} << of::digits;
  const number is_subnormal = pcmp_lt(a, number{limits::min()});
  const number normal = pselect(is_subnormal, a * static_cast<Real>(2 * unit), a);
  const auto from_root = bits(normal) + (of::one - of::root_half);
  const number shift{static_cast<Real>(unit)};  // an integer in its mantissa is added to it
  const number exponent = from_bits<Real>((from_root >> of::digits) | bits(shift)) - shift;
  const number k = exponent - static_cast<Real>(of::one >> of::digits) -
                   pand(is_subnormal, number{static_cast<Real>(of::digits + 1)});
  const number f = from_bits<Real>((from_root & (unit - 1)) + of::root_half) - Real{1};
  const number s = f / (f + Real{2});
  const number z = s * s;
  const number half = f * f * Real(0.5);
  const number finite = (s * (half + polynomial(of::log, z) * z) + k * of::low - half) + f + k * of::high;
  const number zero{Real{0}};
  const number positive = pselect(pcmp_eq(a, number{limits::infinity()}), a, finite);
  const number other = pselect(pcmp_eq(a, zero), number{-limits::infinity()}, number{limits::quiet_NaN()});
  return pselect(pcmp_lt(zero, a), positive, other);
}

// In sums of functions of tensors.
template <class Real>
numbers<Real> pexp(const numbers<Real>& a) noexcept {
  return exp_packet(a);
}
template <class Real>
numbers<Real> plog(const numbers<Real>& a) noexcept {
  return log_packet(a);
}

/// function(a, others...) of each SIMD lane
template <class Real, class Function, class... Others>
numbers<Real> lane_by_lane(const Function& function, numbers<Real> a, const Others&... others) noexcept {
  for (index_t lane = 0; lane < numbers<Real>::lanes; ++lane) {
    a.value[lane] = function(Real{a.value[lane]}, Real{others.value[lane]}...);
  }
  return a;
}

}  // namespace gradus::simd::GRADUS_TARGET

#endif

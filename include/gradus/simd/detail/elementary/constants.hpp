// SPDX-License-Identifier: BSL-1.0
//
// Constants of exp and log.
#pragma once

#include <cstdint>  // std::uint32_t, std::uint64_t

#include "gradus/core/config.hpp"

namespace gradus::simd::detail {

template <class Real>
struct elementary_constants;
template <>
struct elementary_constants<float> {
  static constexpr int digits = 23;                       // of the mantissa
  static constexpr std::uint32_t one = 0x3F800000;        // the bits of 1
  static constexpr std::uint32_t root_half = 0x3F3504F3;  // the bits of sqrt(1/2)
  static constexpr float shift = 12582912.0F;             // 1.5 * 2^23: x + shift rounds x to an integer
  static constexpr float least = -104.0F;                 // where exp is 0
  static constexpr float most = 89.0F;                    // where exp is infinite
  static constexpr float high = 0.693359375F;    // ln 2, with so few bits that a product with an exponent is exact
  static constexpr float low = -2.12194440e-4F;  // ln 2 - high
  /// (exp(r) - 1 - r) / r^2, the highest power first: those of Cephes' expf.
  static constexpr float exp[] = {1.9875691500e-4F, 1.3981999507e-3F, 8.3334519073e-3F,
                                  4.1665795894e-2F, 1.6666665459e-1F, 5.0000001201e-1F};
  /// (log((1 + s) / (1 - s)) - 2 s) / s^3 in powers of s^2: those of fdlibm's logf.
  static constexpr float log[] = {0.24279078841F, 0.28498786688F, 0.40000972152F, 0.66666662693F};
};
template <>
struct elementary_constants<double> {
  static constexpr int digits = 52;
  static constexpr std::uint64_t one = 0x3FF0000000000000;
  static constexpr std::uint64_t root_half = 0x3FE6A09E667F3BCD;
  static constexpr double shift = 6755399441055744.0;
  static constexpr double least = -746.0;
  static constexpr double most = 710.0;
  static constexpr double high = 6.93147180369123816490e-01;
  static constexpr double low = 1.90821492927058770002e-10;
  /// 1 / 13! to 1 / 2!
  static constexpr double exp[] = {1.6059043836821613e-10, 2.08767569878681e-09,   2.505210838544172e-08,
                                   2.755731922398589e-07,  2.7557319223985893e-06, 2.48015873015873e-05,
                                   1.984126984126984e-04,  1.388888888888889e-03,  8.333333333333333e-03,
                                   4.1666666666666664e-02, 1.6666666666666666e-01, 0.5};
  /// The coefficients of fdlibm's log.
  static constexpr double log[] = {1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01,
                                   2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01,
                                   6.666666666666735130e-01};
};

}  // namespace gradus::simd::detail

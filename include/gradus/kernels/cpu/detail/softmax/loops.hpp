// SPDX-License-Identifier: BSL-1.0
//
// The loops of softmax over one row.
#pragma once

#include <array>        // std::array
#include <bit>          // std::bit_cast
#include <cmath>        // std::exp
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint32_t
#include <limits>       // std::numeric_limits
#include <type_traits>  // std::is_same_v, std::remove_cvref_t

#include "gradus/core/index.hpp"
#include "gradus/kernels/cpu/detail/elementwise/packet.hpp"

namespace gradus::kernels::detail {

/// e^x for x <= 0. NaN stays NaN; below -87.3 (float) the result is 0.
///
/// Float: x = n ln 2 + r, |r| <= ln 2 / 2, and a polynomial of degree 7 in r (the coefficients are those of Cephes'
/// expf, relative error below 2 units in the last place). Double: std::exp of every SIMD lane.
template <class Packet>
GRADUS_ALWAYS_INLINE typename Packet::type exponential(typename Packet::type x) noexcept {
  using type = typename Packet::type;
  using element = std::remove_cvref_t<decltype(x[0])>;
  if constexpr (sizeof(element) == 8) {
    for (index_t i = 0; i < Packet::lanes; ++i) {
      x[i] = std::exp(x[i]);
    }
    return x;
  } else {
    using integers = typename Packet::index_vector;
    constexpr float lowest = -87.33654F;  // e^x is still a normal number
    const type zero{};
    const auto below = x < lowest;
    const type in_range = below ? zero : x;
    const integers n = __builtin_convertvector(in_range * 1.44269504088896341F - 0.5F, integers);  // rounds to nearest
    const type whole = __builtin_convertvector(n, type);
    const type r = (in_range - whole * 0.693359375F) - whole * -2.12194440e-4F;  // ln 2 in two parts
    type p = r * 1.9875691500e-4F + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    p = p * (r * r) + r + 1.0F;
    typedef std::uint32_t bits __attribute__((vector_size(sizeof(type))));
    const type power = std::bit_cast<type>((std::bit_cast<bits>(n) + 127U) << 23U);  // 2^n
    return below ? zero : p * power;
  }
}

/// A packet of the elements from i on; SIMD lanes beyond the row are minus infinity.
template <class Element>
GRADUS_ALWAYS_INLINE typename full_packet<Element>::type load_row(index_t count, const Element* x, index_t i) noexcept {
  using packet = full_packet<Element>;
  if (i + packet::lanes <= count) {
    return packet::load(x + i);
  }
  std::array<computed<Element>, static_cast<std::size_t>(packet::lanes)> lanes;
  lanes.fill(-std::numeric_limits<computed<Element>>::infinity());
  for (index_t lane = 0; i + lane < count; ++lane) {
    lanes[static_cast<std::size_t>(lane)] = x[i + lane];
  }
  return packet::load(lanes.data());
}

/// The largest element of a row; if one is NaN, any other element or NaN.
template <class Element>
[[nodiscard]] computed<Element> largest_of(index_t count, const Element* x) noexcept {
  using packet = full_packet<Element>;
  auto largest = load_row(count, x, 0);
  for (index_t i = packet::lanes; i < count; i += packet::lanes) {
    const auto next = load_row(count, x, i);
    largest = next > largest ? next : largest;
  }
  computed<Element> result = largest[0];
  for (index_t lane = 1; lane < packet::lanes; ++lane) {
    result = largest[lane] > result ? largest[lane] : result;
  }
  return result;
}

/// True if no element is larger than x[label], and no element before it is equal to it.
template <class Element>
[[nodiscard]] bool is_first_largest(const Element* x, index_t label, computed<Element> largest) noexcept {
  if (!(x[label] == largest)) {
    return false;
  }
  for (index_t i = 0; i < label; ++i) {
    if (x[i] == largest) {
      return false;
    }
  }
  return true;
}

/// y = e^(x - largest); returns the sum. y may be x.
template <bool Store, class Element>
[[nodiscard]] computed<Element> exponentials(index_t count, const Element* x, computed<Element> largest,
                                             Element* y) noexcept {
  using packet = full_packet<Element>;
  typename packet::type sums{};
  for (index_t i = 0; i < count; i += packet::lanes) {
    const auto value = exponential<packet>(load_row(count, x, i) - largest);
    sums += value;
    if constexpr (Store) {
      packet::store(y + i, value, count - i);
    }
  }
  computed<Element> sum = sums[0];
  for (index_t lane = 1; lane < packet::lanes; ++lane) {
    sum += sums[lane];
  }
  return sum;
}

/// y *= factor
template <class Element>
void scale_row(index_t count, computed<Element> factor, Element* y) noexcept {
  for_each_packet<Element>(
      0, count, [=]<class Packet>(Packet, index_t i) { Packet::store(y + i, Packet::load(y + i) * factor); });
}

/// True if results can be stored and read again exactly.
template <class Element>
inline constexpr bool stores_exactly = std::is_same_v<Element, computed<Element>>;

/// y = factor * e^(x - largest), rounded once. If there is a label (not negative), `part` is subtracted from y[label].
/// y may be x.
template <class Element>
void store_probabilities(index_t count, const Element* x, computed<Element> largest, computed<Element> factor,
                         index_t label, computed<Element> part, Element* y) noexcept {
  using packet = full_packet<Element>;
  for (index_t i = 0; i < count; i += packet::lanes) {
    auto value = exponential<packet>(load_row(count, x, i) - largest) * factor;
    if (label >= i && label < i + packet::lanes) {
      value[label - i] -= part;
    }
    packet::store(y + i, value, count - i);
  }
}

}  // namespace gradus::kernels::detail

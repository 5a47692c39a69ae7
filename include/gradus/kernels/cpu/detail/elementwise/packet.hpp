// SPDX-License-Identifier: BSL-1.0
//
// Packets: short vectors of elements, for kernels that are limited by memory.
#pragma once

#include <array>        // std::array
#include <bit>          // std::bit_cast
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t, std::int64_t, std::uint8_t, ...
#include <cstring>      // std::memcpy
#include <type_traits>  // std::conditional_t

#if defined(__SSE2__)
#include <emmintrin.h>  // bytes to lanes and back
#endif

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/cpu/detail/simd/packets.hpp"

namespace gradus::kernels::detail {

/// A packet of `Lanes` elements: a GCC vector with + - * / and ?: on every SIMD lane.
template <class Element, int Lanes>
struct packet {
  using element = Element;
  static constexpr index_t lanes = Lanes;
  using index_type = std::conditional_t<sizeof(Element) == 4, std::int32_t, std::int64_t>;
  typedef Element type __attribute__((vector_size(Lanes * sizeof(Element))));
  /// Integers of the size of the elements: the results of comparisons (all ones for true), used to select.
  typedef index_type index_vector __attribute__((vector_size(Lanes * sizeof(Element))));

  typedef short short_vector __attribute__((vector_size(Lanes * sizeof(Element))));

  /// A vector with the alignment of an element; it aliases only elements, as an element does.
  typedef Element unaligned __attribute__((vector_size(Lanes * sizeof(Element)), aligned(alignof(Element))));

  GRADUS_ALWAYS_INLINE static type load(const Element* from) noexcept {
    return *reinterpret_cast<const unaligned*>(from);
  }
  GRADUS_ALWAYS_INLINE static void store(Element* to, type value) noexcept {
    *reinterpret_cast<unaligned*>(to) = value;
  }
  /// Stores the first `count` SIMD lanes only.
  GRADUS_ALWAYS_INLINE static void store(Element* to, type value, index_t count) noexcept {
    if (count >= lanes) {
      store(to, value);
      return;
    }
    for (index_t i = 0; i < count; ++i) {
      to[i] = value[i];
    }
  }
  GRADUS_ALWAYS_INLINE static type broadcast(Element value) noexcept { return value - type{}; }
  /// sums[lane] += value[lane], in double precision.
  GRADUS_ALWAYS_INLINE static void add_to(double* sums, type value) noexcept {
    if constexpr (sizeof(Element) == 8) {
      store(sums, load(sums) + value);
    } else if constexpr (Lanes == 4) {
      using pair = packet<double, 2>;
      typedef float half __attribute__((vector_size(8)));
      const half low = GRADUS_SHUFFLE(value, value, 0, 1);
      const half high = GRADUS_SHUFFLE(value, value, 2, 3);
      pair::store(sums, pair::load(sums) + __builtin_convertvector(low, typename pair::type));
      pair::store(sums + 2, pair::load(sums + 2) + __builtin_convertvector(high, typename pair::type));
    } else {
      for (index_t i = 0; i < lanes; ++i) {
        sums[i] += static_cast<double>(value[i]);
      }
    }
  }
  /// max(x, 0); a NaN stays NaN.
  GRADUS_ALWAYS_INLINE static type relu(type value) noexcept {
    const type zero{};
    return zero > value ? zero : value;
  }
  /// `value` where `output` is above 0, else 0.
  GRADUS_ALWAYS_INLINE static type where_positive(type output, type value) noexcept {
    return masked(output > type{}, value);
  }

  /// True if a comparison is true in any SIMD lane.
  GRADUS_ALWAYS_INLINE static bool any(index_vector mask) noexcept {
#if defined(__SSE2__)
    if constexpr (sizeof(mask) == 16) {
      return _mm_movemask_epi8(std::bit_cast<__m128i>(mask)) != 0;
    }
#endif
    index_type all = 0;
    for (index_t i = 0; i < lanes; ++i) {
      all |= mask[i];
    }
    return all != 0;
  }
  /// `value` where the mask is true, else 0.
  GRADUS_ALWAYS_INLINE static type masked(index_vector mask, type value) noexcept {
    return std::bit_cast<type>(mask & std::bit_cast<index_vector>(value));
  }

  GRADUS_ALWAYS_INLINE static index_vector broadcast_index(int value) noexcept {
    return static_cast<index_type>(value) - index_vector{};
  }
  /// a > b ? a : b
  GRADUS_ALWAYS_INLINE static type larger(type a, type b) noexcept {
#if defined(__SSE2__)
    // For the expression, the compiler emits three instructions if the comparison is needed anyway.
    if constexpr (Lanes == 4 && sizeof(Element) == 4) {
      return _mm_max_ps(a, b);
    } else if constexpr (Lanes == 2 && sizeof(Element) == 8) {
      return _mm_max_pd(a, b);
    }
#endif
    return a > b ? a : b;
  }
  /// The larger of integers in [0, 255].
  GRADUS_ALWAYS_INLINE static index_vector larger_byte(index_vector a, index_vector b) noexcept {
    // SSE2 has no comparison of wider integers in one instruction.
    const short_vector x = reinterpret_cast<short_vector>(a);
    const short_vector y = reinterpret_cast<short_vector>(b);
    return std::bit_cast<index_vector>(x > y ? x : y);
  }

  /// Loads bytes as integers.
  GRADUS_ALWAYS_INLINE static index_vector load_bytes(const std::uint8_t* from) noexcept {
#if defined(__SSE2__)
    if constexpr (Lanes == 4 && sizeof(Element) == 4) {
      int bytes = 0;
      std::memcpy(&bytes, from, 4);
      const __m128i zero = _mm_setzero_si128();
      const __m128i wide = _mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(bytes), zero), zero);
      return std::bit_cast<index_vector>(wide);
    }
#endif
    std::array<index_type, static_cast<std::size_t>(Lanes)> wide{};
    for (std::size_t i = 0; i < wide.size(); ++i) {
      wide[i] = from[i];
    }
    index_vector value;
    std::memcpy(&value, wide.data(), sizeof(value));
    return value;
  }
  /// Stores integers in [0, 255] as bytes, the first `count` of them.
  GRADUS_ALWAYS_INLINE static void store_bytes(std::uint8_t* to, index_vector value, index_t count = lanes) noexcept {
#if defined(__SSE2__)
    if constexpr (Lanes == 4 && sizeof(Element) == 4) {
      const auto wide = std::bit_cast<__m128i>(value);
      const __m128i words = _mm_packs_epi32(wide, wide);
      const int bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
      if (count >= 4) {
        std::memcpy(to, &bytes, 4);
      } else {
        std::memcpy(to, &bytes, static_cast<std::size_t>(count));
      }
      return;
    }
#endif
    for (index_t i = 0; i < count && i < lanes; ++i) {
      to[i] = static_cast<std::uint8_t>(value[i]);
    }
  }
};

/// The bits of floats, and of elements half their size.
template <int Lanes>
struct float_bits {
  typedef std::uint32_t words __attribute__((vector_size(Lanes * sizeof(std::uint32_t))));
  typedef std::uint16_t halves __attribute__((vector_size(Lanes * sizeof(std::uint16_t))));
};

/// Floats that are stored as bfloat16 or float16; pointers to float load and store floats.
template <storage_element Stored, int Lanes>
struct packet<Stored, Lanes> : packet<float, Lanes> {
  using floats = packet<float, Lanes>;
  using element = Stored;
  using floats::lanes, floats::load, floats::store;
  using typename floats::type;
  using words = typename float_bits<Lanes>::words;
  using halves = typename float_bits<Lanes>::halves;
  using conversion = gradus::detail::storage_lanes<Stored>;

  GRADUS_ALWAYS_INLINE static type load(const Stored* from) noexcept {
    if constexpr (Lanes == 1) {
      return type{static_cast<float>(*from)};
    } else {
#if defined(__SSE2__)
      if constexpr (Lanes == 4) {
        const __m128i bits = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
        return conversion::template widen<type>(std::bit_cast<words>(_mm_unpacklo_epi16(_mm_setzero_si128(), bits)));
      }
#endif
      halves bits;
      std::memcpy(&bits, from, sizeof(bits));
      return conversion::template widen<type>(__builtin_convertvector(bits, words) << 16U);
    }
  }
  GRADUS_ALWAYS_INLINE static void store(Stored* to, type value) noexcept {
    if constexpr (Lanes == 1) {
      *to = Stored{value[0]};
    } else {
      const words bits = conversion::template narrow<words>(value);
#if defined(__SSE2__)
      if constexpr (Lanes == 4) {
        const __m128i upper = _mm_srai_epi32(std::bit_cast<__m128i>(bits), 16);
        _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packs_epi32(upper, upper));
        return;
      }
#endif
      const halves upper = __builtin_convertvector(bits >> 16U, halves);
      std::memcpy(static_cast<void*>(to), &upper, sizeof(upper));
    }
  }
  /// Stores the first `count` SIMD lanes only.
  GRADUS_ALWAYS_INLINE static void store(Stored* to, type value, index_t count) noexcept {
    if (count >= lanes) {
      store(to, value);
      return;
    }
    for (index_t i = 0; i < count; ++i) {
      to[i] = Stored{value[i]};
    }
  }
};

/// Fetches the cache line of an address into the cache; the address need not be valid.
GRADUS_ALWAYS_INLINE void prefetch(const void* place) noexcept {
  __builtin_prefetch(place);
}

/// Bytes of a vector that every processor of the architecture has.
inline constexpr int packet_bytes = 16;

/// The packet that fills a vector.
template <class Element>
using full_packet = packet<Element, packet_bytes / static_cast<int>(sizeof(computed<Element>))>;

/// Calls body(packet, i) for i in [begin, end) in steps of the packet's SIMD lanes: whole packets, then single
/// elements.
template <class Element, class Body>
GRADUS_ALWAYS_INLINE void for_each_packet(index_t begin, index_t end, const Body& body) {
  using full = full_packet<Element>;
  index_t i = begin;
  for (; i + full::lanes <= end; i += full::lanes) {
    body(full{}, i);
  }
  for (; i < end; ++i) {
    body(packet<Element, 1>{}, i);
  }
}

}  // namespace gradus::kernels::detail

// SPDX-License-Identifier: BSL-1.0
//
// Vectors of one instruction set for element-wise loops.

// No `#pragma once`: for_each_target.hpp says what to compile.
#if defined(GRADUS_TARGET)

namespace gradus::simd::GRADUS_TARGET {

/// Selects the functions of this instruction set.
struct target {};

/// The elements of a vector as they are stored: numbers of 16 bits as integers.
template <class Stored, int Lanes>
struct stored_lanes {
  using number = std::conditional_t<sizeof(Stored) == 2, std::uint16_t, Stored>;
  typedef number type __attribute__((vector_size(Lanes * sizeof(number))));
  /// With the alignment of an element.
  typedef number unaligned __attribute__((vector_size(Lanes * sizeof(number)), aligned(alignof(Stored)), may_alias));
};

/// A vector of `lanes` adjacent elements, or of fewer at the end of a run. Elements of 16 bits are computed in float.
/// Vectors have the operators of numbers; the results of comparisons are integers, all ones for true.
template <class Element>
struct packet {
  using real = parameter_element_t<Element>;
  static constexpr index_t lanes = GRADUS_TARGET_BYTES / static_cast<index_t>(sizeof(real));
  using index_type = std::conditional_t<sizeof(real) == 4, std::int32_t, std::int64_t>;
  typedef real type __attribute__((vector_size(GRADUS_TARGET_BYTES)));
  typedef index_type index_vector __attribute__((vector_size(GRADUS_TARGET_BYTES)));
  typedef std::uint32_t words __attribute__((vector_size(GRADUS_TARGET_BYTES)));

  /// The number of elements that are loaded and stored. Other SIMD lanes are loaded as 0.
  index_t count = lanes;

  /// Loads Elements or reals.
  template <class Stored>
  GRADUS_ALWAYS_INLINE type load(const Stored* from) const noexcept {
    using vectors = stored_lanes<Stored, int{lanes}>;
    const auto& memory = *reinterpret_cast<const typename vectors::unaligned*>(from);
    typename vectors::type bits;
    if (count == lanes) {
#if GRADUS_TARGET_BYTES > 16  // the compiler widens in several instructions
      if constexpr (std::is_same_v<Stored, bfloat16>) {
        words whole;
        __asm__("vpmovzxwd {%1, %0|%0, %1}" : "=v"(whole) : "m"(memory));
        return reinterpret_cast<type>(whole << 16U);
      } else if constexpr (storage_element<Stored>) {
        type value;
        __asm__("vcvtph2ps {%1, %0|%0, %1}" : "=v"(value) : "m"(memory));
        return value;
      }
#endif
      bits = memory;
    } else {
#if GRADUS_TARGET_BYTES == 64
      const std::uint16_t mask = first_bits();
      if constexpr (sizeof(Stored) == 2) {
        __asm__("vmovdqu16 {%1, %0%{%2%}%{z%}|%0%{%2%}%{z%}, %1}" : "=v"(bits) : "m"(memory), "Yk"(mask));
      } else if constexpr (sizeof(Stored) == 4) {
        __asm__("vmovups {%1, %0%{%2%}%{z%}|%0%{%2%}%{z%}, %1}" : "=v"(bits) : "m"(memory), "Yk"(mask));
      } else {
        __asm__("vmovupd {%1, %0%{%2%}%{z%}|%0%{%2%}%{z%}, %1}" : "=v"(bits) : "m"(memory), "Yk"(mask));
      }
#else
#if GRADUS_TARGET_BYTES == 32
      if constexpr (sizeof(Stored) >= 4) {
        __asm__("vmaskmovps {%1, %2, %0|%0, %2, %1}" : "=x"(bits) : "m"(memory), "x"(first_lanes()));
        return bits;
      }
#endif
      load_some(bits, from);
#endif
    }
    if constexpr (!storage_element<Stored>) {
      return bits;
    } else if constexpr (std::is_same_v<Stored, bfloat16>) {
#if GRADUS_TARGET_BYTES == 16 && defined(__SSE2__)
      __m128i low{};
      std::memcpy(&low, &bits, sizeof(bits));
      return reinterpret_cast<type>(_mm_unpacklo_epi16(_mm_setzero_si128(), low));
#else
      return reinterpret_cast<type>(__builtin_convertvector(bits, words) << 16U);
#endif
    } else {
#if GRADUS_TARGET_BYTES == 16
      return gradus::detail::storage_lanes<Stored>::template widen<type>(__builtin_convertvector(bits, words) << 16U);
#else
      type value;
      __asm__("vcvtph2ps {%1, %0|%0, %1}" : "=v"(value) : "v"(bits));
      return value;
#endif
    }
  }

  /// Stores Elements, rounded, or reals.
  template <class Stored>
  GRADUS_ALWAYS_INLINE void store(Stored* to, type value) const noexcept {
    using vectors = stored_lanes<Stored, int{lanes}>;
    typename vectors::type bits;
    if constexpr (!storage_element<Stored>) {
      bits = value;
    } else if constexpr (std::is_same_v<Stored, bfloat16>) {
      // The instruction for it would treat subnormal numbers as 0.
      const words whole = reinterpret_cast<words>(value);
      const words number = whole + 0x7FFFU + ((whole >> 16U) & 1U);
      halve(value != value ? whole | 0x400000U : number, bits);
    } else {
#if GRADUS_TARGET_BYTES == 16
      halve(gradus::detail::storage_lanes<Stored>::template narrow<words>(value), bits);
#else
      __asm__("vcvtps2ph {$0, %1, %0|%0, %1, 0}" : "=v"(bits) : "v"(value));
#endif
    }
    if (count == lanes) {
      *reinterpret_cast<typename vectors::unaligned*>(to) = bits;
      return;
    }
#if GRADUS_TARGET_BYTES == 64
    const std::uint16_t mask = first_bits();
    auto& memory = *reinterpret_cast<typename vectors::unaligned*>(to);
    if constexpr (sizeof(Stored) == 2) {
      __asm__("vmovdqu16 {%1, %0%{%2%}|%0%{%2%}, %1}" : "+m"(memory) : "v"(bits), "Yk"(mask));
    } else if constexpr (sizeof(Stored) == 4) {
      __asm__("vmovups {%1, %0%{%2%}|%0%{%2%}, %1}" : "+m"(memory) : "v"(bits), "Yk"(mask));
    } else {
      __asm__("vmovupd {%1, %0%{%2%}|%0%{%2%}, %1}" : "+m"(memory) : "v"(bits), "Yk"(mask));
    }
#else
#if GRADUS_TARGET_BYTES == 32
    if constexpr (sizeof(Stored) >= 4) {
      auto& memory = *reinterpret_cast<typename vectors::unaligned*>(to);
      __asm__("vmaskmovps {%1, %2, %0|%0, %2, %1}" : "+m"(memory) : "x"(bits), "x"(first_lanes()));
      return;
    }
#endif
    copy_some<sizeof(bits) / 2, sizeof(Stored)>(to, &bits, count);
#endif
  }

  GRADUS_ALWAYS_INLINE static type broadcast(real value) noexcept {
    return value - type{};
  }

  /// `value` in the first `count` SIMD lanes, `other` in the others.
  GRADUS_ALWAYS_INLINE type merged(type value, type other) const noexcept {
    if (count == lanes) {
      return value;
    }
    return first_lanes() ? value : other;
  }
  /// `value` in the first `count` SIMD lanes, 0 in the others.
  GRADUS_ALWAYS_INLINE type only(type value) const noexcept {
    return masked(first_lanes(), value);
  }
  /// `value` where the mask is true, else 0.
  GRADUS_ALWAYS_INLINE static type masked(index_vector mask, type value) noexcept {
    return __builtin_bit_cast(type, mask & __builtin_bit_cast(index_vector, value));
  }

  /// max(x, 0); a NaN stays NaN.
  GRADUS_ALWAYS_INLINE static type relu(type value) noexcept {
    return type{} > value ? type{} : value;
  }

  /// A piecewise linear activation, which is not the identity: kernels' held_activation.
  template <class Activation>
  GRADUS_ALWAYS_INLINE static type activated(const Activation& act, type value) noexcept {
    if (!act.other) {
      return relu(value);
    }
    const type low = act.slope == 0 ? type{} : act.slope * value;
    const type high = broadcast(act.cap);
    value = type{} > value ? low : value;
    return value > high ? high : value;
  }
  /// `value` times its derivative where the function is `output`: kernels' held_derivative.
  template <class Derivative>
  GRADUS_ALWAYS_INLINE static type times(const Derivative& derivative, type output, type value) noexcept {
    if (!derivative.other) {
      return output > type{} ? value : type{};
    }
    const type low = derivative.slope == 0 ? type{} : derivative.slope * value;
    value = output > type{} ? value : low;
    return output > broadcast(derivative.below_cap) ? type{} : value;
  }

  /// The square root, correctly rounded.
  GRADUS_ALWAYS_INLINE static type square_root(type value) noexcept {
#if GRADUS_TARGET_BYTES > 16
    type result;
    if constexpr (sizeof(real) == 4) {
      __asm__("vsqrtps {%1, %0|%0, %1}" : "=v"(result) : "v"(value));
    } else {
      __asm__("vsqrtpd {%1, %0|%0, %1}" : "=v"(result) : "v"(value));
    }
    return result;
#elif defined(__SSE2__)
    if constexpr (sizeof(real) == 4) {
      return _mm_sqrt_ps(value);
    } else {
      return _mm_sqrt_pd(value);
    }
#else
    for (index_t i = 0; i < lanes; ++i) {
      value[i] = std::sqrt(value[i]);
    }
    return value;
#endif
  }

  GRADUS_ALWAYS_INLINE static index_vector broadcast_index(int value) noexcept {
    return static_cast<index_type>(value) - index_vector{};
  }
  /// a > b ? a : b
  GRADUS_ALWAYS_INLINE static type larger(type a, type b) noexcept {
#if GRADUS_TARGET_BYTES == 16 && defined(__SSE2__)
    // For the expression, the compiler emits three instructions if the comparison is needed anyway.
    if constexpr (sizeof(real) == 4) {
      return _mm_max_ps(a, b);
    } else {
      return _mm_max_pd(a, b);
    }
#elif GRADUS_TARGET_BYTES == 32
    type result;
    if constexpr (sizeof(real) == 4) {
      __asm__("vmaxps {%2, %1, %0|%0, %1, %2}" : "=x"(result) : "x"(a), "x"(b));
    } else {
      __asm__("vmaxpd {%2, %1, %0|%0, %1, %2}" : "=x"(result) : "x"(a), "x"(b));
    }
    return result;
#else
    return a > b ? a : b;
#endif
  }
  /// The larger of integers in [0, 255].
  GRADUS_ALWAYS_INLINE static index_vector larger_byte(index_vector a, index_vector b) noexcept {
    // SSE2 has no comparison of wider integers in one instruction.
    typedef short shorts __attribute__((vector_size(GRADUS_TARGET_BYTES)));
    const auto x = reinterpret_cast<shorts>(a);
    const auto y = reinterpret_cast<shorts>(b);
    return reinterpret_cast<index_vector>(x > y ? x : y);
  }
  /// True if a comparison is true in any SIMD lane.
  GRADUS_ALWAYS_INLINE static bool any(index_vector mask) noexcept {
#if GRADUS_TARGET_BYTES == 64
    std::uint16_t bits = 0;
    __asm__("vptestmd {%1, %1, %0|%0, %1, %1}" : "=Yk"(bits) : "v"(mask));
    return bits != 0;
#elif GRADUS_TARGET_BYTES == 32
    int bits = 0;
    __asm__("vpmovmskb {%1, %0|%0, %1}" : "=r"(bits) : "x"(mask));
    return bits != 0;
#elif defined(__SSE2__)
    return _mm_movemask_epi8(reinterpret_cast<__m128i>(mask)) != 0;
#else
    index_type all = 0;
    for (index_t i = 0; i < lanes; ++i) {
      all |= mask[i];
    }
    return all != 0;
#endif
  }

  /// Loads bytes as integers.
  GRADUS_ALWAYS_INLINE index_vector load_bytes(const std::uint8_t* from) const noexcept {
    const auto& memory = *reinterpret_cast<const std::uint8_t(*)[std::size_t{lanes}]>(from);
    if (count == lanes) {
      return widen_bytes(memory);
    }
#if GRADUS_TARGET_BYTES == 64
    index_vector wide;
    if constexpr (lanes == 16) {
      __asm__("vpmovzxbd {%1, %0%{%2%}%{z%}|%0%{%2%}%{z%}, %1}" : "=v"(wide) : "m"(memory), "Yk"(first_bits()));
    } else {
      __asm__("vpmovzxbq {%1, %0%{%2%}%{z%}|%0%{%2%}%{z%}, %1}" : "=v"(wide) : "m"(memory), "Yk"(first_bits()));
    }
    return wide;
#else
    const std::uint64_t bits = some_bytes(from, count);
    std::uint8_t bytes[std::size_t{lanes}];
    std::memcpy(bytes, &bits, sizeof(bytes));
    return widen_bytes(bytes);
#endif
  }
  /// Stores integers in [0, 255] as bytes.
  GRADUS_ALWAYS_INLINE void store_bytes(std::uint8_t* to, index_vector value) const noexcept {
#if GRADUS_TARGET_BYTES == 64
    auto& memory = *reinterpret_cast<std::uint8_t(*)[std::size_t{lanes}]>(to);
    const std::uint16_t mask = count == lanes ? std::uint16_t{0xFFFF} : first_bits();
    if constexpr (lanes == 16) {
      __asm__("vpmovdb {%1, %0%{%2%}|%0%{%2%}, %1}" : "+m"(memory) : "v"(value), "Yk"(mask));
    } else {
      __asm__("vpmovqb {%1, %0%{%2%}|%0%{%2%}, %1}" : "+m"(memory) : "v"(value), "Yk"(mask));
    }
#else
    std::uint8_t bytes[std::size_t{lanes}];
#if defined(__SSE2__)
    typedef std::int32_t integers __attribute__((vector_size(GRADUS_TARGET_BYTES)));
    const auto wide = reinterpret_cast<integers>(value);
    __m128i low;
    __m128i high;
#if GRADUS_TARGET_BYTES == 32
    if constexpr (sizeof(real) == 4) {
      low = reinterpret_cast<__m128i>(GRADUS_SHUFFLE(wide, wide, 0, 1, 2, 3));
      high = reinterpret_cast<__m128i>(GRADUS_SHUFFLE(wide, wide, 4, 5, 6, 7));
    } else {
      low = high = reinterpret_cast<__m128i>(GRADUS_SHUFFLE(wide, wide, 0, 2, 4, 6));
    }
#else
    low = high = sizeof(real) == 4 ? reinterpret_cast<__m128i>(wide)
                                   : reinterpret_cast<__m128i>(GRADUS_SHUFFLE(wide, wide, 0, 2, 0, 2));
#endif
    low = _mm_packs_epi32(low, high);
    low = _mm_packus_epi16(low, low);
    std::memcpy(bytes, &low, sizeof(bytes));
#else
    for (index_t i = 0; i < lanes; ++i) {
      bytes[i] = static_cast<std::uint8_t>(value[i]);
    }
#endif
    if (count == lanes) {
      std::memcpy(to, bytes, sizeof(bytes));
    } else {
      copy_some<sizeof(bytes) / 2, 1>(to, bytes, count);
    }
#endif
  }

  /// sums[lane] += value[lane], or its square, in double precision, for `count` SIMD lanes.
  template <bool Square = false>
  GRADUS_ALWAYS_INLINE void add_to(double* sums, type value) const noexcept {
    alignas(GRADUS_TARGET_BYTES) real numbers[std::size_t{lanes}];
    *reinterpret_cast<type*>(numbers) = value;
    constexpr index_t step = GRADUS_TARGET_BYTES / 8;
    using doubles = packet<double>;
    typedef real half __attribute__((vector_size(step * sizeof(real)), may_alias));
    for (index_t i = 0; i < count; i += step) {
      const doubles some{count - i < step ? count - i : step};
      const auto terms = __builtin_convertvector(*reinterpret_cast<half*>(numbers + i), typename doubles::type);
      some.store(sums + i, some.load(sums + i) + (Square ? terms * terms : terms));
    }
  }

 private:
  /// True in the first `count` SIMD lanes.
  GRADUS_ALWAYS_INLINE index_vector first_lanes() const noexcept {
    index_vector lane{};
    for (index_t i = 0; i < lanes; ++i) {
      lane[i] = static_cast<index_type>(i);
    }
    return lane < static_cast<index_type>(count) - index_vector{};
  }
#if GRADUS_TARGET_BYTES == 64
  /// The bits of the first `count` SIMD lanes.
  GRADUS_ALWAYS_INLINE std::uint16_t first_bits() const noexcept {
    return static_cast<std::uint16_t>((1U << static_cast<unsigned>(count)) - 1);
  }
#else
  /// Up to 8 bytes, in a register: a vector cannot be loaded soon after its parts have been stored.
  GRADUS_ALWAYS_INLINE static std::uint64_t some_bytes(const void* from, index_t bytes) noexcept {
    const auto both_ends = [=](auto word) {  // they may overlap
      const auto size = static_cast<index_t>(sizeof(word));
      const index_t offset = bytes < 8 ? bytes - size : 0;
      std::memcpy(&word, from, sizeof(word));
      const std::uint64_t first = word;
      std::memcpy(&word, static_cast<const char*>(from) + offset, sizeof(word));
      return first | std::uint64_t{word} << static_cast<unsigned>(8 * offset);
    };
    return bytes >= 8 ? both_ends(std::uint64_t{})
           : bytes >= 4 ? both_ends(std::uint32_t{})
           : bytes >= 2 ? both_ends(std::uint16_t{})
           : bytes > 0 ? both_ends(std::uint8_t{})
                       : 0;
  }
  /// Loads `count` numbers, fewer than a vector has, and zeros.
  template <class Bits, class Stored>
  GRADUS_ALWAYS_INLINE void load_some(Bits& bits, const Stored* from) const noexcept {
    constexpr index_t half = 8 / static_cast<index_t>(sizeof(Stored));
    typedef std::uint64_t halves __attribute__((vector_size(16)));
    const index_t bytes = count * static_cast<index_t>(sizeof(Stored));
    const halves both = {some_bytes(from, bytes), bytes > 8 ? some_bytes(from + half, bytes - 8) : 0};
    std::memcpy(&bits, &both, sizeof(bits));
  }
  /// Copies `count` numbers, fewer than a vector has, by halves of a vector: a call of memcpy takes longer.
  template <std::size_t Bytes, std::size_t Size>
  GRADUS_ALWAYS_INLINE static void copy_some(void* to, const void* from, index_t count) noexcept {
    if constexpr (Bytes >= Size) {
      constexpr std::size_t numbers = Bytes / Size;
      if ((static_cast<std::size_t>(count) & numbers) != 0) {
        std::memcpy(to, from, Bytes);
        to = static_cast<char*>(to) + Bytes;
        from = static_cast<const char*>(from) + Bytes;
      }
      copy_some<Bytes / 2, Size>(to, from, count);
    }
  }
#endif
  GRADUS_ALWAYS_INLINE static index_vector widen_bytes(const std::uint8_t (&bytes)[std::size_t{lanes}]) noexcept {
    index_vector wide{};
#if GRADUS_TARGET_BYTES > 16
    if constexpr (sizeof(real) == 4) {
      __asm__("vpmovzxbd {%1, %0|%0, %1}" : "=v"(wide) : "m"(bytes));
    } else {
      __asm__("vpmovzxbq {%1, %0|%0, %1}" : "=v"(wide) : "m"(bytes));
    }
#elif defined(__SSE2__)
    int low = 0;
    std::memcpy(&low, bytes, sizeof(bytes));
    const __m128i zero = _mm_setzero_si128();
    __m128i words = _mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(low), zero), zero);
    words = sizeof(real) == 4 ? words : _mm_unpacklo_epi32(words, zero);
    wide = reinterpret_cast<index_vector>(words);
#else
    for (index_t i = 0; i < lanes; ++i) {
      wide[i] = bytes[i];
    }
#endif
    return wide;
  }
  /// The upper halves of words.
  template <class Halves>
  GRADUS_ALWAYS_INLINE static void halve(words value, Halves& upper) noexcept {
#if GRADUS_TARGET_BYTES == 64
    typedef std::uint16_t both __attribute__((vector_size(64)));
    const both shorts = reinterpret_cast<both>(value);
    upper = GRADUS_SHUFFLE(shorts, shorts, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#elif GRADUS_TARGET_BYTES == 16 && defined(__SSE2__)
    const __m128i high = _mm_srai_epi32(reinterpret_cast<__m128i>(value), 16);
    const __m128i both = _mm_packs_epi32(high, high);
    std::memcpy(&upper, &both, sizeof(upper));
#else
    upper = __builtin_convertvector(value >> 16U, Halves);
#endif
  }
};

}  // namespace gradus::simd::GRADUS_TARGET

#endif

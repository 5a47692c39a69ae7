// SPDX-License-Identifier: BSL-1.0
//
// Copies memory that is not read again soon.
#pragma once

#include <cstddef>  // std::byte, std::size_t
#include <cstdint>  // std::uintptr_t
#include <cstring>  // std::memcpy

#if defined(__SSE2__)
#include <emmintrin.h>  // _mm_loadu_si128, _mm_sfence, _mm_stream_si128
#endif

#include "gradus/core/config.hpp"

namespace gradus {

/// As std::memcpy. From a mebibyte on, the copy is written past the caches: its lines are not read before they are
/// written, and what is in the caches stays there. It takes up to half the time where both do not fit. (std::memcpy
/// does so only for much larger sizes, which depend on the caches.)
inline void streamed_copy(std::byte* to, const std::byte* from, std::size_t size) noexcept {
#if defined(__SSE2__)
  constexpr std::size_t line = 64;
  if (size >= std::size_t{1} << 20U) {
    const std::size_t head = (line - reinterpret_cast<std::uintptr_t>(to) % line) % line;
    std::memcpy(to, from, head);
    to += head;
    from += head;
    size -= head;
    for (; size >= line; size -= line, to += line, from += line) {
      const auto* const source = reinterpret_cast<const __m128i*>(from);
      auto* const target = reinterpret_cast<__m128i*>(to);
      const __m128i words[] = {_mm_loadu_si128(source), _mm_loadu_si128(source + 1), _mm_loadu_si128(source + 2),
                               _mm_loadu_si128(source + 3)};
      for (int i = 0; i < 4; ++i) {
        _mm_stream_si128(target + i, words[i]);
      }
    }
    _mm_sfence();  // other threads see it as they see other stores
  }
#endif
  if (size != 0) {
    std::memcpy(to, from, size);
  }
}

}  // namespace gradus

// SPDX-License-Identifier: BSL-1.0
//
// A hash of large data, by which ranks compare their data sets.
#pragma once

#include <cstddef>  // std::size_t
#include <cstdint>  // std::uint8_t, std::uint64_t
#include <cstring>  // std::memcpy
#include <span>     // std::span
#include <string>   // std::string

#include "gradus/core/compiled.hpp"
#include "gradus/core/random.hpp"

namespace gradus::data::detail {

/// A hash of `bytes` that continues `hash`, eight bytes at a time. It detects accidents, not forgeries.
[[nodiscard]] std::uint64_t hash_bytes(std::span<const std::uint8_t> bytes, std::uint64_t hash) noexcept;

/// The hash as 16 hexadecimal digits.
[[nodiscard]] std::string hexadecimal(std::uint64_t hash);

}  // namespace gradus::data::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::data::detail {

GRADUS_INLINE std::uint64_t hash_bytes(std::span<const std::uint8_t> bytes, std::uint64_t hash) noexcept {
  hash = gradus::detail::mix_bits(hash ^ bytes.size());
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29U;
  }
  for (; i < bytes.size(); ++i) {
    hash = (hash ^ bytes[i]) * 0x100000001b3ULL;
  }
  return gradus::detail::mix_bits(hash);
}

GRADUS_INLINE std::string hexadecimal(std::uint64_t hash) {
  std::string text(16, '0');
  for (std::size_t i = 16; i-- > 0; hash >>= 4U) {
    text[i] = "0123456789abcdef"[hash & 15U];
  }
  return text;
}

}  // namespace gradus::data::detail
#endif

// SPDX-License-Identifier: BSL-1.0
//
// Random numbers as a function of (seed, name, index): without state, in any order, on any number of threads.
#pragma once

#include <array>        // std::array
#include <cmath>        // std::sqrt, std::log, std::cos
#include <cstdint>      // std::uint32_t, std::uint64_t
#include <numbers>      // std::numbers::pi
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"

namespace gradus {

namespace detail {

/// 64-bit FNV-1a hash of a text: the same on all platforms and in all runs.
[[nodiscard]] constexpr std::uint64_t hash_text(std::string_view text) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char character : text) {
    hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001b3ULL;
  }
  return hash;
}

/// Mixes all bits of x into all bits of the result (the finalizer of SplitMix64).
[[nodiscard]] constexpr std::uint64_t mix_bits(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

}  // namespace detail

/// A stream of random numbers in which the i-th number depends only on (seed, name, i).
///
/// The generator is Philox4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
/// 1, 2, 3", SC 2011, section 3). Threads, ranks and layouts get the same number for the same index.
class random_stream {
 public:
  /// 128 random bits.
  using block_type = std::array<std::uint32_t, 4>;

  /// The stream of this seed and name.
  constexpr explicit random_stream(std::uint64_t seed, std::string_view name = {}) noexcept
      : key_{detail::mix_bits(seed ^ detail::mix_bits(detail::hash_text(name)))} {}

  /// The key derived from seed and name, for code that computes many blocks at once.
  [[nodiscard]] constexpr std::uint64_t key() const noexcept { return key_; }

  /// 128 random bits. Blocks of different (index, sequence) are independent.
  [[nodiscard]] constexpr block_type block(std::uint64_t index, std::uint64_t sequence = 0) const noexcept {
    auto word0 = static_cast<std::uint32_t>(index);
    auto word1 = static_cast<std::uint32_t>(index >> 32U);
    auto word2 = static_cast<std::uint32_t>(sequence);
    auto word3 = static_cast<std::uint32_t>(sequence >> 32U);
    auto key0 = static_cast<std::uint32_t>(key_);
    auto key1 = static_cast<std::uint32_t>(key_ >> 32U);
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t product0 = std::uint64_t{0xD2511F53U} * word0;
      const std::uint64_t product1 = std::uint64_t{0xCD9E8D57U} * word2;
      word0 = static_cast<std::uint32_t>(product1 >> 32U) ^ word1 ^ key0;
      word1 = static_cast<std::uint32_t>(product1);
      word2 = static_cast<std::uint32_t>(product0 >> 32U) ^ word3 ^ key1;
      word3 = static_cast<std::uint32_t>(product0);
      key0 += 0x9E3779B9U;
      key1 += 0xBB67AE85U;
    }
    return {word0, word1, word2, word3};
  }

  /// 64 random bits.
  [[nodiscard]] constexpr std::uint64_t bits(std::uint64_t index, std::uint64_t sequence = 0) const noexcept {
    const block_type words = block(index, sequence);
    return (std::uint64_t{words[1]} << 32U) | words[0];
  }

  /// A number that is uniformly distributed on [0, 1), a multiple of 2^-53.
  [[nodiscard]] constexpr double uniform(std::uint64_t index, std::uint64_t sequence = 0) const noexcept {
    return static_cast<double>(bits(index, sequence) >> 11U) * 0x1.0p-53;
  }

  /// A number with the standard normal distribution (Box and Muller 1958).
  [[nodiscard]] double normal(std::uint64_t index, std::uint64_t sequence = 0) const noexcept {
    const block_type words = block(index, sequence);
    const double radius_uniform =
        (static_cast<double>(((std::uint64_t{words[1]} << 32U) | words[0]) >> 11U) + 0.5) * 0x1.0p-53;
    const double angle_uniform = static_cast<double>(((std::uint64_t{words[3]} << 32U) | words[2]) >> 11U) * 0x1.0p-53;
    return std::sqrt(-2.0 * std::log(radius_uniform)) * std::cos(2.0 * std::numbers::pi * angle_uniform);
  }

  /// A number with the standard normal distribution restricted to |x| <= 2, by rejection.
  [[nodiscard]] double truncated_normal(std::uint64_t index) const noexcept {
    for (std::uint64_t attempt = 0;; ++attempt) {
      const double value = normal(index, attempt);
      if (value >= -2.0 && value <= 2.0) {
        return value;
      }
    }
  }

  /// A number that is uniformly distributed on {0, ..., bound - 1}, without bias (Lemire 2019, with rejection).
  ///
  /// @pre bound > 0
  [[nodiscard]] constexpr std::uint64_t below(std::uint64_t bound, std::uint64_t index) const noexcept {
    const std::uint64_t limit = (0 - bound) % bound;  // 2^64 mod bound
    for (std::uint64_t attempt = 0;; ++attempt) {
      const std::uint64_t candidate = bits(index, attempt);
      if (candidate >= limit) {
        return candidate % bound;
      }
    }
  }

 private:
  std::uint64_t key_;
};

}  // namespace gradus

// SPDX-License-Identifier: BSL-1.0
//
// The checksum CRC-32C, and the checksum of joined ranges from those of the ranges.
#pragma once

#include <array>    // std::array
#include <cstddef>  // std::byte, std::size_t
#include <cstdint>  // std::uint32_t, std::uint64_t, std::uint8_t
#include <cstring>  // std::memcpy
#include <span>     // std::span

#include "gradus/core/config.hpp"

namespace gradus::io {

namespace detail {

/// The polynomial of Castagnoli (1993), as in RFC 3720 (iSCSI), with the lowest power in the highest bit.
inline constexpr std::uint32_t crc32c_polynomial = 0x82F63B78U;

/// The product of two polynomials modulo the polynomial of the checksum.
[[nodiscard]] constexpr std::uint32_t crc32c_multiply(std::uint32_t a, std::uint32_t b) noexcept {
  std::uint32_t product = 0;
  for (std::uint32_t power = 0x80000000U; power != 0; power >>= 1U) {
    product ^= (a & power) != 0 ? b : 0;
    b = (b >> 1U) ^ ((b & 1U) != 0 ? crc32c_polynomial : 0);
  }
  return product;
}

/// x^(8 bytes): a checksum, multiplied by it, is that of a text with as many more null bytes.
[[nodiscard]] constexpr std::uint32_t crc32c_shift(std::uint64_t bytes) noexcept {
  std::uint32_t power = 0x00800000U;   // x^8
  std::uint32_t result = 0x80000000U;  // 1
  for (; bytes != 0; bytes >>= 1U) {
    if ((bytes & 1U) != 0) {
      result = crc32c_multiply(power, result);
    }
    power = crc32c_multiply(power, power);
  }
  return result;
}

/// tables[k][b] is the checksum of byte b and k null bytes, without the inversions.
[[nodiscard]] constexpr std::array<std::array<std::uint32_t, 256>, 8> crc32c_tables() noexcept {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value >> 1U) ^ ((value & 1U) != 0 ? crc32c_polynomial : 0);
    }
    tables[0][byte] = value;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8U) ^ tables[0][before & 0xFFU];
    }
  }
  return tables;
}

/// Eight bytes a step by tables (Kounavis and Berry, "A systematic approach to building high performance
/// software-based CRC generators", 2005); for every processor.
[[nodiscard]] inline std::uint32_t crc32c_portable(std::uint32_t state, const std::uint8_t* data,
                                                   std::size_t size) noexcept {
  static constexpr auto tables = crc32c_tables();
  for (; size >= 8; size -= 8, data += 8) {
    state ^= std::uint32_t{data[0]} | (std::uint32_t{data[1]} << 8U) | (std::uint32_t{data[2]} << 16U) |
             (std::uint32_t{data[3]} << 24U);
    state = tables[7][state & 0xFFU] ^ tables[6][(state >> 8U) & 0xFFU] ^ tables[5][(state >> 16U) & 0xFFU] ^
            tables[4][state >> 24U] ^ tables[3][data[4]] ^ tables[2][data[5]] ^ tables[1][data[6]] ^ tables[0][data[7]];
  }
  for (; size != 0; --size, ++data) {
    state = (state >> 8U) ^ tables[0][(state ^ *data) & 0xFFU];
  }
  return state;
}

#if defined(__x86_64__) && defined(__GNUC__)

/// Three streams of the instruction crc32, which has a latency of three cycles, joined by multiplication.
[[nodiscard, gnu::target("sse4.2")]] inline std::uint32_t crc32c_sse42(std::uint32_t state, const std::uint8_t* data,
                                                                       std::size_t size) noexcept {
  const auto word = [](const std::uint8_t* from) {
    std::uint64_t value = 0;
    std::memcpy(&value, from, sizeof(value));
    return value;
  };
  struct length {
    std::size_t bytes;
    std::uint32_t shift;
  };
  static constexpr length lengths[] = {{32768, crc32c_shift(32768)}, {2048, crc32c_shift(2048)}};
  for (const auto& [bytes, shift] : lengths) {
    while (size >= 3 * bytes) {
      std::uint64_t first = state;
      std::uint64_t second = 0;
      std::uint64_t third = 0;
      for (const std::uint8_t* const end = data + bytes; data != end; data += 8) {
        first = __builtin_ia32_crc32di(first, word(data));
        second = __builtin_ia32_crc32di(second, word(data + bytes));
        third = __builtin_ia32_crc32di(third, word(data + 2 * bytes));
      }
      const auto both = crc32c_multiply(shift, static_cast<std::uint32_t>(first)) ^ static_cast<std::uint32_t>(second);
      state = crc32c_multiply(shift, both) ^ static_cast<std::uint32_t>(third);
      data += 2 * bytes;
      size -= 3 * bytes;
    }
  }
  std::uint64_t last = state;
  for (; size >= 8; size -= 8, data += 8) {
    last = __builtin_ia32_crc32di(last, word(data));
  }
  state = static_cast<std::uint32_t>(last);
  for (; size != 0; --size, ++data) {
    state = __builtin_ia32_crc32qi(state, *data);
  }
  return state;
}

#endif

}  // namespace detail

/// The CRC-32C of the bytes that `before` is the checksum of, followed by `bytes`: RFC 3720, appendix B.4. The checksum
/// of no bytes is 0. It uses the instruction crc32 of SSE 4.2 where the processor has it.
[[nodiscard]] inline std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept {
  const auto* const data = reinterpret_cast<const std::uint8_t*>(bytes.data());
#if defined(__x86_64__) && defined(__GNUC__)
  static const bool fast = __builtin_cpu_supports("sse4.2") != 0;
  if (fast) {
    return ~detail::crc32c_sse42(~before, data, bytes.size());
  }
#endif
  return ~detail::crc32c_portable(~before, data, bytes.size());
}

/// The checksum of two ranges, one after the other, from the checksum of each and the length of the second.
[[nodiscard]] constexpr std::uint32_t crc32c_combine(std::uint32_t first, std::uint32_t second,
                                                     std::uint64_t second_bytes) noexcept {
  return detail::crc32c_multiply(detail::crc32c_shift(second_bytes), first) ^ second;
}

}  // namespace gradus::io

// SPDX-License-Identifier: BSL-1.0
//
// The checksum of zip archives.
#pragma once

#include <array>    // std::array
#include <cstddef>  // std::size_t
#include <cstdint>  // std::uint8_t, std::uint32_t
#include <span>     // std::span

#include "gradus/core/config.hpp"

namespace gradus::data::detail {

/// The tables of crc32: table k has what a byte does to the sum when k more bytes follow it.
[[nodiscard]] constexpr std::array<std::array<std::uint32_t, 256>, 8> crc32_tables() noexcept {
  constexpr std::uint32_t polynomial = 0xEDB88320U;
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value >> 1U) ^ ((value & 1U) != 0 ? polynomial : 0);
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

/// CRC-32 (ISO 3309) of bytes, eight in a step by tables (Kounavis and Berry, "A systematic approach to building high
/// performance software-based CRC generators", 2005). zlib has one too, which needs the component gradus::gzip.
[[nodiscard]] inline std::uint32_t crc32(std::span<const std::uint8_t> bytes) noexcept {
  static constexpr auto tables = crc32_tables();
  std::uint32_t state = ~std::uint32_t{0};
  const std::uint8_t* data = bytes.data();
  std::size_t size = bytes.size();
  for (; size >= 8; size -= 8, data += 8) {
    state ^= std::uint32_t{data[0]} | (std::uint32_t{data[1]} << 8U) | (std::uint32_t{data[2]} << 16U) |
             (std::uint32_t{data[3]} << 24U);
    state = tables[7][state & 0xFFU] ^ tables[6][(state >> 8U) & 0xFFU] ^ tables[5][(state >> 16U) & 0xFFU] ^
            tables[4][state >> 24U] ^ tables[3][data[4]] ^ tables[2][data[5]] ^ tables[1][data[6]] ^ tables[0][data[7]];
  }
  for (; size != 0; --size, ++data) {
    state = (state >> 8U) ^ tables[0][(state ^ *data) & 0xFFU];
  }
  return ~state;
}

}  // namespace gradus::data::detail

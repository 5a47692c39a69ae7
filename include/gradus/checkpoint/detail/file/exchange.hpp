// SPDX-License-Identifier: BSL-1.0
//
// Texts that ranks tell each other.
#pragma once

#include <algorithm>    // std::copy_n, std::max
#include <cstddef>      // std::ptrdiff_t, std::size_t
#include <cstdint>      // std::uint64_t, std::uint8_t
#include <cstring>      // std::memcpy
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/comm/link.hpp"
#include "gradus/core/config.hpp"

namespace gradus::io::detail {

/// The text of each rank, on all ranks. Texts may have any length and any bytes.
/// @throws communication_error if a rank fails or does not call it in time
[[nodiscard]] inline std::vector<std::string> gather_texts(comm::link& group, std::string_view own) {
  const auto ranks = static_cast<std::size_t>(group.size());
  const auto self = static_cast<std::size_t>(group.rank());
  constexpr std::size_t number = sizeof(std::uint64_t);
  std::vector<std::uint8_t> sizes(ranks * number);  // all ranks have the same byte order
  const std::uint64_t own_size = own.size();
  std::memcpy(sizes.data() + self * number, &own_size, number);
  group.all_gather(std::span{sizes}.subspan(self * number, number), sizes);
  const auto size_of = [&](std::size_t rank) {
    std::uint64_t size = 0;
    std::memcpy(&size, sizes.data() + rank * number, number);
    return size;
  };
  std::size_t longest = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    longest = std::max(longest, size_of(rank));
  }
  std::vector<std::string> texts(ranks);
  if (longest == 0) {
    return texts;
  }
  std::vector<std::uint8_t> padded(ranks * longest);  // (ranks, longest)
  std::copy_n(own.data(), own.size(), padded.begin() + static_cast<std::ptrdiff_t>(self * longest));
  group.all_gather(std::span{padded}.subspan(self * longest, longest), padded);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    texts[rank].assign(reinterpret_cast<const char*>(padded.data() + rank * longest), size_of(rank));
  }
  return texts;
}

/// The text of rank 0, on all ranks; the others give anything.
/// @throws communication_error if a rank fails or does not call it in time
[[nodiscard]] inline std::string text_of_first(comm::link& group, std::string_view own) {
  return gather_texts(group, group.rank() == 0 ? own : std::string_view{})[0];
}

/// The first text that is not empty; all ranks get the same.
[[nodiscard]] inline std::string first_of(const std::vector<std::string>& texts) {
  for (const std::string& each : texts) {
    if (!each.empty()) {
      return each;
    }
  }
  return {};
}

/// Appends the bytes of a number.
inline void append_number(std::string& to, std::uint64_t value) {
  char bytes[sizeof(value)];
  std::memcpy(bytes, &value, sizeof(value));
  to.append(bytes, sizeof(bytes));
}

/// Takes a number from the front of a text that append_number made. @pre text has at least 8 bytes
[[nodiscard]] inline std::uint64_t take_number(std::string_view& text) {
  std::uint64_t value = 0;
  std::memcpy(&value, text.data(), sizeof(value));
  text.remove_prefix(sizeof(value));
  return value;
}

/// Appends a text of any bytes, with its length.
inline void append_field(std::string& to, std::string_view text) {
  append_number(to, text.size());
  to.append(text);
}

/// Takes a text from the front of one that append_field made. @pre text has one
[[nodiscard]] inline std::string take_field(std::string_view& text) {
  const std::uint64_t size = take_number(text);
  std::string field{text.substr(0, size)};
  text.remove_prefix(size);
  return field;
}

}  // namespace gradus::io::detail

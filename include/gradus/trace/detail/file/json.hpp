// SPDX-License-Identifier: BSL-1.0
//
// Writes pieces of JSON to a sink, with escaped texts and exact times.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::int64_t
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/format.hpp"
#include "gradus/trace/text_sink.hpp"

namespace gradus::trace::detail {

/// The length of the UTF-8 character at the beginning of a text, or 0 if there is none (RFC 3629).
[[nodiscard]] inline std::size_t utf8_length(std::string_view text) noexcept {
  const auto at = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto follows = [&](std::size_t i) { return (at(i) & 0xc0U) == 0x80U; };
  const unsigned lead = at(0);
  if (lead < 0x80U) {
    return 1;
  }
  if (lead >= 0xc2U && lead <= 0xdfU) {
    return follows(1) ? 2 : 0;
  }
  if (lead >= 0xe0U && lead <= 0xefU) {
    const bool too_long = lead == 0xe0U && at(1) < 0xa0U;
    const bool surrogate = lead == 0xedU && at(1) >= 0xa0U;
    return follows(1) && follows(2) && !too_long && !surrogate ? 3 : 0;
  }
  if (lead >= 0xf0U && lead <= 0xf4U) {
    const bool too_long = lead == 0xf0U && at(1) < 0x90U;
    const bool too_large = lead == 0xf4U && at(1) >= 0x90U;
    return follows(1) && follows(2) && follows(3) && !too_long && !too_large ? 4 : 0;
  }
  return 0;
}

/// Collects pieces and passes them on in large parts. The caller writes the braces.
class json_writer {
 public:
  explicit json_writer(text_sink& out) : out_{&out} { buffer_.reserve(full); }

  /// Writes a piece of JSON unchanged.
  void raw(std::string_view text) {
    buffer_.append(text);
    if (buffer_.size() >= full - largest_piece) {
      flush();
    }
  }

  void number(std::string_view before, std::int64_t value) {
    char digits[24];
    const int size = format_text(digits, sizeof(digits), "%lld", static_cast<long long>(value));
    raw(before);
    raw({digits, static_cast<std::size_t>(size)});
  }

  /// Writes nanoseconds as microseconds with three digits after the decimal point.
  void microseconds(std::string_view before, std::int64_t nanoseconds) {
    char digits[32];
    const auto magnitude = nanoseconds < 0 ? -static_cast<long long>(nanoseconds) : static_cast<long long>(nanoseconds);
    const int size = format_text(digits, sizeof(digits), "%s%lld.%03lld", nanoseconds < 0 ? "-" : "", magnitude / 1000,
                                 magnitude % 1000);
    raw(before);
    raw({digits, static_cast<std::size_t>(size)});
  }

  /// Writes a text in quotes. Bytes that are not UTF-8 become the replacement character.
  void text(std::string_view before, std::string_view value) {
    raw(before);
    raw("\"");
    while (!value.empty()) {
      const std::size_t length = utf8_length(value);
      if (length == 0) {
        raw("\\ufffd");
        value.remove_prefix(1);
        continue;
      }
      const auto first = static_cast<unsigned char>(value.front());
      if (first == '"' || first == '\\') {
        raw("\\");
        raw(value.substr(0, 1));
      } else if (first < 0x20U || first == 0x7fU) {
        char escaped[8];
        format_text(escaped, sizeof(escaped), "\\u%04x", static_cast<unsigned>(first));
        raw(escaped);
      } else {
        raw(value.substr(0, length));
      }
      value.remove_prefix(length);
    }
    raw("\"");
  }

  void flush() {
    out_->write(buffer_);
    buffer_.clear();
  }

 private:
  static constexpr std::size_t full = std::size_t{1} << 16U;
  static constexpr std::size_t largest_piece = 256;

  text_sink* out_;
  std::string buffer_;
};

}  // namespace gradus::trace::detail

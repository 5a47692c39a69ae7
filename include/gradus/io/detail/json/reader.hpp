// SPDX-License-Identifier: BSL-1.0
//
// A strict reader of JSON (RFC 8259), which accepts what serde_json accepts: the reference implementation of
// safetensors reads headers with it.
#pragma once

#include <algorithm>    // std::min
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int64_t, std::uint64_t
#include <limits>       // std::numeric_limits
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/text.hpp"

namespace gradus::io::detail {

/// The offset of the first byte that is not part of valid UTF-8 (Unicode 16, table 3-7); npos if there is none.
[[nodiscard]] inline std::size_t find_invalid_utf8(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto in = [&](std::size_t i, unsigned low, unsigned high) { return byte(i) >= low && byte(i) <= high; };
  const auto tail = [&](std::size_t i) { return in(i, 0x80, 0xbf); };
  std::size_t i = 0;
  while (i < text.size()) {
    const unsigned first = byte(i);
    if (first < 0x80) {
      i += 1;
    } else if (first >= 0xc2 && first <= 0xdf && tail(i + 1)) {
      i += 2;
    } else if (first >= 0xe0 && first <= 0xef && in(i + 1, first == 0xe0 ? 0xa0 : 0x80, first == 0xed ? 0x9f : 0xbf) &&
               tail(i + 2)) {
      i += 3;
    } else if (first >= 0xf0 && first <= 0xf4 && in(i + 1, first == 0xf0 ? 0x90 : 0x80, first == 0xf4 ? 0x8f : 0xbf) &&
               tail(i + 2) && tail(i + 3)) {
      i += 4;
    } else {
      return i;
    }
  }
  return std::string_view::npos;
}

/// Appends a text in quotes, with the escapes that JSON requires.
inline void append_json_string(std::string& to, std::string_view text) {
  constexpr std::string_view digits{"0123456789abcdef"};
  to += '"';
  for (const char each : text) {
    const auto byte = static_cast<unsigned char>(each);
    if (each == '"' || each == '\\') {
      to += '\\';
      to += each;
    } else if (byte < 0x20U) {
      to += "\\u00";
      to += digits[byte >> 4U];
      to += digits[byte & 0xfU];
    } else {
      to += each;
    }
  }
  to += '"';
}

/// Reads a text from its begin to its end. Every function throws a format_error where the text is not what it reads.
class json_reader {
 public:
  /// Both texts must outlive the object.
  /// @param operation  the begin of the messages
  /// @param text  the whole text
  /// @throws format_error if the text is not valid UTF-8
  json_reader(std::string_view operation, std::string_view text) : operation_{operation}, text_{text} {
    if (const std::size_t wrong = find_invalid_utf8(text); wrong != std::string_view::npos) {
      at_ = wrong;
      refuse("a header of valid UTF-8", {"another byte at position ", wrong});
    }
  }

  /// Throws a format_error.
  [[noreturn]] void refuse(message_part expected, message_part actual, message_part hint = {}) const {
    raise<format_error>(operation_, expected, actual, hint);
  }
  /// Throws a format_error that says what is found at the current position.
  [[noreturn]] void refuse_next(message_part expected) {
    skip_spaces();
    if (at_ >= text_.size()) {
      refuse(expected, "the end of the header");
    }
    refuse(expected, {"'", text_.substr(at_, 1), "' at position ", at_, " of the header"});
  }

  /// The next character that is not a space, without consuming it; 0 at the end.
  [[nodiscard]] char peek() noexcept {
    skip_spaces();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  /// Reads an object and calls `each(key)` for each entry, which reads the value.
  template <class Each>
  void object(const Each& each) {
    enter('{', "an object in braces");
    if (!accept('}')) {
      do {
        const std::string key = string();
        require(':');
        each(key);
      } while (accept(','));
      require('}');
    }
    --depth_;
  }
  /// Reads an array and calls `each()` for each element, which reads it.
  template <class Each>
  void array(const Each& each) {
    enter('[', "an array in brackets");
    if (!accept(']')) {
      do {
        each();
      } while (accept(','));
      require(']');
    }
    --depth_;
  }

  /// Reads a text in quotes.
  [[nodiscard]] std::string string() {
    if (peek() != '"') {
      refuse_next("a text in quotes");
    }
    ++at_;
    std::string result;
    for (;;) {
      if (at_ >= text_.size()) {
        refuse("a text with a second quote", "the end of the header");
      }
      const char next = text_[at_];
      if (static_cast<unsigned char>(next) < 0x20U) {
        refuse("a text with escaped control characters", {"a control character at position ", at_, " of the header"});
      }
      ++at_;
      if (next == '"') {
        return result;
      }
      if (next == '\\') {
        escape(result);
      } else {
        result += next;
      }
    }
  }

  /// Reads a whole number from 0 to 2^64 - 1.
  [[nodiscard]] std::uint64_t whole_number() {
    (void)peek();
    const std::size_t begin = at_;
    std::uint64_t value = 0;
    if (!number(value)) {
      refuse("a whole number from 0 to 2^64 - 1", {"'", text_.substr(begin, std::min<std::size_t>(at_ - begin, 40)),
                                                   "' at position ", begin, " of the header"});
    }
    return value;
  }

  /// Reads null. False without consuming anything if the next value is not null.
  [[nodiscard]] bool accept_null() {
    if (peek() != 'n') {
      return false;
    }
    word("null");
    return true;
  }

  /// Reads and checks any value.
  void skip_value() {
    switch (peek()) {
      case '{':
        object([this](const std::string&) { skip_value(); });
        break;
      case '[':
        array([this] { skip_value(); });
        break;
      case '"':
        (void)string();
        break;
      case 't':
        word("true");
        break;
      case 'f':
        word("false");
        break;
      case 'n':
        word("null");
        break;
      default:
        std::uint64_t unused = 0;
        (void)number(unused);
    }
  }

  /// Checks that only spaces are left.
  void finish() {
    if (skip_spaces(); at_ < text_.size()) {
      refuse_next("the end of the header");
    }
  }

 private:
  static constexpr int most_levels = 127;  // of objects and arrays in each other, as serde_json limits it

  static constexpr bool is_digit(char each) noexcept { return each >= '0' && each <= '9'; }

  void skip_spaces() noexcept {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }
  bool accept(char expected) noexcept {
    skip_spaces();
    if (at_ >= text_.size() || text_[at_] != expected) {
      return false;
    }
    ++at_;
    return true;
  }
  void require(char expected) {
    if (!accept(expected)) {
      refuse_next({"'", std::string_view{&expected, 1}, "'"});
    }
  }
  void enter(char bracket, std::string_view expected) {
    if (!accept(bracket)) {
      refuse_next(expected);
    }
    if (++depth_ > most_levels) {
      refuse({"at most ", most_levels, " levels of braces and brackets"}, "more");
    }
  }
  void word(std::string_view expected) {
    if (!text_.substr(at_).starts_with(expected)) {
      refuse_next(expected);
    }
    at_ += expected.size();
  }

  /// The character at the current position, spaces included; 0 at the end.
  [[nodiscard]] char here() const noexcept { return at_ < text_.size() ? text_[at_] : '\0'; }

  void escape(std::string& to) {
    constexpr std::string_view escaped{"\"\\/bfnrt"};
    constexpr std::string_view meant{"\"\\/\b\f\n\r\t"};
    const char kind = here();
    if (const std::size_t which = kind == '\0' ? std::string_view::npos : escaped.find(kind);
        which != std::string_view::npos) {
      ++at_;
      to += meant[which];
      return;
    }
    if (kind != 'u') {
      refuse("one of the escapes \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u",
             {"another one at position ", at_ - 1, " of the header"});
    }
    ++at_;
    unsigned code = hexadecimal();
    const auto is_low = [](unsigned value) { return value >= 0xdc00U && value <= 0xdfffU; };
    if (is_low(code)) {
      refuse_surrogate();
    }
    if (code >= 0xd800U && code <= 0xdbffU) {
      if (!text_.substr(at_).starts_with("\\u")) {
        refuse_surrogate();
      }
      at_ += 2;
      const unsigned low = hexadecimal();
      if (!is_low(low)) {
        refuse_surrogate();
      }
      code = 0x10000U + ((code - 0xd800U) << 10U) + (low - 0xdc00U);
    }
    append_utf8(to, code);
  }
  [[noreturn]] void refuse_surrogate() const {
    refuse("surrogates in pairs", {"one of its own before position ", at_, " of the header"});
  }
  [[nodiscard]] unsigned hexadecimal() {
    unsigned value = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char each = here();
      const auto letter = static_cast<unsigned>(each | 0x20);
      if (is_digit(each)) {
        value = value * 16 + static_cast<unsigned>(each - '0');
      } else if (letter >= 'a' && letter <= 'f') {
        value = value * 16 + letter - 'a' + 10;
      } else {
        refuse("four hexadecimal digits behind \\u", {"another character at position ", at_, " of the header"});
      }
    }
    return value;
  }
  static void append_utf8(std::string& to, unsigned code) {
    const auto append = [&](unsigned byte) { to += static_cast<char>(static_cast<unsigned char>(byte)); };
    if (code < 0x80U) {
      append(code);
    } else if (code < 0x800U) {
      append(0xc0U | code >> 6U);
      append(0x80U | (code & 0x3fU));
    } else if (code < 0x10000U) {
      append(0xe0U | code >> 12U);
      append(0x80U | (code >> 6U & 0x3fU));
      append(0x80U | (code & 0x3fU));
    } else {
      append(0xf0U | code >> 18U);
      append(0x80U | (code >> 12U & 0x3fU));
      append(0x80U | (code >> 6U & 0x3fU));
      append(0x80U | (code & 0x3fU));
    }
  }

  /// Appends the digit here to a number; false without consuming it if the result were larger than 2^64 - 1.
  bool append_digit(std::uint64_t& number) noexcept {
    constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    const auto digit = static_cast<std::uint64_t>(here() - '0');
    if (number > (most - digit) / 10) {
      return false;
    }
    number = 10 * number + digit;
    ++at_;
    return true;
  }

  /// Reads any number. True if it is a whole number from 0 to 2^64 - 1, without sign, fraction and exponent. A number
  /// that is not finite in double precision is refused; it is rounded as serde_json rounds it.
  [[nodiscard]] bool number(std::uint64_t& value) {
    if (peek() != '-' && !is_digit(here())) {
      refuse_next("a value");
    }
    const bool negative = accept('-');
    std::uint64_t significand = 0;
    std::int64_t exponent = 0;
    bool whole = true;
    if (!is_digit(here())) {
      refuse_number();
    }
    if (here() == '0') {
      ++at_;
      if (is_digit(here())) {
        refuse_number();
      }
    }
    while (is_digit(here())) {
      if (!whole || !append_digit(significand)) {
        whole = false;
        ++exponent;
        ++at_;
      }
    }
    if (here() == '.') {
      whole = false;
      ++at_;
      if (!is_digit(here())) {
        refuse_number();
      }
      bool appends = true;
      while (is_digit(here())) {
        appends = appends && append_digit(significand);
        if (appends) {
          --exponent;
        } else {
          ++at_;
        }
      }
    }
    if (here() == 'e' || here() == 'E') {
      whole = false;
      ++at_;
      read_exponent(exponent);
    }
    if (!whole && !fits_double(significand, exponent)) {
      refuse("numbers that fit into double precision", {"a larger one before position ", at_, " of the header"});
    }
    value = significand;
    return whole && !negative;
  }
  void read_exponent(std::int64_t& exponent) {
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() / 4;
    const bool minus = here() == '-';
    if (minus || here() == '+') {
      ++at_;
    }
    if (!is_digit(here())) {
      refuse_number();
    }
    std::int64_t digits = 0;
    for (; is_digit(here()); ++at_) {
      digits = std::min(10 * std::min(digits, most / 10) + (here() - '0'), most);
    }
    exponent += minus ? -digits : digits;
  }
  [[noreturn]] void refuse_number() { refuse_next("a number as JSON writes it"); }
  static bool fits_double(std::uint64_t significand, std::int64_t exponent) {
    if (significand == 0 || exponent <= 0) {
      return true;
    }
    if (exponent > std::numeric_limits<double>::max_exponent10) {
      return false;
    }
    const std::string power = gradus::join({"1e", static_cast<long long>(exponent)});
    return is_finite(static_cast<double>(significand) *
                     read_number(power).value_or(std::numeric_limits<double>::infinity()));
  }

  std::string_view operation_;
  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace gradus::io::detail

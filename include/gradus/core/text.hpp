// SPDX-License-Identifier: BSL-1.0
//
// Builds the texts of messages from pieces.
#pragma once

#include <cstddef>           // std::size_t
#include <initializer_list>  // std::initializer_list
#include <string>            // std::string
#include <string_view>       // std::string_view

#include "gradus/core/compiled.hpp"
#include "gradus/core/format.hpp"

namespace gradus {

/// A piece of a message: a text or a number. It refers to the text, so use it only within one expression.
class text_piece {
 public:
  /// A text or a number.
  constexpr text_piece(std::string_view text) noexcept
      : kind_{kind::characters}, characters_{text.data(), text.size()} {}
  /// A text that ends with a null character.
  constexpr text_piece(const char* text) noexcept : text_piece{std::string_view{text}} {}
  /// A text.
  text_piece(const std::string& text) noexcept : text_piece{std::string_view{text}} {}
  /// A number in decimal digits.
  constexpr text_piece(int value) noexcept : text_piece{static_cast<long long>(value)} {}
  /// A number in decimal digits.
  constexpr text_piece(long value) noexcept : text_piece{static_cast<long long>(value)} {}
  /// A number in decimal digits.
  constexpr text_piece(long long value) noexcept : kind_{kind::with_sign}, with_sign_{value} {}
  /// A number in decimal digits.
  constexpr text_piece(unsigned value) noexcept : text_piece{static_cast<unsigned long long>(value)} {}
  /// A number in decimal digits.
  constexpr text_piece(unsigned long value) noexcept : text_piece{static_cast<unsigned long long>(value)} {}
  /// A number in decimal digits.
  constexpr text_piece(unsigned long long value) noexcept : kind_{kind::without_sign}, without_sign_{value} {}
  /// The fewest digits that are read as the same number, so different numbers have different texts: 0.1, 64, 1e-09.
  constexpr text_piece(double value) noexcept : kind_{kind::real}, real_{value} {}
  /// The same for a float.
  constexpr text_piece(float value) noexcept : kind_{kind::single}, single_{value} {}
  text_piece(char) = delete;  // it would convert to a number
  text_piece(bool) = delete;

  /// Appends the text or the digits of the number.
  void append_to(std::string& text) const;

 private:
  enum class kind : unsigned char { characters, with_sign, without_sign, real, single };
  struct characters {
    const char* begin;
    std::size_t size;
  };
  kind kind_;
  union {
    characters characters_;
    long long with_sign_;
    unsigned long long without_sign_;
    double real_;
    float single_;
  };
};

/// Appends the pieces to a text.
GRADUS_COLD inline void append_text(std::string& to, std::initializer_list<text_piece> pieces) {
  for (const text_piece& each : pieces) {
    each.append_to(to);
  }
}

/// Appends `piece`, and spaces up to `width` characters.
inline void append_left(std::string& to, std::string_view piece, std::size_t width) {
  to.append(piece).append(piece.size() < width ? width - piece.size() : 0, ' ');
}
/// Appends spaces, so that `piece` ends after `width` characters, and `piece`.
inline void append_right(std::string& to, std::string_view piece, std::size_t width) {
  to.append(piece.size() < width ? width - piece.size() : 0, ' ').append(piece);
}

/// A part of an error message: a text, or pieces in braces: {"rank ", 3, " of ", size}. It refers to them, so use it
/// only within one expression. It is as small as a std::string_view, and the code that throws builds no text.
class message_part {
 public:
  /// No text.
  constexpr message_part() noexcept = default;
  /// A text.
  constexpr message_part(std::string_view text) noexcept : begin_{text.data()}, size_{text.size()} {}
  /// A text that ends with a null character.
  constexpr message_part(const char* text) noexcept
      : message_part(std::string_view{text}) {}  // braces would make pieces
  /// A text.
  message_part(const std::string& text) noexcept : message_part(std::string_view{text}) {}
  /// Pieces.
  constexpr message_part(std::initializer_list<text_piece> pieces) noexcept
      : begin_{pieces.begin()}, size_{pieces.size() | of_pieces} {}

  /// True for an empty text.
  [[nodiscard]] constexpr bool empty() const noexcept { return size_ == 0; }

  /// Appends the text or the pieces.
  void append_to(std::string& text) const;

 private:
  static constexpr std::size_t of_pieces = ~(~std::size_t{0} >> 1U);  // the highest bit of the size

  const void* begin_ = nullptr;
  std::size_t size_ = 0;
};

/// Joins the pieces into one text: join({"rank ", 3, " of ", size}). It is one function for all kinds of pieces: chains
/// of + and std::to_string in messages generate more code than the work around them.
[[nodiscard]] inline std::string join(std::initializer_list<text_piece> pieces) {
  std::string joined;
  append_text(joined, pieces);
  return joined;
}

/// A text that is safe for a terminal: control characters except newlines and tabs are written as `\x1b`. File names
/// can contain control characters, and a terminal obeys them.
[[nodiscard]] std::string printable(std::string_view from);

}  // namespace gradus

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus {

GRADUS_COLD GRADUS_INLINE void text_piece::append_to(std::string& text) const {
  char digits[40];
  switch (kind_) {
    case kind::characters:
      text.append(characters_.begin, characters_.size);
      break;
    case kind::with_sign:
      text.append(digits, static_cast<std::size_t>(format_text(digits, sizeof(digits), "%lld", with_sign_)));
      break;
    case kind::without_sign:
      text.append(digits, static_cast<std::size_t>(format_text(digits, sizeof(digits), "%llu", without_sign_)));
      break;
    case kind::real:
      text.append(digits, format_shortest(digits, sizeof(digits), real_));
      break;
    case kind::single:
      text.append(digits, format_shortest(digits, sizeof(digits), single_));
      break;
  }
}

GRADUS_COLD GRADUS_INLINE void message_part::append_to(std::string& text) const {
  if ((size_ & of_pieces) == 0) {
    text.append(static_cast<const char*>(begin_), size_);
    return;
  }
  const auto* const pieces = static_cast<const text_piece*>(begin_);
  for (std::size_t i = 0; i < (size_ & ~of_pieces); ++i) {
    pieces[i].append_to(text);
  }
}

GRADUS_COLD GRADUS_INLINE std::string printable(std::string_view from) {
  std::string result;
  result.reserve(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto byte = static_cast<unsigned char>(from[i]);
    const auto next = static_cast<unsigned char>(i + 1 < from.size() ? from[i + 1] : ' ');
    // In UTF-8 the 8-bit control characters are 0xc2 0x80 to 0xc2 0x9f.
    const bool pair = byte == 0xc2U && next >= 0x80U && next < 0xa0U;
    if (pair || byte == 0x7fU || (byte < 0x20U && byte != '\n' && byte != '\t')) {
      char code[8];
      format_text(code, sizeof(code), "\\x%02x", static_cast<unsigned>(pair ? next : byte));
      result += code;
      i += pair ? 1 : 0;
    } else {
      result += from[i];
    }
  }
  return result;
}

}  // namespace gradus
#endif

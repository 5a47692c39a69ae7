// SPDX-License-Identifier: BSL-1.0
//
// Numbers as text and back, whatever the locale is. The functions of C and the streams of C++ write and read a decimal
// comma, or points between thousands, where a program has set such a locale.
#pragma once

#include <charconv>      // std::chars_format, std::from_chars, std::to_chars, std::to_chars_result
#include <cstdarg>       // std::va_list
#include <cstddef>       // std::ptrdiff_t, std::size_t
#include <cstdint>       // std::intmax_t, std::uintmax_t
#include <cstdio>        // std::FILE, std::fwrite
#include <cstring>       // std::memcpy, std::strchr, std::strlen
#include <optional>      // std::optional
#include <string>        // std::string
#include <string_view>   // std::string_view
#include <system_error>  // std::errc

#include "gradus/core/compiled.hpp"

namespace gradus {

namespace detail {

/// Writes as std::vsnprintf does in the locale "C": at most `size` characters with a null character at the end.
/// Returns the length of the whole text.
std::size_t format_arguments(char* to, std::size_t size, const char* format, std::va_list arguments);

}  // namespace detail

/// Writes numbers and texts like std::snprintf in the locale "C", whatever the locale is: d, i, u, x, e, f, g, c and s
/// with width, precision (of f, e and g at most 190), the flags `-`, `0`, `+` and space, and the types h, l, ll, j, z
/// and t. At most `size` characters are written, the last one null. Returns the length of the whole text. It allocates
/// nothing.
int format_text(char* to, std::size_t size, const char* format, ...);

/// Writes the fewest digits that are read as the same float or double: 64, 0.1, 1e-09, inf. There is room for 24
/// characters; no null character is written. Returns the number of characters.
template <class Real>
std::size_t format_shortest(char* to, std::size_t size, Real value) {
  const Real magnitude = value < 0 ? -value : value;
  const bool fixed = magnitude == 0 || (magnitude >= Real(1e-4) && magnitude < Real(1e15));  // 100000, not 1e+05
  const std::to_chars_result written =
      fixed ? std::to_chars(to, to + size, value, std::chars_format::fixed) : std::to_chars(to, to + size, value);
  return static_cast<std::size_t>(written.ptr - to);
}

/// Writes to a file like std::fprintf, with the conversions of format_text. Returns the number of characters, or a
/// negative number if not all of them could be written.
int print_text(std::FILE* file, const char* format, ...);

/// The number that all of the text is, as std::strtod reads it in the locale "C", but without spaces, `+` and
/// hexadecimal digits. Nothing if the text is something else or no double is near it.
[[nodiscard]] inline std::optional<double> read_number(std::string_view text) {
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  return problem == std::errc{} && end == text.data() + text.size() ? std::optional{value} : std::nullopt;
}

}  // namespace gradus

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::detail {

GRADUS_INLINE std::size_t format_arguments(char* to, std::size_t size, const char* format, std::va_list arguments) {
  std::size_t length = 0;
  const auto put = [&](const char* from, std::size_t count) {
    if (length + 1 < size) {
      std::memcpy(to + length, from, count < size - 1 - length ? count : size - 1 - length);
    }
    length += count;
  };
  const auto fill = [&](char with, std::ptrdiff_t count) {
    for (; count > 0; --count) {
      put(&with, 1);
    }
  };
  for (const char* next = format; *next != '\0'; ++next) {
    if (*next != '%') {
      put(next, 1);
      continue;
    }
    bool left = false;
    bool zeros = false;
    char plus = '\0';  // what stands before a number that is not negative
    for (++next; *next != '\0' && std::strchr("-0+ ", *next) != nullptr; ++next) {
      left |= *next == '-';
      zeros |= *next == '0';
      plus = *next == '+' || (*next == ' ' && plus == '\0') ? *next : plus;
    }
    const auto number = [&] {
      if (*next == '*') {
        ++next;
        return va_arg(arguments, int);
      }
      int value = 0;
      for (; *next >= '0' && *next <= '9'; ++next) {
        value = 10 * value + (*next - '0');
      }
      return value;
    };
    int width = number();
    if (width < 0) {
      left = true;
      width = -width;
    }
    int precision = -1;
    if (*next == '.') {
      ++next;
      precision = number();
    }
    int longs = 0;  // 1 for long, 2 for long long, 3 for the types of sizes and differences
    for (; *next != '\0' && std::strchr("hljztL", *next) != nullptr; ++next) {
      longs = *next == 'l' ? longs + 1 : *next == 'h' || *next == 'L' ? longs : 3;
    }
    char digits[512];  // the largest double has 309 digits before the point
    const char* begin = digits;
    std::size_t count = 0;
    bool negative = false;
    bool numeric = true;
    const auto take = [&](std::to_chars_result written) { count = static_cast<std::size_t>(written.ptr - digits); };
    switch (*next) {
      case 'd':
      case 'i': {
        const std::intmax_t value = longs == 0   ? va_arg(arguments, int)
                                    : longs == 1 ? va_arg(arguments, long)
                                    : longs == 2 ? va_arg(arguments, long long)
                                                 : va_arg(arguments, std::ptrdiff_t);
        negative = value < 0;
        const auto bits = static_cast<std::uintmax_t>(value);
        take(std::to_chars(digits, digits + sizeof(digits), negative ? 0 - bits : bits));
        break;
      }
      case 'u':
      case 'x': {
        const std::uintmax_t value = longs == 0   ? va_arg(arguments, unsigned)
                                     : longs == 1 ? va_arg(arguments, unsigned long)
                                     : longs == 2 ? va_arg(arguments, unsigned long long)
                                                  : va_arg(arguments, std::size_t);
        take(std::to_chars(digits, digits + sizeof(digits), value, *next == 'x' ? 16 : 10));
        plus = '\0';
        break;
      }
      case 'e':
      case 'f':
      case 'g': {
        const double value = va_arg(arguments, double);
        const auto how = *next == 'e'   ? std::chars_format::scientific
                         : *next == 'f' ? std::chars_format::fixed
                                        : std::chars_format::general;
        take(std::to_chars(digits, digits + sizeof(digits), value, how,
                           precision < 0     ? 6
                           : precision < 190 ? precision
                                             : 190));
        negative = digits[0] == '-';
        begin += negative ? 1 : 0;
        count -= negative ? 1 : 0;
        zeros = zeros && *begin >= '0' && *begin <= '9';  // not for inf and nan
        break;
      }
      case 'c':
        digits[0] = static_cast<char>(va_arg(arguments, int));
        count = 1;
        numeric = false;
        break;
      case 's':
        begin = va_arg(arguments, const char*);
        numeric = false;
        if (precision < 0) {
          count = std::strlen(begin);
        } else {
          for (; count < static_cast<std::size_t>(precision) && begin[count] != '\0'; ++count) {
          }
        }
        break;
      case '\0':
        --next;
        continue;
      default:
        put(next, 1);
        continue;
    }
    const char sign = !numeric ? '\0' : negative ? '-' : plus;
    const std::ptrdiff_t rest =
        width - static_cast<std::ptrdiff_t>(count) - (sign != '\0' ? 1 : 0);  // what is left of the width
    const bool zero_filled = numeric && zeros && !left;
    fill(' ', left || zero_filled ? 0 : rest);
    if (sign != '\0') {
      put(&sign, 1);
    }
    fill('0', zero_filled ? rest : 0);
    put(begin, count);
    fill(' ', left ? rest : 0);
  }
  if (size > 0) {
    to[length < size ? length : size - 1] = '\0';
  }
  return length;
}

}  // namespace gradus::detail

namespace gradus {

[[gnu::format(printf, 3, 4)]] GRADUS_INLINE int format_text(char* to, std::size_t size, const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  const std::size_t length = detail::format_arguments(to, size, format, arguments);
  va_end(arguments);
  return static_cast<int>(length);
}

[[gnu::format(printf, 2, 3)]] GRADUS_INLINE int print_text(std::FILE* file, const char* format, ...) {
  char text[1024];
  std::string longer;
  std::va_list arguments;
  va_start(arguments, format);
  std::va_list again;
  va_copy(again, arguments);
  const std::size_t length = detail::format_arguments(text, sizeof(text), format, arguments);
  if (length >= sizeof(text)) {
    longer.resize(length + 1);
    detail::format_arguments(longer.data(), longer.size(), format, again);
  }
  va_end(again);
  va_end(arguments);
  const char* from = length < sizeof(text) ? text : longer.data();
  return std::fwrite(from, 1, length, file) == length ? static_cast<int>(length) : -1;
}

}  // namespace gradus
#endif

// SPDX-License-Identifier: BSL-1.0
//
// Numbers as text of one width, by the rules of numpy.array2string.
#pragma once

#include <algorithm>    // std::max, std::min
#include <charconv>     // std::from_chars
#include <cmath>        // std::abs
#include <concepts>     // std::integral, std::same_as
#include <cstddef>      // std::size_t
#include <cstdlib>      // std::atoi
#include <string>       // std::string, std::to_string
#include <type_traits>  // std::conditional_t
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/format.hpp"

namespace gradus::detail {

/// A number as text: "-1.5" has the whole part "-1" and the fraction "5". Other texts have only a whole part.
struct number_text {
  std::string whole;
  std::string fraction;
  std::string exponent;  // with its sign, if there is one
  bool finite = true;
};

/// A finite or other number as a double, and the number of digits that no other element shares.
struct printed_number {
  double value;
  int digits;
};

/// The fewest significant digits that give the same element back.
template <class Element>
[[nodiscard]] int shortest_digits(Element x) {
  using computed = std::conditional_t<std::same_as<Element, double>, double, float>;
  char text[32];
  for (int digits = 1; digits < 17; ++digits) {
    const int size = format_text(text, sizeof(text), "%.*e", digits - 1, static_cast<double>(x));
    computed read = 0;  // what rounds to no number stays 0
    std::from_chars(text, text + size, read);
    if (static_cast<computed>(static_cast<Element>(read)) == static_cast<computed>(x)) {
      return digits;
    }
  }
  return 17;
}

[[nodiscard]] inline std::string formatted(const char* format, int precision, double value) {
  char text[400];  // enough for the largest double
  format_text(text, sizeof(text), format, precision, value);
  return text;
}

/// Splits "-1.50e+07" and drops the zeros at the end of the fraction if they are not `kept`.
[[nodiscard]] inline number_text split_number(const std::string& text, bool kept) {
  number_text result;
  const std::size_t power = std::min(text.find('e'), text.size());
  const std::size_t point = std::min(text.find('.'), power);
  result.whole = text.substr(0, point);
  result.fraction = point < power ? text.substr(point + 1, power - point - 1) : "";
  result.exponent = power < text.size() ? text.substr(power + 1) : "";
  while (!kept && result.fraction.ends_with('0')) {
    result.fraction.pop_back();
  }
  return result;
}

/// The numbers with at most `precision` digits after the decimal point, all of one width. `scientific` writes
/// exponents.
[[nodiscard]] inline std::vector<std::string> real_texts(const std::vector<printed_number>& numbers, int precision,
                                                         bool scientific) {
  // A number is written with as many digits as tell it from other elements, at most `precision` in the fraction.
  const auto write = [&](const printed_number& number, int most, bool padded) {
    if (!is_finite(number.value)) {
      number_text text;
      text.whole = number.value != number.value ? "nan" : number.value < 0 ? "-inf" : "inf";
      text.finite = false;
      return text;
    }
    if (scientific) {
      return split_number(formatted("%.*e", padded ? most : std::min(most, number.digits - 1), number.value), padded);
    }
    const std::string exponent = formatted("%.*e", number.digits - 1, number.value);
    const int power = std::atoi(exponent.c_str() + exponent.find('e') + 1);
    const int fraction = std::max(0, number.digits - 1 - power);
    // Digits of a whole number that are not needed to tell it from other elements are zeros.
    const double value = power >= number.digits ? read_number(exponent).value_or(number.value) : number.value;
    return split_number(formatted("%.*f", std::min(most, fraction), value), false);
  };
  int widest = precision;
  if (scientific) {
    widest = 0;
    for (const auto& number : numbers) {
      widest = std::max(widest, static_cast<int>(write(number, precision, false).fraction.size()));
    }
  }
  std::vector<number_text> texts;
  std::size_t left = 0;
  std::size_t right = 0;
  std::size_t exponent = 0;
  for (const auto& number : numbers) {
    texts.push_back(write(number, widest, scientific));
    if (texts.back().finite) {
      left = std::max(left, texts.back().whole.size());
      right = std::max(right, texts.back().fraction.size());
      exponent = std::max(exponent, texts.back().exponent.size());
    }
  }
  const std::size_t behind = 1 + right + (exponent > 0 ? 1 + exponent : 0);  // the point and what follows it
  for (const auto& text : texts) {
    if (!text.finite) {
      left = std::max(left, text.whole.size() > behind ? text.whole.size() - behind : 0);
    }
  }
  std::vector<std::string> result;
  for (const auto& text : texts) {
    std::string line;
    if (!text.finite) {
      line.append(left + behind - text.whole.size(), ' ').append(text.whole);
    } else {
      line.append(left - text.whole.size(), ' ').append(text.whole).append(".").append(text.fraction);
      if (exponent > 0) {
        const std::string digits = text.exponent.substr(1);
        line.append("e").append(text.exponent, 0, 1).append(exponent - 1 - digits.size(), '0').append(digits);
      } else {
        line.append(right - text.fraction.size(), ' ');
      }
    }
    result.push_back(std::move(line));
  }
  return result;
}

/// The power of ten from which NumPy writes exponents: 10^8, or less where an element has fewer decimal digits.
template <class Element>
[[nodiscard]] double exponent_limit() {
  if constexpr (std::same_as<Element, double>) {
    return 1e8;
  } else {
    int bits = 0;  // of the fraction
    for (float step = 0.5F; static_cast<float>(static_cast<Element>(1.0F + step)) != 1.0F; step /= 2) {
      ++bits;
    }
    double limit = 1;
    for (int digit = static_cast<int>(bits * 0.30103); digit > 0; --digit) {
      limit *= 10;
    }
    return limit;
  }
}

/// True if NumPy writes these elements with exponents.
template <class Element>
[[nodiscard]] bool needs_exponents(const std::vector<Element>& values) {
  const auto rounded = [](double value) {  // NumPy computes in the element type
    if constexpr (std::same_as<Element, double>) {
      return value;
    } else {
      return static_cast<double>(static_cast<Element>(static_cast<float>(value)));
    }
  };
  double largest = 0;
  double smallest = 0;
  for (const Element& value : values) {
    const double size = std::abs(static_cast<double>(value));
    if (size != 0 && is_finite(size)) {
      largest = std::max(largest, size);
      smallest = smallest == 0 ? size : std::min(smallest, size);
    }
  }
  return largest != 0 &&
         (largest >= exponent_limit<Element>() || smallest < rounded(1e-4) || rounded(largest / smallest) > 1000.0);
}

/// Puts spaces in front of the texts, so that all have the width of the longest.
inline void align_right(std::vector<std::string>& texts) {
  std::size_t width = 0;
  for (const auto& text : texts) {
    width = std::max(width, text.size());
  }
  for (auto& text : texts) {
    text.insert(0, width - text.size(), ' ');
  }
}

/// The elements as text, all of one width.
template <class Element>
[[nodiscard]] std::vector<std::string> element_texts(const std::vector<Element>& values, int precision) {
  if constexpr (std::integral<Element>) {
    std::vector<std::string> texts;
    for (const auto value : values) {
      texts.push_back(std::to_string(value));
    }
    align_right(texts);
    return texts;
  } else {
    std::vector<printed_number> numbers;
    for (const Element& value : values) {
      const auto number = static_cast<double>(value);
      numbers.push_back({number, is_finite(number) ? shortest_digits(value) : 0});
    }
    return real_texts(numbers, precision, needs_exponents(values));
  }
}

}  // namespace gradus::detail

// SPDX-License-Identifier: BSL-1.0
//
// What drawings in SVG share.
#pragma once

#include <cmath>
#include <string>

#include "gradus/core/format.hpp"

namespace driver {

/// Pixels of a drawing, and of the margins around what it shows.
namespace drawing {
inline constexpr double width = 640;
inline constexpr double height = 420;
inline constexpr double left = 80;
inline constexpr double right = 20;
inline constexpr double top = 40;
inline constexpr double bottom = 50;
}  // namespace drawing

/// 1, 2 or 5 times a power of ten, so that some five of them make `largest`.
inline double tick_of(double largest) {
  const double power = std::pow(10.0, std::floor(std::log10(largest / 5)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= largest / 5) {
      return factor * power;
    }
  }
  return 10 * power;
}

inline std::string format(const char* pattern, auto... values) {
  char text[400];
  gradus::format_text(text, sizeof(text), pattern, values...);
  return text;
}

inline std::string escaped(const std::string& text) {
  std::string result;
  for (const char each : text) {
    result += each == '<' ? "&lt;" : each == '&' ? "&amp;" : std::string(1, each);
  }
  return result;
}

/// The beginning of a drawing, with its title.
inline std::string begin_drawing(double tall, const std::string& title) {
  return format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" width=\"%g\" height=\"%g\" "
             "font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%%\" height=\"100%%\" "
             "fill=\"white\"/>\n",
             drawing::width, tall, drawing::width, tall) +
         format("<text x=\"%g\" y=\"24\" font-size=\"16\">", drawing::left) + escaped(title) + "</text>\n";
}

}  // namespace driver

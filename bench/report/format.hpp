// SPDX-License-Identifier: BSL-1.0
//
// Times, bytes and shares as people read them.
#pragma once

#include <cmath>    // std::abs
#include <cstdint>  // std::int64_t
#include <cstdio>   // std::snprintf
#include <string>   // std::string

#include "gradus/core/format.hpp"

namespace gradus::report {

/// Three digits that count, without an exponent: 1.23, 12.3, 123, 1234.
inline std::string format_number(double value) {
  char digits[400];
  const double size = std::abs(value);
  gradus::format_text(digits, sizeof digits, size >= 99.95 ? "%.0f" : size >= 9.995 ? "%.1f" : "%.2f", value);
  return digits;
}

/// @param microseconds  "820 us", "12.3 ms", "4.56 s"
inline std::string format_time(double microseconds) {
  return microseconds >= 999'500 ? format_number(microseconds / 1e6) + " s"
         : microseconds >= 999.5 ? format_number(microseconds / 1e3) + " ms"
                                 : format_number(microseconds) + " us";
}

/// Decimal units, as networks are sold: "3.00 GB".
inline std::string format_bytes(double bytes) {
  return bytes >= 999.5e6   ? format_number(bytes / 1e9) + " GB"
         : bytes >= 999.5e3 ? format_number(bytes / 1e6) + " MB"
         : bytes >= 999.5   ? format_number(bytes / 1e3) + " kB"
                            : format_number(bytes) + " bytes";
}

/// "41 %"; below 10 % with one digit more.
inline std::string format_share(double share) {
  char digits[400];
  gradus::format_text(digits, sizeof digits, share >= 0.0995 || share == 0 ? "%.0f %%" : "%.1f %%", 100 * share);
  return digits;
}

/// "1 evaluation", "2 evaluations"
inline std::string format_count(std::int64_t count, const std::string& thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

}  // namespace gradus::report

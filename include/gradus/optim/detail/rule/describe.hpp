// SPDX-License-Identifier: BSL-1.0
//
// Short texts that identify a rule or a schedule.
#pragma once

#include <initializer_list>  // std::initializer_list
#include <string>            // std::string
#include <string_view>       // std::string_view

#include "gradus/core/compiled.hpp"
#include "gradus/core/format.hpp"

namespace gradus::optim::detail {

/// "name(a, b)" with the fewest digits that identify each number, so that different values have different descriptions.
std::string describe(std::string_view name, std::initializer_list<double> values);

}  // namespace gradus::optim::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::optim::detail {

GRADUS_COLD GRADUS_INLINE std::string describe(std::string_view name, std::initializer_list<double> values) {
  std::string text{name};
  text.append("(");
  const char* separator = "";
  for (const double value : values) {
    char digits[40];
    int precision = 1;
    do {
      format_text(digits, sizeof(digits), "%.*g", precision, value);
    } while (read_number(digits) != value && precision++ < 17);
    text.append(separator).append(digits);
    separator = ", ";
  }
  return text.append(")");
}

}  // namespace gradus::optim::detail
#endif

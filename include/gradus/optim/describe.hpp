// SPDX-License-Identifier: BSL-1.0
//
// Short texts that tell one rule or schedule from another.
// Module: optim. Depends on: std.
#pragma once

#include <cstdio>            // std::snprintf
#include <initializer_list>  // std::initializer_list
#include <string>            // std::string
#include <string_view>       // std::string_view

#include "gradus/core/config.hpp"  // GRADUS_COLD

namespace gradus::optim::detail {

/// "name(a, b)" with numbers in full precision, so that what differs has descriptions that differ.
GRADUS_COLD inline std::string describe(std::string_view name, std::initializer_list<double> values) {
  std::string text{name};
  text.append("(");
  const char* separator = "";
  for (const double value : values) {
    char digits[40];
    std::snprintf(digits, sizeof(digits), "%s%.17g", separator, value);
    text.append(digits);
    separator = ", ";
  }
  return text.append(")");
}

}  // namespace gradus::optim::detail

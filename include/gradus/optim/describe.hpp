// SPDX-License-Identifier: BSL-1.0
//
// Short texts that tell one rule or schedule from another.
// Module: optim. Depends on: std.
#pragma once

#include <initializer_list>  // std::initializer_list
#include <sstream>           // std::ostringstream
#include <string>            // std::string
#include <string_view>       // std::string_view

namespace gradus::optim::detail {

/// "name(a, b)" with numbers in full precision, so that what differs has descriptions that differ.
inline std::string describe(std::string_view name, std::initializer_list<double> values) {
  std::ostringstream text;
  text.precision(17);
  text << name << '(';
  const char* separator = "";
  for (const double value : values) {
    text << separator << value;
    separator = ", ";
  }
  text << ')';
  return text.str();
}

}  // namespace gradus::optim::detail

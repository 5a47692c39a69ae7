// SPDX-License-Identifier: BSL-1.0
//
// The name of this machine.
#pragma once

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>  // gethostname
#endif

#include <string>  // std::string

#include "gradus/core/config.hpp"

namespace gradus {

/// The name of this machine, as gethostname gives it, or "localhost".
[[nodiscard]] inline std::string host_name() {
#if defined(__unix__) || defined(__APPLE__)
  char text[256] = {};
  if (::gethostname(text, sizeof(text) - 1) == 0 && text[0] != '\0') {
    return text;
  }
#endif
  return "localhost";
}

}  // namespace gradus

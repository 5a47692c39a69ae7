// SPDX-License-Identifier: BSL-1.0
//
// What programs say of exceptions.
#pragma once

#include <sys/resource.h>  // getrlimit

#include <cstdio>
#include <exception>
#include <fstream>
#include <locale>
#include <new>
#include <string>

#include "gradus/core/format.hpp"
#include "gradus/core/text.hpp"

namespace program {

/// Memory of this process as the system counts it, in MiB: "VmRSS" what it holds, "VmSize" what it has mapped. 0 where
/// that cannot be found out.
[[nodiscard]] inline double mebibytes_of_process(const std::string& which) {
  std::ifstream status{"/proc/self/status"};
  status.imbue(std::locale::classic());
  for (std::string word; status >> word;) {
    if (word == which + ":") {
      double kibibytes = 0;
      status >> kibibytes;
      return kibibytes / 1024;
    }
  }
  return 0;
}

/// what() of an exception, without control characters; of one that has only a name, what a user can make of it.
[[nodiscard]] inline std::string describe(const std::exception& failure) {
  if (dynamic_cast<const std::bad_alloc*>(&failure) == nullptr) {
    return gradus::printable(failure.what());
  }
  char text[300];
  int length =
      gradus::format_text(text, sizeof(text), "out of memory: the process holds %.0f MiB and has mapped %.0f MiB",
                          mebibytes_of_process("VmRSS"), mebibytes_of_process("VmSize"));
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    length +=
        gradus::format_text(text + length, sizeof(text) - static_cast<std::size_t>(length),
                            " of the %.0f MiB that ulimit -v allows", static_cast<double>(limit.rlim_cur) / 1048576);
  }
  return std::string(text, static_cast<std::size_t>(length)) + " (" + failure.what() + ")";
}

}  // namespace program

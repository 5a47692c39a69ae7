// SPDX-License-Identifier: BSL-1.0
//
// The end of a program that prints: has all of it been written?
#pragma once

#include <cerrno>   // errno
#include <cstdio>   // std::ferror, std::fflush, std::fprintf
#include <cstring>  // std::strerror

#include "gradus/core/config.hpp"

namespace gradus {

/// Writes what standard output still holds, for the end of main: a full disk shows when the text is written, not when
/// it is printed.
///
/// @code
///   int main() { return gradus::close_output("my_program", run()); }
/// @endcode
///
/// @param program  its name, for the message
/// @param status   what the program returns
/// @return the status; 1 instead of 0, with a message on standard error, where not all that was printed could be
/// written
[[nodiscard]] GRADUS_COLD inline int close_output(const char* program, int status) noexcept {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) {
    return status;
  }
  std::fprintf(stderr, "%s: not all of the output could be written: %s\n", program,
               errno != 0 ? std::strerror(errno) : "an earlier write failed");
  return status == 0 ? 1 : status;
}

}  // namespace gradus

// SPDX-License-Identifier: BSL-1.0
//
// The end of a program that prints: checks that all output has been written.
#pragma once

#include <cerrno>   // errno
#include <cstdio>   // std::ferror, std::fflush, std::fprintf
#include <cstring>  // std::strerror

#include "gradus/core/compiled.hpp"

namespace gradus {

/// Flushes standard output at the end of main. A full disk shows when the text is written, not when it is printed.
///
/// @code
///   int main() { return gradus::close_output("my_program", run()); }
/// @endcode
///
/// @param program  the name of the program, for the message
/// @param status   the exit status of the program
/// @return `status`; if some of the output could not be written, prints a message to standard error and returns 1
/// instead of 0
[[nodiscard]] int close_output(const char* program, int status) noexcept;

}  // namespace gradus

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus {

GRADUS_INLINE int close_output(const char* program, int status) noexcept {
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
#endif

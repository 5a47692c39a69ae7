// SPDX-License-Identifier: BSL-1.0
//
// What a function writes to the standard error output.
#pragma once

#include <unistd.h>  // dup, dup2

#include <cstdio>   // std::fflush, std::tmpfile
#include <string>   // std::string
#include <utility>  // std::forward

namespace gradus_test {

/// Calls function(), and returns what this process writes to the standard error output meanwhile.
template <class Function>
std::string standard_error_of(Function&& function) {
  std::FILE* const file = std::tmpfile();
  std::fflush(stderr);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(::fileno(file), STDERR_FILENO);
  const auto restore = [&] {
    std::fflush(stderr);
    ::dup2(before, STDERR_FILENO);
    ::close(before);
  };
  try {
    std::forward<Function>(function)();
  } catch (...) {
    restore();
    std::fclose(file);
    throw;
  }
  restore();
  std::rewind(file);
  std::string text;
  for (int each = 0; (each = std::fgetc(file)) != EOF;) {
    text.push_back(static_cast<char>(each));
  }
  std::fclose(file);
  return text;
}

}  // namespace gradus_test

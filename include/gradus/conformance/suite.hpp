// SPDX-License-Identifier: BSL-1.0
//
// Common parts of the conformance suites: checks that throw, named cases, and a report of failures.
#pragma once

#include <cstddef>          // std::size_t
#include <cstdio>           // std::fprintf, std::printf
#include <exception>        // std::exception
#include <source_location>  // std::source_location
#include <stdexcept>        // std::logic_error
#include <string>           // std::string, std::to_string
#include <string_view>      // std::string_view
#include <vector>           // std::vector

#include "gradus/core/config.hpp"

namespace gradus::conformance {

/// Throws std::logic_error if a check does not hold. (Macros of test frameworks work only on the main thread.)
inline void require(bool holds, std::string_view what, std::source_location where = std::source_location::current()) {
  if (!holds) {
    const std::string_view path{where.file_name()};
    throw std::logic_error{"check failed at " + std::string{path.substr(path.rfind('/') + 1)} + ":" +
                           std::to_string(where.line()) + ": " + std::string{what}};
  }
}

/// Throws std::logic_error if `text` does not contain `part`.
inline void require_contains(std::string_view text, std::string_view part,
                             std::source_location where = std::source_location::current()) {
  require(text.find(part) != std::string_view::npos,
          "expected '" + std::string{part} + "' in '" + std::string{text} + "'", where);
}

/// The message of the Error that action() throws. @throws std::logic_error if it throws no Error
template <class Error, class Action>
std::string message_of(Action&& action, std::source_location where = std::source_location::current()) {
  try {
    action();
  } catch (const Error& expected) {
    return expected.what();
  } catch (const std::exception& other) {
    require(false, "another exception: " + std::string{other.what()}, where);
  }
  require(false, "no exception", where);
  return {};
}

/// The message of the exception that action() throws; empty if it throws none.
template <class Action>
std::string failure_of(Action&& action) {
  try {
    action();
    return {};
  } catch (const std::exception& failure) {
    return failure.what();
  }
}

/// The result of one case of a suite.
struct result {
  std::string name;     ///< name of the case, as report() prints it
  std::string failure;  ///< the error message; empty if the case passed
};

/// Runs a case and appends its result.
template <class Action>
void run_case(std::vector<result>& results, std::string name, Action&& action) {
  results.push_back({static_cast<std::string&&>(name), failure_of(action)});
}

/// Prints the cases that failed and the number that passed. Returns the exit code for main: 0 if all passed, 1 if a
/// case failed or there are none.
[[nodiscard]] inline int report(const std::vector<result>& results) {
  std::size_t failed = 0;
  for (const result& each : results) {
    if (!each.failure.empty()) {
      ++failed;
      std::fprintf(stderr, "FAILED: %s: %s\n", each.name.c_str(), each.failure.c_str());
    }
  }
  std::printf("conformance: %zu of %zu cases passed\n", results.size() - failed, results.size());
  return failed == 0 && !results.empty() ? 0 : 1;
}

}  // namespace gradus::conformance

// SPDX-License-Identifier: BSL-1.0
//
// The exceptions of the library: what was done, what was expected, what came, what to do, and where.
// Module: core. Depends on: std.
#pragma once

#include <source_location>  // std::source_location
#include <stdexcept>        // std::runtime_error
#include <string>           // std::string
#include <string_view>      // std::string_view

#include "gradus/core/config.hpp"  // GRADUS_COLD
#include "gradus/core/text.hpp"    // append, message, printable

namespace gradus {

/// Where an error was noticed. A std::source_location becomes one; its own name of the function would lie in the
/// program for every place that can fail.
class error_place {
 public:
  constexpr error_place(const std::source_location& where) noexcept : error_place{where.file_name(), where.line()} {}

  /// The place that calls it; as a default argument, the place that calls the function.
  [[nodiscard]] static constexpr error_place current(const char* file = __builtin_FILE(),
                                                     unsigned line = __builtin_LINE()) noexcept {
    return {file, line};
  }

  [[nodiscard]] constexpr const char* file_name() const noexcept { return file_; }
  [[nodiscard]] constexpr unsigned line() const noexcept { return line_; }

 private:
  constexpr error_place(const char* file, unsigned line) noexcept : file_{file}, line_{line} {}

  const char* file_;
  unsigned line_;
};

namespace detail {

/// "operation: expected E, got A. Hint: H. [file:line]"; parts that are empty are left out.
GRADUS_COLD inline std::string error_message(message operation, message expected, message actual, message hint,
                                             error_place where) {
  std::string text;
  operation.append_to(text);
  if (!expected.empty()) {
    text += ": expected ";
    expected.append_to(text);
  }
  if (!actual.empty()) {
    text += expected.empty() ? ": " : ", got ";
    actual.append_to(text);
  }
  if (!text.ends_with('.')) {
    text += '.';
  }
  if (!hint.empty()) {
    text += " Hint: ";
    hint.append_to(text);
    if (!text.ends_with('.')) {
      text += '.';
    }
  }
  std::string_view file{where.file_name()};
  if (const auto slash = file.find_last_of("/\\"); slash != std::string_view::npos) {
    file.remove_prefix(slash + 1);
  }
  append(text, {" [", file, ":", where.line(), "]"});
  return printable(text);
}

}  // namespace detail

/// The base of every exception that the library throws.
///
/// what() reads "operation: expected E, got A. Hint: H. [file:line]". With an empty `expected`, `actual` says what
/// went wrong. Each of the four is a text, or pieces in braces: {"a batch of at least ", 1}. The message is complete in
/// release builds too, and fit for a terminal: control characters in names of files are written as \x1b.
class error : public std::runtime_error {
 public:
  explicit error(detail::message operation, detail::message expected, detail::message actual, detail::message hint = {},
                 error_place where = error_place::current())
      : std::runtime_error{detail::error_message(operation, expected, actual, hint, where)} {}

  /// what() without the place.
  [[nodiscard]] std::string_view message() const noexcept {
    const std::string_view text{what()};
    return text.substr(0, text.rfind(" ["));
  }

  /// Makes what() read "operation: message() [file:line]": for a caller who knows more, and rethrows.
  GRADUS_COLD void add_context(detail::message operation, error_place where) {
    std::runtime_error::operator=(std::runtime_error{detail::error_message(operation, {}, message(), {}, where)});
  }
};

/// Two shapes that had to agree did not, or a shape is impossible.
class shape_error : public error {
 public:
  explicit shape_error(detail::message operation, detail::message expected, detail::message actual,
                       detail::message hint = {}, error_place where = error_place::current())
      : error{operation, expected, actual, hint, where} {}
};

/// A file or a message does not have the format it should have.
class format_error : public error {
 public:
  explicit format_error(detail::message operation, detail::message expected, detail::message actual,
                        detail::message hint = {}, error_place where = error_place::current())
      : error{operation, expected, actual, hint, where} {}
};

/// A device cannot do what was asked: out of memory, not present, a failed call of its runtime.
class device_error : public error {
 public:
  explicit device_error(detail::message operation, detail::message expected, detail::message actual,
                        detail::message hint = {}, error_place where = error_place::current())
      : error{operation, expected, actual, hint, where} {}
};

/// A rank failed, disagreed, or did not arrive in time.
class communication_error : public error {
 public:
  explicit communication_error(detail::message operation, detail::message expected, detail::message actual,
                               detail::message hint = {}, error_place where = error_place::current())
      : error{operation, expected, actual, hint, where} {}
};

/// An option has a value that makes no sense, or options contradict each other.
class configuration_error : public error {
 public:
  explicit configuration_error(detail::message operation, detail::message expected, detail::message actual,
                               detail::message hint = {}, error_place where = error_place::current())
      : error{operation, expected, actual, hint, where} {}
};

/// Training produced a value that is not finite.
class numeric_error : public error {
 public:
  explicit numeric_error(detail::message operation, detail::message expected, detail::message actual,
                         detail::message hint = {}, error_place where = error_place::current())
      : error{operation, expected, actual, hint, where} {}
};

/// Throws an `Error`: raise<shape_error>("conv2d", "an image", {"the vector ", shape}). A throw expression is the code
/// of an allocation, a constructor and their cleaning up at every place that has one; this is a call.
template <class Error>
[[noreturn]] GRADUS_COLD void raise(detail::message operation, detail::message expected, detail::message actual,
                                    detail::message hint = {}, error_place where = error_place::current()) {
  throw Error{operation, expected, actual, hint, where};
}

}  // namespace gradus

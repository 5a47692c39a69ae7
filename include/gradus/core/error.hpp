// SPDX-License-Identifier: BSL-1.0
//
// The exceptions of the library: what was done, what was expected, what came, what to do, and where.
#pragma once

#include <source_location>  // std::source_location
#include <stdexcept>        // std::runtime_error
#include <string>           // std::string
#include <string_view>      // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/text.hpp"

namespace gradus {

/// Where an error was noticed. A std::source_location becomes one; its own name of the function would lie in the
/// program for every place that can fail.
class error_location {
 public:
  constexpr error_location(const std::source_location& where) noexcept
      : error_location{where.file_name(), where.line()} {}

  /// The place that calls it; as a default argument, the place that calls the function.
  [[nodiscard]] static constexpr error_location current(const char* file = __builtin_FILE(),
                                                        unsigned line = __builtin_LINE()) noexcept {
    return {file, line};
  }

  [[nodiscard]] constexpr const char* file_name() const noexcept { return file_; }
  [[nodiscard]] constexpr unsigned line() const noexcept { return line_; }

  /// Whether it is a line of the headers of the library: they all are in the folder that this one is in.
  [[nodiscard]] GRADUS_COLD bool in_library() const noexcept {
    constexpr std::string_view here{__builtin_FILE()};
    constexpr std::string_view folder = here.substr(0, here.size() - std::string_view{"core/error.hpp"}.size());
    return std::string_view{file_}.starts_with(folder);
  }

 private:
  constexpr error_location(const char* file, unsigned line) noexcept : file_{file}, line_{line} {}

  const char* file_;
  unsigned line_;
};

namespace detail {

/// "operation: expected E, got A. Hint: H. [file:line]"; parts that are empty are left out.
GRADUS_COLD inline std::string error_message(message_part operation, message_part expected, message_part actual,
                                             message_part hint, error_location where) {
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
  append_text(text, {" [", file, ":", where.line(), "]"});
  return printable(text);
}

}  // namespace detail

/// The base of every exception that the library throws.
///
/// what() reads "operation: expected E, got A. Hint: H. [file:line]". With an empty `expected`, `actual` says what
/// went wrong. Each of the four is a text, or pieces in braces: {"a batch of at least ", 1}. The message is complete in
/// release builds too, and fit for a terminal: control characters in names of files are written as `\x1b`.
class error : public std::runtime_error {
 public:
  explicit error(message_part operation, message_part expected, message_part actual, message_part hint = {},
                 error_location where = error_location::current())
      : std::runtime_error{detail::error_message(operation, expected, actual, hint, where)}, place_{where} {}

  [[nodiscard]] error_location place() const noexcept { return place_; }

  /// what() without the place.
  [[nodiscard]] std::string_view message() const noexcept {
    const std::string_view text{what()};
    return text.substr(0, text.rfind(" ["));
  }

  /// Makes what() read "operation: message() [file:line]": for a caller who knows more, and rethrows.
  GRADUS_COLD void add_context(message_part operation, error_location where) {
    std::runtime_error::operator=(std::runtime_error{detail::error_message(operation, {}, message(), {}, where)});
    place_ = where;
  }

  /// Makes the place that of the call by which a program came into the library, if it is a line of the library so far.
  /// A line of the program stays: it is nearer to the mistake.
  GRADUS_COLD void location_at_call(error_location call) {
    if (place_.in_library() && !call.in_library()) {
      std::runtime_error::operator=(std::runtime_error{detail::error_message(message(), {}, {}, {}, call)});
      place_ = call;
    }
  }

 private:
  error_location place_;
};

/// Returns function(). An error of the library that leaves it has the place of the call: what a public function does
/// that takes `error_location where = error_location::current()` as its last parameter.
template <class Function>
decltype(auto) at_call(error_location call, const Function& function) {
  try {
    return function();
  } catch (error& failure) {
    failure.location_at_call(call);
    throw;
  }
}

/// Two shapes that had to agree did not, or a shape is impossible.
class shape_error : public error {
 public:
  explicit shape_error(message_part operation, message_part expected, message_part actual, message_part hint = {},
                       error_location where = error_location::current())
      : error{operation, expected, actual, hint, where} {}
};

/// A file or a message does not have the format it should have.
class format_error : public error {
 public:
  explicit format_error(message_part operation, message_part expected, message_part actual, message_part hint = {},
                        error_location where = error_location::current())
      : error{operation, expected, actual, hint, where} {}
};

/// A device cannot do what was asked: out of memory, not present, a failed call of its runtime.
class device_error : public error {
 public:
  explicit device_error(message_part operation, message_part expected, message_part actual, message_part hint = {},
                        error_location where = error_location::current())
      : error{operation, expected, actual, hint, where} {}
};

/// A rank failed, disagreed, or did not arrive in time.
class communication_error : public error {
 public:
  explicit communication_error(message_part operation, message_part expected, message_part actual,
                               message_part hint = {}, error_location where = error_location::current())
      : error{operation, expected, actual, hint, where} {}
};

/// An option has a value that makes no sense, or options contradict each other.
class configuration_error : public error {
 public:
  explicit configuration_error(message_part operation, message_part expected, message_part actual,
                               message_part hint = {}, error_location where = error_location::current())
      : error{operation, expected, actual, hint, where} {}
};

/// Training produced a value that is not finite.
class numeric_error : public error {
 public:
  explicit numeric_error(message_part operation, message_part expected, message_part actual, message_part hint = {},
                         error_location where = error_location::current())
      : error{operation, expected, actual, hint, where} {}
};

/// Throws an `Error`: raise<shape_error>("conv2d", "an image", {"the vector ", shape}). A throw expression is the code
/// of an allocation, a constructor and their cleaning up at every place that has one; this is a call.
template <class Error>
[[noreturn]] GRADUS_COLD void raise(message_part operation, message_part expected, message_part actual,
                                    message_part hint = {}, error_location where = error_location::current()) {
  throw Error{operation, expected, actual, hint, where};
}

}  // namespace gradus

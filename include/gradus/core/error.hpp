// SPDX-License-Identifier: BSL-1.0
//
// The exceptions of the library. Each reports the operation, what was expected, what came, what to do, and the
// location.
#pragma once

#include <source_location>  // std::source_location
#include <stdexcept>        // std::runtime_error
#include <string>           // std::string
#include <string_view>      // std::string_view
#include <utility>          // std::pair

#include "gradus/core/compiled.hpp"
#include "gradus/core/text.hpp"

namespace gradus {

namespace detail {

/// Where it was constructed.
struct constructed_in {
  const char* file;
  constexpr constructed_in(const char* name = __builtin_FILE()) noexcept : file{name} {}
};

/// The folder of the headers of the standard library; empty if the compiler does not tell.
[[nodiscard]] constexpr std::string_view standard_headers() noexcept {
  constexpr std::pair<constructed_in, int> made{};  // constructed by a line of <utility>
  constexpr const char* own = __builtin_FILE();
  std::string_view folder{made.first.file};
  if (folder == own) {
    return {};
  }
  folder = folder.substr(0, folder.find_last_of("/\\") + 1);
  for (const std::string_view inner : {"/bits/", "/__utility/"}) {
    if (folder.ends_with(inner)) {
      folder.remove_suffix(inner.size() - 1);
    }
  }
  return folder;
}

}  // namespace detail

/// The source location of an error. A std::source_location converts to it; that type would also store a function name
/// in the program for every operation that can fail.
class error_location {
 public:
  /// The location of a std::source_location.
  constexpr error_location(const std::source_location& where) noexcept
      : error_location{where.file_name(), where.line()} {}

  /// The location of the caller; as a default argument, the location of the call of the function.
  [[nodiscard]] static constexpr error_location current(const char* file = __builtin_FILE(),
                                                        unsigned line = __builtin_LINE()) noexcept {
    return {file, line};
  }

  /// The path of the source file, as the compiler got it.
  [[nodiscard]] constexpr const char* file_name() const noexcept { return file_; }
  /// The line, counted from 1.
  [[nodiscard]] constexpr unsigned line() const noexcept { return line_; }

  /// True if the location is in a header of the library: all headers are below the folder of this one.
  [[nodiscard]] bool in_library() const noexcept {
    constexpr std::string_view here{__builtin_FILE()};
    constexpr std::string_view folder = here.substr(0, here.size() - std::string_view{"core/error.hpp"}.size());
    return std::string_view{file_}.starts_with(folder);
  }
  /// True if the location is in a header of the standard library, in which functions such as std::make_unique and
  /// emplace_back call a constructor. It says nothing about the program.
  [[nodiscard]] bool in_standard_library() const noexcept {
    constexpr std::string_view folder = detail::standard_headers();
    return !folder.empty() && std::string_view{file_}.starts_with(folder);
  }

 private:
  constexpr error_location(const char* file, unsigned line) noexcept : file_{file}, line_{line} {}

  const char* file_;
  unsigned line_;
};

namespace detail {

/// "operation: expected E, got A. Hint: H. [file:line]"; empty parts are left out, and a line of the standard library.
std::string error_message(message_part operation, message_part expected, message_part actual, message_part hint,
                          error_location where);

}  // namespace detail

/// The base of every exception that the library throws.
///
/// what() reads "operation: expected E, got A. Hint: H. [file:line]". With an empty `expected`, `actual` describes the
/// error. Where std::make_unique or its kind called the constructor that failed, no line is shown. Each of the four is
/// a text, or pieces in braces: {"a batch of at least ", 1}. The message is complete in release builds too, and safe
/// for a terminal: control characters in file names are written as `\x1b`.
class error : public std::runtime_error {
 public:
  /// Builds the message from its parts; `where` is the location.
  explicit error(message_part operation, message_part expected, message_part actual, message_part hint = {},
                 error_location where = error_location::current())
      : std::runtime_error{detail::error_message(operation, expected, actual, hint, where)}, location_{where} {}

  /// The location at its end.
  [[nodiscard]] error_location location() const noexcept { return location_; }

  /// what() without the location.
  [[nodiscard]] std::string_view message() const noexcept {
    const std::string_view text{what()};
    return location_.in_standard_library() ? text : text.substr(0, text.rfind(" ["));
  }

  /// Makes what() read "operation: message() [file:line]". A caller that knows more calls it and rethrows.
  void add_context(message_part operation, error_location where) {
    std::runtime_error::operator=(std::runtime_error{detail::error_message(operation, {}, message(), {}, where)});
    location_ = where;
  }

  /// Replaces the location by that of the call from the program into the library, if the location is in the library or
  /// in the standard library. A location in the program stays, because it is closer to the mistake.
  void location_at_call(error_location call) {
    if ((location_.in_library() || location_.in_standard_library()) && !call.in_library()) {
      std::runtime_error::operator=(std::runtime_error{detail::error_message(message(), {}, {}, {}, call)});
      location_ = call;
    }
  }

 private:
  error_location location_;
};

/// Returns function(). If an error of the library leaves it, the error gets the location of the call. A public function
/// with `error_location where = error_location::current()` as its last parameter runs its body in it.
template <class Function>
decltype(auto) at_call(error_location call, const Function& function) {
  try {
    return function();
  } catch (error& failure) {
    failure.location_at_call(call);
    throw;
  }
}

/// Two shapes differ that must agree, or a shape is impossible.
class shape_error : public error {
 public:
  /// Builds the message from its parts, as error does.
  explicit shape_error(message_part operation, message_part expected, message_part actual, message_part hint = {},
                       error_location where = error_location::current())
      : error{operation, expected, actual, hint, where} {}
};

/// A file or a message does not have the expected format.
class format_error : public error {
 public:
  /// Builds the message from its parts, as error does.
  explicit format_error(message_part operation, message_part expected, message_part actual, message_part hint = {},
                        error_location where = error_location::current())
      : error{operation, expected, actual, hint, where} {}
};

/// A device cannot do an operation: out of memory, not present, or a call of its runtime failed.
class device_error : public error {
 public:
  /// Builds the message from its parts, as error does.
  explicit device_error(message_part operation, message_part expected, message_part actual, message_part hint = {},
                        error_location where = error_location::current())
      : error{operation, expected, actual, hint, where} {}
};

/// A rank failed, disagreed, or did not arrive in time.
class communication_error : public error {
 public:
  /// Builds the message from its parts, as error does.
  explicit communication_error(message_part operation, message_part expected, message_part actual,
                               message_part hint = {}, error_location where = error_location::current())
      : error{operation, expected, actual, hint, where} {}
};

/// What all ranks of a communicator throw at the same point. No rank waits for one that has left, so the communicator
/// goes on working: comm::mpi_environment::run does not end the job. Derive from it where the ranks have agreed.
class error_of_all_ranks : public error {
 public:
  /// Builds the message from its parts, as error does.
  explicit error_of_all_ranks(message_part operation, message_part expected, message_part actual,
                              message_part hint = {}, error_location where = error_location::current())
      : error{operation, expected, actual, hint, where} {}
};

/// The value of an option is invalid, or options contradict each other.
class configuration_error : public error {
 public:
  /// Builds the message from its parts, as error does.
  explicit configuration_error(message_part operation, message_part expected, message_part actual,
                               message_part hint = {}, error_location where = error_location::current())
      : error{operation, expected, actual, hint, where} {}
};

/// Training produced a value that is infinite or NaN.
class numeric_error : public error {
 public:
  /// Builds the message from its parts, as error does.
  explicit numeric_error(message_part operation, message_part expected, message_part actual, message_part hint = {},
                         error_location where = error_location::current())
      : error{operation, expected, actual, hint, where} {}
};

/// Throws an `Error`: raise<shape_error>("conv2d", "an image", {"the vector ", shape}). A throw expression compiles to
/// an allocation, a constructor and their cleanup each time; this is one call.
template <class Error>
[[noreturn]] void raise(message_part operation, message_part expected, message_part actual, message_part hint = {},
                        error_location where = error_location::current()) {
  throw Error{operation, expected, actual, hint, where};
}

}  // namespace gradus

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::detail {

GRADUS_INLINE std::string error_message(message_part operation, message_part expected, message_part actual,
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
  if (!text.ends_with('.') && !text.ends_with('?')) {
    text += '.';
  }
  if (!hint.empty()) {
    text += " Hint: ";
    hint.append_to(text);
    if (!text.ends_with('.') && !text.ends_with('?')) {
      text += '.';
    }
  }
  if (where.in_standard_library()) {
    return printable(text);
  }
  std::string_view file{where.file_name()};
  if (const auto slash = file.find_last_of("/\\"); slash != std::string_view::npos) {
    file.remove_prefix(slash + 1);
  }
  append_text(text, {" [", file, ":", where.line(), "]"});
  return printable(text);
}

}  // namespace gradus::detail
#endif

// SPDX-License-Identifier: BSL-1.0
//
// What every function of the C interface needs: handles that stay recognizable after they are freed, and exceptions
// that become a status and a text.
#pragma once

#include <atomic>         // std::atomic_flag
#include <cmath>          // std::signbit
#include <cstdint>        // std::int64_t, std::uintptr_t
#include <exception>      // std::exception
#include <memory>         // std::make_shared, std::shared_ptr
#include <mutex>          // std::mutex, std::scoped_lock
#include <new>            // std::bad_alloc
#include <string>         // std::string
#include <string_view>    // std::string_view
#include <unordered_map>  // std::unordered_map
#include <utility>        // std::forward, std::move

#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"
#include "gradus/train/interrupted.hpp"
#include "gradus_c.h"
#include "texts.hpp"

namespace gradus_c {

/// A failure that the interface itself finds.
class failure : public std::exception {
 public:
  failure(gradus_status status, gradus::message_part expected, gradus::message_part actual,
          gradus::message_part hint = {})
      : status_{status} {
    text_ = "expected ";
    expected.append_to(text_);
    text_ += ", got ";
    actual.append_to(text_);
    text_ += ".";
    if (!hint.empty()) {
      text_ += " Hint: ";
      hint.append_to(text_);
      text_ += ".";
    }
    text_ = gradus::printable(text_);
  }

  [[nodiscard]] gradus_status status() const noexcept { return status_; }
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

 private:
  gradus_status status_;
  std::string text_;
};

[[noreturn]] inline void refuse(gradus::message_part expected, gradus::message_part actual,
                                gradus::message_part hint = {}) {
  throw failure{GRADUS_INVALID_ARGUMENT, expected, actual, hint};
}

/// The value of an option, or `missing` where it is 0. -0.0 is 0 itself.
[[nodiscard]] inline double or_default(double value, double missing) noexcept {
  if (value == 0) {
    return std::signbit(value) ? 0.0 : missing;
  }
  return value;
}

/// @throws failure if an argument is null
template <class Pointer>
void require_pointer(std::string_view name, Pointer* pointer) {
  if (pointer == nullptr) {
    refuse({"a pointer for the argument ", name}, "null");
  }
}

/// The text of the last failure on this thread.
inline std::string& last_error() {
  thread_local std::string text{"no call has failed on this thread"};
  return text;
}

inline gradus_status store_failure(gradus_status status, std::string_view function, std::string_view text) noexcept {
  try {
    last_error() = gradus::join({function, ": ", text_in_c(text)});
  } catch (...) {
    last_error().clear();  // without memory for the text
  }
  return status;
}

/// The status of the exception that is being handled; its text becomes the last error.
inline gradus_status status_of_exception(std::string_view function) noexcept {
  const auto of = [&](gradus_status status, const gradus::error& failed) {
    return store_failure(status, function, failed.message());
  };
  try {
    throw;
  } catch (const failure& failed) {
    return store_failure(failed.status(), function, failed.what());
  } catch (const gradus::shape_error& failed) {
    return of(GRADUS_SHAPE_ERROR, failed);
  } catch (const gradus::format_error& failed) {
    return of(GRADUS_FORMAT_ERROR, failed);
  } catch (const gradus::device_error& failed) {
    return of(GRADUS_DEVICE_ERROR, failed);
  } catch (const gradus::communication_error& failed) {
    return of(GRADUS_COMMUNICATION_ERROR, failed);
  } catch (const gradus::configuration_error& failed) {
    return of(GRADUS_CONFIGURATION_ERROR, failed);
  } catch (const gradus::numeric_error& failed) {
    return of(GRADUS_NUMERIC_ERROR, failed);
  } catch (const gradus::train::interrupted& failed) {
    return store_failure(GRADUS_INTERRUPTED, function, failed.what());
  } catch (const std::bad_alloc&) {
    return store_failure(GRADUS_OUT_OF_MEMORY, function, "expected memory, got an allocation that failed.");
  } catch (const std::exception& failed) {
    return store_failure(GRADUS_INTERNAL_ERROR, function, failed.what());
  } catch (...) {
    return store_failure(GRADUS_INTERNAL_ERROR, function, "an exception of an unknown type");
  }
}

/// Runs the body of a function of the interface.
template <class Body>
gradus_status call(std::string_view function, const Body& body) noexcept {
  try {
    body();
    return GRADUS_OK;
  } catch (...) {
    return status_of_exception(function);
  }
}

/// What a handle stands for.
class object {
 public:
  object() = default;
  object(const object&) = delete;
  object& operator=(const object&) = delete;
  virtual ~object() = default;

 private:
  friend class in_use;
  std::atomic_flag used_;
};

/// One thread at a time uses an object.
class in_use {
 public:
  /// @throws failure if it is in use
  explicit in_use(object& of) : of_{&of} {
    if (of.used_.test_and_set(std::memory_order_acquire)) {
      of_ = nullptr;
      throw failure{GRADUS_BUSY, "one thread at a time that uses an object",
                    "a call while another one works on it, or a call within its callback"};
    }
  }
  in_use(const in_use&) = delete;
  in_use& operator=(const in_use&) = delete;
  ~in_use() { of_->used_.clear(std::memory_order_release); }

 private:
  object* of_;
};

/// The handles of a process. A handle is a number that is given out once, in the form of a pointer: one that was freed
/// is never taken for another object.
class registry {
 public:
  /// It outlives all destructors, which may free handles.
  static registry& instance() {
    static registry* const one = new registry;
    return *one;
  }

  std::uintptr_t add(std::shared_ptr<object> made) {
    const std::scoped_lock lock{mutex_};
    const std::uintptr_t number = next_;
    objects_.emplace(number, std::move(made));
    next_ += 16;
    return number;
  }

  /// Null if there is no such handle.
  [[nodiscard]] std::shared_ptr<object> find(std::uintptr_t number) {
    const std::scoped_lock lock{mutex_};
    const auto at = objects_.find(number);
    return at == objects_.end() ? nullptr : at->second;
  }

  void remove(std::uintptr_t number) {
    std::shared_ptr<object> last;  // is destroyed behind the lock
    const std::scoped_lock lock{mutex_};
    if (const auto at = objects_.find(number); at != objects_.end()) {
      last = std::move(at->second);
      objects_.erase(at);
    }
  }

  [[nodiscard]] std::int64_t size() {
    const std::scoped_lock lock{mutex_};
    return static_cast<std::int64_t>(objects_.size());
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::uintptr_t, std::shared_ptr<object>> objects_;
  std::uintptr_t next_ = 0x1000;
};

/// The object of a handle.
/// @param what  the kind in messages: "a network"
template <class Object, class Handle>
[[nodiscard]] std::shared_ptr<Object> find(Handle* handle, std::string_view what) {
  if (handle == nullptr) {
    throw failure{GRADUS_INVALID_HANDLE, {"the handle of ", what}, "null"};
  }
  auto found = std::dynamic_pointer_cast<Object>(registry::instance().find(reinterpret_cast<std::uintptr_t>(handle)));
  if (found == nullptr) {
    throw failure{
        GRADUS_INVALID_HANDLE, {"the handle of ", what}, "one that was freed, never made, or of another kind"};
  }
  return found;
}

/// Makes the handle of an object.
template <class Handle>
void give_handle(std::shared_ptr<object> made, Handle** handle) {
  *handle = reinterpret_cast<Handle*>(registry::instance().add(std::move(made)));
}

/// Ends a handle of an object of this kind; nothing for null.
template <class Object, class Handle>
gradus_status end_handle(std::string_view function, Handle* handle, std::string_view what) noexcept {
  return call(function, [&] {
    if (handle != nullptr) {
      static_cast<void>(find<Object>(handle, what));
      registry::instance().remove(reinterpret_cast<std::uintptr_t>(handle));
    }
  });
}

/// @throws failure unless all reserved members of options are 0
template <class Options>
void require_reserved(const Options& options) {
  for (const auto each : options.reserved) {
    if (each != 0) {
      refuse("reserved members of options that are 0", {static_cast<double>(each)},
             "begin with = {0}, and set the members that you mean");
    }
  }
  if constexpr (requires { options.reserved_int; }) {
    if (options.reserved_int != 0) {
      refuse("reserved members of options that are 0", {options.reserved_int},
             "begin with = {0}, and set the members that you mean");
    }
  }
}

/// Options, or defaults for null.
template <class Options>
[[nodiscard]] Options options_of(const Options* given) {
  const Options options = given == nullptr ? Options{} : *given;
  require_reserved(options);
  return options;
}

/// Calls choose(value) for the one of the values that it is. @throws failure for another one
[[noreturn]] inline void refuse_constant(std::string_view argument, std::int64_t value, std::string_view known) {
  refuse({argument, " = ", known}, {value});
}

}  // namespace gradus_c

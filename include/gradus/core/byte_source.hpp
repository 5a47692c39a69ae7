// SPDX-License-Identifier: BSL-1.0
//
// A source of bytes that is read once: the interface, and plain files.
#pragma once

#include <cerrno>       // errno
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t
#include <cstdio>       // std::FILE, std::fopen, std::fread, std::ferror
#include <cstring>      // std::strerror
#include <memory>       // std::unique_ptr
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move

#if defined(__unix__) || defined(__APPLE__)
#include <sys/stat.h>  // stat
#endif

#include "gradus/core/compiled.hpp"
#include "gradus/core/error.hpp"

namespace gradus {

/// Bytes that are read once, from the first to the last.
class byte_source {
 public:
  virtual ~byte_source() = default;

  /// Fills `into` with the next bytes and returns their number. It is less than into.size() only at the end of the
  /// source, and 0 after it.
  /// @throws format_error if the bytes cannot be read or decoded
  [[nodiscard]] virtual std::size_t read(std::span<std::uint8_t> into) = 0;

  /// The name of the source in messages: the name of the file.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 protected:
  /// For derived classes: the name in messages.
  explicit byte_source(std::string name) : name_{std::move(name)} {}
  byte_source(const byte_source&) = delete;
  byte_source& operator=(const byte_source&) = delete;

 private:
  std::string name_;
};

/// The unchanged bytes of a file.
class file_source final : public byte_source {
 public:
  /// @throws format_error if the path does not exist, is not a regular file, or cannot be opened
  explicit file_source(const std::string& path);

  [[nodiscard]] std::size_t read(std::span<std::uint8_t> into) override {
    const std::size_t count = into.empty() ? 0 : std::fread(into.data(), 1, into.size(), file_.get());
    if (count < into.size() && std::ferror(file_.get()) != 0) {
      raise<format_error>({"read '", name(), "'"}, "bytes", std::strerror(errno));
    }
    return count;
  }

 private:
  /// Opening a pipe would wait for a writer, and a directory can be opened but not read.
  void require_regular() const {
#if defined(__unix__) || defined(__APPLE__)
    struct stat status;
    if (stat(name().c_str(), &status) != 0) {
      if (errno == ENOENT || errno == ENOTDIR) {
        refuse("a file", "no such file", "check the folder and the spelling");
      }
      refuse("a file that can be read", std::strerror(errno));
    }
    if (S_ISDIR(status.st_mode)) {
      refuse("a file", "a directory");
    }
    if (!S_ISREG(status.st_mode)) {
      refuse("a regular file", "a device, a pipe or a socket");
    }
#endif
  }

  [[noreturn]] void refuse(std::string_view expected, std::string_view actual, std::string_view hint = {}) const {
    raise<format_error>({"open '", name(), "'"}, expected, actual, hint);
  }

  struct closer {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, closer> file_;
};

}  // namespace gradus

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus {

GRADUS_INLINE_CONSTRUCTOR file_source::file_source(const std::string& path) : byte_source{path} {
  require_regular();
  errno = 0;
  file_.reset(std::fopen(name().c_str(), "rb"));
  if (!file_) {
    refuse("a file that can be read", std::strerror(errno), "check the permissions");
  }
}

}  // namespace gradus
#endif

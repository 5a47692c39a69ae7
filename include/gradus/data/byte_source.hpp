// SPDX-License-Identifier: BSL-1.0
//
// Where the bytes of a file come from: the interface, and plain files.
// Module: data. Depends on: core.
#pragma once

#include <cerrno>        // errno
#include <cstddef>       // std::size_t
#include <cstdint>       // std::uint8_t
#include <cstdio>        // std::FILE, std::fopen, std::fread
#include <cstring>       // std::strerror
#include <filesystem>    // std::filesystem::path, std::filesystem::status
#include <memory>        // std::unique_ptr
#include <span>          // std::span
#include <string>        // std::string
#include <system_error>  // std::error_code
#include <utility>       // std::move

#include "gradus/core/error.hpp"  // format_error
#include "gradus/core/text.hpp"   // text

namespace gradus::data {

/// Bytes that are read once, from the first to the last.
class byte_source {
 public:
  virtual ~byte_source() = default;

  /// Fills `into` with the next bytes. Fewer than into.size() arrive only where the source ends; 0 from then on.
  /// @throws format_error when the bytes cannot be read or decoded
  [[nodiscard]] virtual std::size_t read(std::span<std::uint8_t> into) = 0;

  /// What messages call it: the name of the file.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 protected:
  explicit byte_source(std::string name) : name_{std::move(name)} {}
  byte_source(const byte_source&) = delete;
  byte_source& operator=(const byte_source&) = delete;

 private:
  std::string name_;
};

/// The bytes of a file as they are.
class file_source final : public byte_source {
 public:
  /// @throws format_error when the path names no file, something else than a file, or one that cannot be opened
  explicit file_source(const std::filesystem::path& path) : byte_source{path.string()} {
    std::error_code failure;
    const auto kind = std::filesystem::status(path, failure).type();
    if (kind == std::filesystem::file_type::not_found) {
      throw format_error{gradus::detail::text({"open '", name(), "'"}), "a file", "no such file",
                         "check the folder and the spelling"};
    }
    if (failure) {
      throw format_error{gradus::detail::text({"open '", name(), "'"}), "a file that can be read", failure.message()};
    }
    if (kind == std::filesystem::file_type::directory) {
      throw format_error{gradus::detail::text({"open '", name(), "'"}), "a file", "a directory"};
    }
    if (kind != std::filesystem::file_type::regular) {
      throw format_error{gradus::detail::text({"open '", name(), "'"}), "a regular file",
                         "a device, a pipe or a socket"};
    }
    errno = 0;
    file_.reset(std::fopen(name().c_str(), "rb"));
    if (!file_) {
      throw format_error{gradus::detail::text({"open '", name(), "'"}), "a file that can be read", std::strerror(errno),
                         "check the permissions"};
    }
  }

  [[nodiscard]] std::size_t read(std::span<std::uint8_t> into) override {
    const std::size_t count = into.empty() ? 0 : std::fread(into.data(), 1, into.size(), file_.get());
    if (count < into.size() && std::ferror(file_.get()) != 0) {
      throw format_error{gradus::detail::text({"read '", name(), "'"}), "bytes", std::strerror(errno)};
    }
    return count;
  }

 private:
  struct closer {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, closer> file_;
};

}  // namespace gradus::data

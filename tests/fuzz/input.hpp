// SPDX-License-Identifier: BSL-1.0
//
// What the harnesses share: the bytes of an input as a source and as a file.
#pragma once

#include <sys/mman.h>  // memfd_create
#include <unistd.h>    // close, ftruncate, pwrite

#include <algorithm>    // std::copy_n, std::min
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t
#include <cstdlib>      // std::abort
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/data/byte_source.hpp"

namespace gradus_fuzz {

/// The input as text.
inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// The input as a source of bytes.
class input_source final : public gradus::data::byte_source {
 public:
  input_source(const std::uint8_t* data, std::size_t size) : byte_source{"input"}, left_{data, size} {}

  [[nodiscard]] std::size_t read(std::span<std::uint8_t> into) override {
    const std::size_t count = std::min(into.size(), left_.size());
    std::copy_n(left_.data(), count, into.data());
    left_ = left_.subspan(count);
    return count;
  }

 private:
  std::span<const std::uint8_t> left_;
};

/// The input as a regular file in memory.
class input_file {
 public:
  input_file(const std::uint8_t* data, std::size_t size) : file_{memfd_create("input", 0)} {
    if (file_ < 0 || pwrite(file_, data, size, 0) != static_cast<ssize_t>(size)) {
      std::abort();
    }
  }
  input_file(const input_file&) = delete;
  input_file& operator=(const input_file&) = delete;
  ~input_file() { close(file_); }

  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

}  // namespace gradus_fuzz

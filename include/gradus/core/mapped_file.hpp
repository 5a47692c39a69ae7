// SPDX-License-Identifier: BSL-1.0
//
// The bytes of a file as memory that is only read.
#pragma once

#include <cstddef>  // std::size_t
#include <cstdint>  // std::uint8_t
#include <span>     // std::span
#include <string>   // std::string
#include <utility>  // std::exchange, std::move
#include <vector>   // std::vector

#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>     // open
#include <sys/mman.h>  // mmap, munmap
#include <sys/stat.h>  // fstat
#include <unistd.h>    // close

#include <cerrno>   // errno
#include <cstring>  // std::strerror
#endif

#include "gradus/core/byte_source.hpp"
#include "gradus/core/error.hpp"

namespace gradus {

/// The bytes of a file. The file is mapped into memory: the system reads a page when it is first used, the processes of
/// a machine share the pages, and a file may be larger than the memory. Where the system has no `mmap`, or on request,
/// the file is read as a whole.
///
/// Nothing may shorten a mapped file while it is in use: reading a page that the file no longer has ends the program
/// with SIGBUS. Replace a file by renaming a new one over it.
class mapped_file {
 public:
  /// @param map  false: reads the file into memory
  /// @throws format_error if the path does not exist, is not a regular file, or cannot be read
  explicit mapped_file(const std::string& path, bool map = true, error_location where = error_location::current()) {
    at_call(where, [&, this] {
      file_source source{path};
#if defined(__unix__) || defined(__APPLE__)
      if (map) {
        map_pages(path);
        return;
      }
#endif
      (void)map;
      read_all(source);
    });
  }
  /// Takes over the bytes; views of them stay valid. `other` is empty afterwards.
  mapped_file(mapped_file&& other) noexcept
      : content_{std::move(other.content_)},
        mapped_{std::exchange(other.mapped_, false)},
        bytes_{std::exchange(other.bytes_, {})} {}
  /// As the move constructor.
  mapped_file& operator=(mapped_file&& other) noexcept {
    if (this != &other) {
      release();
      content_ = std::move(other.content_);
      mapped_ = std::exchange(other.mapped_, false);
      bytes_ = std::exchange(other.bytes_, {});
    }
    return *this;
  }
  ~mapped_file() {
    release();
  }

  /// The content of the file. It is valid until the object is destroyed; moving the object keeps it valid.
  [[nodiscard]] std::span<const std::uint8_t> bytes() const noexcept {
    return bytes_;
  }

 private:
#if defined(__unix__) || defined(__APPLE__)
  void map_pages(const std::string& path) {
    struct descriptor {
      ~descriptor() {
        if (number >= 0) {
          ::close(number);
        }
      }
      int number;
    };
    errno = 0;
    const descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    struct stat status {};
    if (file.number < 0 || ::fstat(file.number, &status) != 0) {
      raise<format_error>({"open '", path, "'"}, "a file that can be read", std::strerror(errno));
    }
    const auto size = static_cast<std::size_t>(status.st_size);
    if (size == 0) {
      return;  // an empty range cannot be mapped
    }
    void* const pages = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number, 0);
    if (pages == MAP_FAILED) {
      raise<format_error>({"map '", path, "'"}, {"room for ", size, " bytes in the address space"},
                          std::strerror(errno));
    }
    mapped_ = true;
    bytes_ = {static_cast<const std::uint8_t*>(pages), size};
  }
#endif

  void read_all(file_source& source) {
    constexpr std::size_t piece = std::size_t{1} << 20U;
    std::size_t filled = 0;
    for (;;) {
      content_.resize(filled + piece);
      const std::size_t got = source.read(std::span{content_}.subspan(filled));
      filled += got;
      if (got < piece) {
        break;
      }
    }
    content_.resize(filled);
    bytes_ = content_;
  }

  void release() noexcept {
#if defined(__unix__) || defined(__APPLE__)
    if (mapped_) {
      ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size());
    }
#endif
  }

  std::vector<std::uint8_t> content_;  // empty if the file is mapped
  bool mapped_ = false;
  std::span<const std::uint8_t> bytes_;
};

}  // namespace gradus

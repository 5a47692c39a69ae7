// SPDX-License-Identifier: BSL-1.0
//
// Compressed trace files, a tenth of the size; Perfetto opens them directly. Needs zlib (component gradus::gzip).
#pragma once

#include <zlib.h>  // gzclose, gzopen, gzwrite

#include <cerrno>       // errno
#include <cstddef>      // std::size_t
#include <cstring>      // std::strerror
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::exchange, std::move

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/trace/chrome.hpp"
#include "gradus/trace/recorder.hpp"
#include "gradus/trace/text_sink.hpp"
#include "gradus/trace/timeline.hpp"

namespace gradus::trace {

/// A gzip-compressed file (RFC 1952).
class gzip_sink final : public text_sink {
 public:
  /// @throws device_error if the file cannot be created
  explicit gzip_sink(std::string path) : path_{std::move(path)} {
    errno = 0;
    file_ = gzopen(path_.c_str(), "wb6");
    if (file_ == nullptr) {
      fail();
    }
  }
  gzip_sink(const gzip_sink&) = delete;
  gzip_sink& operator=(const gzip_sink&) = delete;
  ~gzip_sink() {
    if (file_ != nullptr) {
      gzclose(file_);
    }
  }

  void write(std::string_view text) override {
    constexpr std::size_t most = std::size_t{1} << 30U;
    while (!text.empty()) {
      const auto part = static_cast<unsigned>(text.size() < most ? text.size() : most);
      errno = 0;
      if (gzwrite(file_, text.data(), part) != static_cast<int>(part)) {
        fail();
      }
      text.remove_prefix(part);
    }
  }

  /// Closes the file. @throws device_error if not everything could be written
  void close() {
    errno = 0;
    if (const gzFile file = std::exchange(file_, nullptr); file != nullptr && gzclose(file) != Z_OK) {
      fail();
    }
  }

 private:
  [[noreturn]] void fail() const {
    raise<device_error>("trace::write_gzip", {"a file '", path_, "' that can be written"},
                        errno != 0 ? std::strerror(errno) : "an error of zlib, such as too little memory");
  }

  std::string path_;
  gzFile file_ = nullptr;
};

/// The same as trace::write, but compressed.
/// @throws device_error on rank 0 if the file cannot be written
/// @throws communication_error if a rank fails or does not call it in time
inline timeline write_gzip(const std::string& path, recorder& from, comm::any_communicator communicator,
                           const program_properties& properties = {}) {
  return detail::write_to<gzip_sink>(path, from, std::move(communicator), properties);
}

}  // namespace gradus::trace

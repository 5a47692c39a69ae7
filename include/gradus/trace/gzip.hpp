// SPDX-License-Identifier: BSL-1.0
//
// Compressed trace files, a tenth of the size; Perfetto opens them directly. Needs zlib (component gradus::gzip).
#pragma once

#include <zlib.h>  // deflate, deflateEnd, deflateInit2

#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/output_file.hpp"
#include "gradus/trace/chrome.hpp"
#include "gradus/trace/recorder.hpp"
#include "gradus/trace/text_sink.hpp"
#include "gradus/trace/timeline.hpp"

namespace gradus::trace {

/// A gzip-compressed file (RFC 1952), which has its name when it is closed.
class gzip_sink final : public text_sink {
 public:
  /// @throws format_error if the file cannot be created
  /// @throws device_error if there is too little memory
  explicit gzip_sink(std::string path) : file_{std::move(path)} {
    constexpr int level = 6;
    constexpr int gzip_window = 15 + 16;
    constexpr int memory = 8;
    if (deflateInit2(&stream_, level, Z_DEFLATED, gzip_window, memory, Z_DEFAULT_STRATEGY) != Z_OK) {
      raise<device_error>("trace::write_gzip", "memory for zlib", "an error of zlib");
    }
  }
  gzip_sink(const gzip_sink&) = delete;
  gzip_sink& operator=(const gzip_sink&) = delete;
  ~gzip_sink() { deflateEnd(&stream_); }

  void write(std::string_view text) override {
    constexpr std::size_t most = std::size_t{1} << 30U;
    while (!text.empty()) {
      const std::string_view part = text.substr(0, most);
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(part.data()));
      stream_.avail_in = static_cast<uInt>(part.size());
      deflate_to_file(Z_NO_FLUSH);
      text.remove_prefix(part.size());
    }
  }

  /// Makes the file durable and gives it its name. @throws format_error if not everything could be written
  void close() {
    deflate_to_file(Z_FINISH);
    file_.commit();
  }

 private:
  void deflate_to_file(int flush) {
    std::array<char, std::size_t{1} << 14U> part;
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(part.data());
      stream_.avail_out = static_cast<uInt>(part.size());
      deflate(&stream_, flush);
      file_.write(std::string_view{part.data(), part.size() - stream_.avail_out});
    } while (stream_.avail_out == 0);
  }

  io::output_file file_;
  z_stream stream_{};
};

/// The same as trace::write, but compressed.
/// @throws format_error on rank 0 if the file cannot be written
/// @throws communication_error if a rank fails or does not call it in time
inline timeline write_gzip(const std::string& path, recorder& from, comm::any_communicator communicator,
                           const program_properties& properties = {}) {
  return detail::write_to<gzip_sink>(path, from, std::move(communicator), properties);
}

}  // namespace gradus::trace

// SPDX-License-Identifier: BSL-1.0
//
// Gzip-compressed files, and a reader of the compressed MNIST files. Needs zlib (component gradus::gzip).
#pragma once

#include <zlib.h>  // inflate

#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t
#include <limits>       // std::numeric_limits
#include <memory>       // std::unique_ptr, std::make_unique
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/byte_source.hpp"
#include "gradus/data/idx.hpp"
#include "gradus/data/mnist.hpp"

namespace gradus::data {

/// The content of a gzip-compressed file (RFC 1952) with one or more members. It decompresses only the requested bytes,
/// and checks the checksum at the end of each member.
class gzip_source final : public byte_source {
 public:
  /// @throws format_error if the file cannot be opened
  explicit gzip_source(const std::string& path) : byte_source{path}, file_{path} {
    constexpr int gzip_only = 15 + 16;  // the largest window size, with gzip's header and checksum
    if (inflateInit2(&stream_, gzip_only) != Z_OK) {
      raise<device_error>({"gzip '", name(), "'"}, "memory to decompress", "an allocation that failed");
    }
  }
  ~gzip_source() override { inflateEnd(&stream_); }

  [[nodiscard]] std::size_t read(std::span<std::uint8_t> into) override {
    std::size_t done = 0;
    while (done < into.size() && begin_member()) {
      constexpr std::size_t most = std::numeric_limits<uInt>::max();
      const std::size_t room = into.size() - done < most ? into.size() - done : most;
      stream_.next_out = into.data() + done;
      stream_.avail_out = static_cast<uInt>(room);
      const int result = inflate(&stream_, Z_NO_FLUSH);
      done += room - stream_.avail_out;
      check(result);
      in_member_ = result != Z_STREAM_END;
    }
    return done;
  }

 private:
  /// Provides input for inflate. Returns false at the end of the file, which is only allowed between members.
  bool begin_member() {
    if (stream_.avail_in == 0) {
      refill();
    }
    if (in_member_) {
      return true;  // inflate reports the missing input
    }
    if (stream_.avail_in == 0 && members_ > 0) {
      return false;
    }
    if (members_ > 0) {
      if (*stream_.next_in != 0x1f) {
        raise<format_error>({"gzip '", name(), "'"}, "the end of the file after the compressed data", "more bytes",
                            "the file was changed after it was compressed");
      }
      inflateReset(&stream_);
    }
    ++members_;
    in_member_ = true;
    return true;
  }

  void refill() {
    const std::size_t got = file_.read(input_);
    stream_.next_in = input_.data();
    stream_.avail_in = static_cast<uInt>(got);
  }

  void check(int result) const {
    if (result == Z_OK || result == Z_STREAM_END) {
      return;
    }
    const std::string operation = gradus::join({"gzip '", name(), "'"});
    if (result == Z_BUF_ERROR) {  // no progress is possible: there was space for output, so input is missing
      raise<format_error>(operation, "complete compressed data", "a file that ends early",
                          "the file was not copied completely");
    }
    if (result == Z_MEM_ERROR) {
      raise<device_error>(operation, "memory to decompress", "an allocation that failed");
    }
    const std::string reason = stream_.msg != nullptr ? stream_.msg : "data that cannot be decompressed";
    if (reason == "incorrect header check") {
      raise<format_error>(operation, "a gzip file", "a file that does not begin like a gzip file",
                          "an uncompressed file must not end in .gz");
    }
    raise<format_error>(operation, "intact compressed data", reason, "the file is damaged: copy it again");
  }

  file_source file_;
  std::array<std::uint8_t, std::size_t{1} << 16U> input_{};
  z_stream stream_{};
  std::size_t members_ = 0;
  bool in_member_ = false;
};

/// Opens a file: decompresses it if its name ends in .gz, otherwise reads it unchanged.
/// @throws format_error if it cannot be opened
[[nodiscard]] inline std::unique_ptr<byte_source> open_file(const std::string& path) {
  if (path.ends_with(".gz")) {
    return std::make_unique<gzip_source>(path);
  }
  return std::make_unique<file_source>(path);
}

namespace detail {

/// The path of the file of images or labels, plain or as .gz.
inline std::string plain_or_gzip(const std::string& directory, split part, std::string_view what,
                                 const mnist_options& options) {
  std::string path = mnist_path(directory, part, what, options, {"", ".gz"});
  if (!file_exists(path)) {
    raise<format_error>(
        "load_mnist", {"'", path, "' or the same with .gz"}, "no such file",
        "give the folder that contains the four files; the Debian package dataset-fashion-mnist has them in "
        "/usr/share/datasets/fashion-mnist");
  }
  return path;
}

}  // namespace detail

/// Reads the files (train- or t10k-)images-idx3-ubyte and -labels-idx1-ubyte of a folder, plain or as .gz, or those of
/// the other usual names (load_mnist_plain).
/// @throws format_error with the name of the file if a file is missing or invalid
/// @throws configuration_error if options are invalid
[[nodiscard]] inline image_dataset load_mnist(const std::string& directory, split part,
                                              const mnist_options& options = {},
                                              error_location where = error_location::current()) {
  return at_call(where, [&] {
    const auto images = open_file(detail::plain_or_gzip(directory, part, "images", options));
    const auto labels = open_file(detail::plain_or_gzip(directory, part, "labels", options));
    return detail::make_mnist(*images, *labels, options);
  });
}

}  // namespace gradus::data

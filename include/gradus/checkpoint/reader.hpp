// SPDX-License-Identifier: BSL-1.0
//
// Reads one checkpoint, in one process.
#pragma once

#include <algorithm>     // std::max, std::min
#include <cerrno>        // ENODATA
#include <charconv>      // std::from_chars
#include <cstddef>       // std::byte, std::size_t
#include <cstdint>       // std::int64_t, std::uint32_t, std::uint64_t, std::uint8_t
#include <span>          // std::span
#include <string>        // std::string
#include <string_view>   // std::string_view
#include <system_error>  // std::errc
#include <utility>       // std::move
#include <vector>        // std::vector

#include "gradus/checkpoint/crc32c.hpp"
#include "gradus/checkpoint/detail/file/header.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/file_system.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/safetensors.hpp"

namespace gradus::io {

/// The checksum of bytes of one tensor of a file.
struct range_checksum {
  std::size_t tensor = 0;      ///< index into header().tensors
  std::uint64_t bytes = 0;     ///< the length of the range
  std::uint32_t checksum = 0;  ///< CRC-32C
};

/// A checkpoint that is open to read. The file stays what it is until the object is destroyed, also if another process
/// deletes it or renames a new one over it. The constructor checks the header and its checksum; `compare_checksums`
/// checks the tensors.
class checkpoint_reader {
 public:
  /// Opens a file and reads its header.
  /// @throws format_error if it cannot be read or is not a checkpoint; the message says why
  explicit checkpoint_reader(std::string path, file_system& files = operating_system(),
                             error_location where = error_location::current())
      : files_{&files}, path_{std::move(path)} {
    at_call(where, [&, this] {
      file_ = open_file{files, path_, open_mode::read};
      if (file_.error() != 0) {
        refuse("a file that can be opened", errno_text(-file_.error()));
      }
      if (const int failed = uninterrupted([&, this] { return files.status(file_.number(), status_); })) {
        refuse("a file whose size is known", errno_text(-failed));
      }
      if (!status_.regular) {
        refuse("a regular file", "a folder, a pipe or a device");
      }
      std::vector<std::uint8_t> head(static_cast<std::size_t>(std::min<std::uint64_t>(status_.size, 8)));
      read_bytes(std::as_writable_bytes(std::span{head}), 0);
      head.resize(safetensors_buffer_begin(operation(), head, status_.size));
      read_bytes(std::as_writable_bytes(std::span{head}), 0);
      header_ = read_safetensors_header(operation(), head, status_.size);
      head_.assign(reinterpret_cast<const char*>(head.data()), head.size());
      check_header();
    });
  }

  /// The path, as the constructor got it.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// What the system says of the file that is open.
  [[nodiscard]] const file_status& status() const noexcept { return status_; }
  /// The bytes of the file before those of the tensors.
  [[nodiscard]] std::string_view head() const noexcept { return head_; }
  /// The metadata and the tensors in the order of their bytes.
  [[nodiscard]] const safetensors_header& header() const noexcept { return header_; }
  /// The step at which it was saved.
  [[nodiscard]] std::int64_t step() const noexcept { return step_; }
  /// True if it was saved as the best.
  [[nodiscard]] bool best() const noexcept { return metadata(detail::best_key) == "1"; }
  /// The identity of the job that saved it: 16 hexadecimal digits.
  [[nodiscard]] std::string_view job() const noexcept { return metadata(detail::job_key); }
  /// The identities of the jobs that it was resumed from, separated by spaces, the last first.
  [[nodiscard]] std::string_view ancestors() const noexcept { return metadata(detail::ancestors_key); }
  /// A text of the metadata; empty if there is none.
  [[nodiscard]] std::string_view metadata(std::string_view key) const noexcept {
    const auto found = header_.metadata.find(key);
    return found == header_.metadata.end() ? std::string_view{} : std::string_view{found->second};
  }
  /// The checksum in the header of the file, which sums all the others.
  [[nodiscard]] std::uint32_t header_checksum() const noexcept { return header_sum_; }

  /// Reads bytes of a tensor.
  /// @param tensor  one of header().tensors
  /// @param begin  offset of the first byte in the tensor
  /// @throws configuration_error if the range is not in the tensor
  /// @throws format_error if it cannot be read
  void read(const safetensors_entry& tensor, std::uint64_t begin, std::span<std::byte> into,
            error_location where = error_location::current()) const {
    const std::uint64_t size = tensor.end - tensor.begin;
    if (begin > size || into.size() > size - begin) {
      raise<configuration_error>(operation(), {"bytes of the ", size, " of '", tensor.name, "'"},
                                 {into.size(), " bytes from byte ", begin}, {}, where);
    }
    at_call(where, [&, this] { read_bytes(into, header_.buffer_begin + tensor.begin + begin); });
  }

  /// Compares all tensors with their checksums.
  /// @throws format_error with the first tensor that differs, or if the file cannot be read
  void compare_checksums(error_location where = error_location::current()) const {
    at_call(where, [&, this] { compare_checksums(checksums(0, header_.buffer_size())); });
  }

  /// The checksums of the bytes [begin, end) of the buffer, one for each tensor that has some of them.
  /// @throws format_error if they cannot be read
  [[nodiscard]] std::vector<range_checksum> checksums(std::uint64_t begin, std::uint64_t end) const {
    std::vector<range_checksum> sums;
    std::vector<std::byte> buffer;
    for (std::size_t i = 0; i < header_.tensors.size(); ++i) {
      const safetensors_entry& each = header_.tensors[i];
      const std::uint64_t first = std::max(each.begin, begin);
      const std::uint64_t last = std::min(each.end, end);
      if (first >= last) {
        continue;
      }
      range_checksum sum{.tensor = i, .bytes = last - first};
      for (std::uint64_t at = first; at < last; at += buffer.size()) {
        buffer.resize(static_cast<std::size_t>(std::min<std::uint64_t>(last - at, chunk_bytes)));
        read_bytes(buffer, header_.buffer_begin + at);
        sum.checksum = crc32c(buffer, sum.checksum);
      }
      sums.push_back(sum);
    }
    return sums;
  }

  /// Compares the tensors with checksums of ranges that cover the buffer in order.
  /// @throws format_error with the first tensor that differs
  void compare_checksums(std::span<const range_checksum> ranges,
                         error_location where = error_location::current()) const {
    std::vector<std::uint32_t> sums(header_.tensors.size(), 0);
    std::vector<std::uint64_t> bytes(header_.tensors.size(), 0);
    for (const range_checksum& each : ranges) {
      sums[each.tensor] = crc32c_combine(sums[each.tensor], each.checksum, each.bytes);
      bytes[each.tensor] += each.bytes;
    }
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const safetensors_entry& each = header_.tensors[i];
      const std::string& stated = header_.metadata.find(join({detail::checksum_keys, each.name}))->second;
      if (detail::checksum_text(sums[i]) != stated || bytes[i] != each.end - each.begin) {
        raise<format_error>(operation(), {"the tensor '", each.name, "' with the checksum ", stated},
                            detail::checksum_text(sums[i]), "its bytes have changed since the file was written", where);
      }
    }
  }

 private:
  static constexpr std::uint64_t chunk_bytes = std::uint64_t{1} << 20U;  // what a cache holds

  [[nodiscard]] std::string operation() const { return join({"read '", path_, "'"}); }

  [[noreturn]] void refuse(message_part expected, message_part actual, message_part hint = {}) const {
    raise<format_error>(operation(), expected, actual, hint);
  }

  void read_bytes(std::span<std::byte> into, std::uint64_t offset) const {
    const int failed = read_all(*files_, file_.number(), into, offset);
    if (failed != 0) {
      refuse({into.size(), " bytes at offset ", offset},
             failed == -ENODATA ? "the end of the file" : errno_text(-failed));
    }
  }

  void check_header() {
    const std::string_view format = metadata(checkpoint_key);
    if (format.empty()) {
      refuse({"a checkpoint: '", checkpoint_key, "' in its metadata"}, "none",
             "a file that has only weights is no checkpoint");
    }
    int number = 0;
    const auto [end, failure] = std::from_chars(format.data(), format.data() + format.size(), number);
    if (failure != std::errc{} || end != format.data() + format.size() || number < 1) {
      refuse("the number of a format", {"'", format, "'"});
    }
    if (number > detail::newest_format) {
      refuse({"a format up to ", detail::newest_format}, {"the newer format ", number},
             "read it with the version of gradus that wrote it");
    }
    const std::size_t position = detail::header_checksum_position(head_);
    const auto stated = detail::checksum_of_text(metadata(detail::header_checksum_key));
    if (position == std::string::npos || !stated ||
        std::string_view{head_}.substr(position, 8) != metadata(detail::header_checksum_key)) {
      refuse({"the checksum of the header: eight hexadecimal digits"},
             {"'", metadata(detail::header_checksum_key), "'"});
    }
    header_sum_ = detail::header_checksum(head_, position);
    if (header_sum_ != *stated) {
      refuse({"a header with the checksum ", detail::checksum_text(*stated)}, detail::checksum_text(header_sum_),
             "the bytes of the header have changed since the file was written");
    }
    for (const safetensors_entry& each : header_.tensors) {
      if (!detail::checksum_of_text(metadata(join({detail::checksum_keys, each.name})))) {
        refuse({"a checksum of '", each.name, "': eight hexadecimal digits"},
               {"'", metadata(join({detail::checksum_keys, each.name})), "'"});
      }
    }
    const std::string_view step = metadata(detail::step_key);
    const auto [last, wrong] = std::from_chars(step.data(), step.data() + step.size(), step_);
    if (wrong != std::errc{} || last != step.data() + step.size() || step_ < 0) {
      refuse("the number of a step", {"'", step, "'"});
    }
  }

  file_system* files_;
  std::string path_;
  open_file file_;
  file_status status_;
  std::string head_;
  safetensors_header header_;
  std::int64_t step_ = 0;
  std::uint32_t header_sum_ = 0;
};

}  // namespace gradus::io

// SPDX-License-Identifier: BSL-1.0
//
// A file of many encoded images with an index and checksums. Needs zlib (component gradus::gzip).
#pragma once

#include <zlib.h>  // crc32

#include <array>        // std::array
#include <cerrno>       // errno
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t, std::uint8_t, std::uint32_t, std::uint64_t
#include <cstdio>       // std::FILE, std::fopen, std::fread, std::fseek, std::ftell
#include <cstring>      // std::memcmp, std::strerror
#include <memory>       // std::make_unique, std::unique_ptr
#include <mutex>        // std::mutex, std::lock_guard
#include <span>         // std::as_bytes, std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/output_file.hpp"
#include "gradus/core/random.hpp"
#include "gradus/data/byte_source.hpp"
#include "gradus/data/encoded_images.hpp"

namespace gradus::data {

/// The format of a record file. All numbers are unsigned, without padding, in little-endian order.
///
///   part    | bytes                                                                              | repeated
///   head    | "GRADUSR1"                                                                         |
///   record  | the name, then the encoded image                                                   | for each
///   index   | offset of the record (8), bytes of the image (4) and of the name (4), label (4),   | for each
///           | CRC-32 of the record (4)                                                           |
///   foot    | offset of the index (8), records (8), classes (4), CRC-32 of the index (4), "GRADUSRX" |
///
/// CRC-32 is that of gzip. A file without a foot was not finished.
struct record_format {
  /// The first bytes of the file.
  static constexpr std::string_view head = "GRADUSR1";
  /// The last bytes of the file.
  static constexpr std::string_view end = "GRADUSRX";
  /// Bytes of an entry of the index.
  static constexpr std::size_t entry_bytes = 24;
  /// Bytes of the foot.
  static constexpr std::size_t foot_bytes = 32;
  static constexpr std::uint64_t most_record_bytes = std::uint64_t{1} << 30;  ///< limit for the bytes of one image
  /// Limit for the bytes of a name.
  static constexpr std::uint64_t most_name_bytes = 4096;
};

namespace detail {

struct file_closer {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};
using file_handle = std::unique_ptr<std::FILE, file_closer>;

inline void put_number(std::uint8_t* to, std::uint64_t value, std::size_t bytes) noexcept {
  for (std::size_t i = 0; i < bytes; ++i) {
    to[i] = static_cast<std::uint8_t>(value >> (8 * i));
  }
}
[[nodiscard]] inline std::uint64_t get_number(const std::uint8_t* from, std::size_t bytes) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = bytes; i-- > 0;) {
    value = (value << 8U) | from[i];
  }
  return value;
}

/// Continues the checksum `crc`; begin with 0.
[[nodiscard]] inline std::uint32_t checksum(std::uint32_t crc, std::span<const std::uint8_t> bytes) noexcept {
  // zlib restarts the checksum for a null pointer.
  return bytes.empty() ? crc : static_cast<std::uint32_t>(::crc32_z(crc, bytes.data(), bytes.size()));
}

/// One record in the index.
struct record_entry {
  std::uint64_t offset = 0;
  std::uint32_t image_bytes = 0;
  std::uint32_t name_bytes = 0;
  std::uint32_t label = 0;
  std::uint32_t crc = 0;
};

}  // namespace detail

/// Writes a record file.
///
///   data::record_writer file{"train.gradus", 1000};
///   file.add(label, "n01440764_18.JPEG", bytes);
///   file.finish();
class record_writer {
 public:
  /// @param classes  number of classes; labels are in [0, classes)
  /// @throws configuration_error if classes < 1
  /// @throws format_error if the file cannot be written
  record_writer(std::string path, int classes, error_location where = error_location::current()) try
      : path_{std::move(path)}, classes_{classes} {
    if (classes < 1) {
      gradus::raise<configuration_error>("record_writer", "classes of at least 1", {classes});
    }
    file_ = std::make_unique<io::output_file>(path_);
    write({reinterpret_cast<const std::uint8_t*>(record_format::head.data()), record_format::head.size()});
  } catch (error& failure) {
    failure.location_at_call(where);
  }

  /// Appends an image.
  /// @throws format_error if the label is out of range, the image or its name is too long, or the file cannot be
  /// written
  void add(std::int32_t label, std::string_view name, std::span<const std::uint8_t> image) {
    require_open();
    if (label < 0 || label >= classes_) {
      gradus::raise<format_error>({"record_writer '", path_, "'"}, {"labels from 0 to ", classes_ - 1},
                                  {"label ", label, " of '", name, "'"});
    }
    if (image.size() > record_format::most_record_bytes || name.size() > record_format::most_name_bytes) {
      gradus::raise<format_error>({"record_writer '", path_, "'"},
                                  {"an image of at most ", record_format::most_record_bytes,
                                   " bytes with a name of at most ", record_format::most_name_bytes},
                                  {image.size(), " bytes with a name of ", name.size()});
    }
    const std::span text{reinterpret_cast<const std::uint8_t*>(name.data()), name.size()};
    entries_.push_back({.offset = offset_,
                        .image_bytes = static_cast<std::uint32_t>(image.size()),
                        .name_bytes = static_cast<std::uint32_t>(name.size()),
                        .label = static_cast<std::uint32_t>(label),
                        .crc = detail::checksum(detail::checksum(0, text), image)});
    write(text);
    write(image);
  }

  /// Writes the index, makes the file durable and gives it its name. Without this call there is no file.
  /// @throws format_error if the file cannot be written
  void finish() {
    require_open();
    const std::uint64_t index = offset_;
    std::uint32_t crc = 0;
    for (const detail::record_entry& each : entries_) {
      std::array<std::uint8_t, record_format::entry_bytes> bytes{};
      detail::put_number(bytes.data(), each.offset, 8);
      detail::put_number(bytes.data() + 8, each.image_bytes, 4);
      detail::put_number(bytes.data() + 12, each.name_bytes, 4);
      detail::put_number(bytes.data() + 16, each.label, 4);
      detail::put_number(bytes.data() + 20, each.crc, 4);
      crc = detail::checksum(crc, bytes);
      write(bytes);
    }
    std::array<std::uint8_t, record_format::foot_bytes> foot{};
    detail::put_number(foot.data(), index, 8);
    detail::put_number(foot.data() + 8, entries_.size(), 8);
    detail::put_number(foot.data() + 16, static_cast<std::uint64_t>(classes_), 4);
    detail::put_number(foot.data() + 20, crc, 4);
    record_format::end.copy(reinterpret_cast<char*>(foot.data() + 24), record_format::end.size());
    write(foot);
    file_->commit();
    file_.reset();
  }

 private:
  void require_open() const {
    if (!file_) {
      gradus::raise<configuration_error>({"record_writer '", path_, "'"}, "a file that is being written",
                                         "a file that is finished");
    }
  }
  void write(std::span<const std::uint8_t> bytes) {
    file_->write(std::as_bytes(bytes));
    offset_ += bytes.size();
  }

  std::string path_;
  int classes_;
  std::unique_ptr<io::output_file> file_;  // null when it is finished
  std::uint64_t offset_ = 0;
  dynamic_array<detail::record_entry> entries_;
};

/// The images of a record file. The constructor reads and checks the index. Each image is read on request, so a record
/// with a wrong checksum affects only its image.
class record_file final : public encoded_images {
 public:
  /// @throws format_error if the file cannot be read, is not a record file, was not finished, or has a damaged index
  explicit record_file(const std::string& path, error_location where = error_location::current()) try : path_{path} {
    { const file_source must_exist{path}; }
    errno = 0;
    file_.reset(std::fopen(path.c_str(), "rb"));
    if (!file_) {
      refuse("a file that can be read", std::strerror(errno));
    }
    const std::uint64_t bytes = size_of_file();
    read_index(bytes);
  } catch (error& failure) {
    failure.location_at_call(where);
  }

  /// The number of images.
  [[nodiscard]] index_t size() const override { return static_cast<index_t>(entries_.size()); }
  /// The number of classes.
  [[nodiscard]] int classes() const override { return classes_; }
  [[nodiscard]] std::int32_t label(index_t i) const override {
    return static_cast<std::int32_t>(entries_[static_cast<std::size_t>(i)].label);
  }
  /// The name of image i in messages: "train.gradus, record 7 (n01440764_18.JPEG)".
  [[nodiscard]] std::string name(index_t i) const override {
    const detail::record_entry& entry = entries_[static_cast<std::size_t>(i)];
    std::string text(entry.name_bytes, '\0');
    try {
      read_at(entry.offset, {reinterpret_cast<std::uint8_t*>(text.data()), text.size()});
    } catch (const format_error&) {
      text = "name lost";
    }
    for (char& letter : text) {  // a damaged name must not send control characters to a terminal
      letter = letter >= ' ' && letter <= '~' ? letter : '?';
    }
    return gradus::join({path_, ", record ", i, " (", text, ")"});
  }
  [[nodiscard]] std::uint64_t hash() const override { return hash_; }

  /// @throws configuration_error unless 0 <= i < size()
  /// @throws format_error if the checksum is wrong
  void read(index_t i, std::vector<std::uint8_t>& bytes) const override {
    if (i < 0 || i >= size()) {
      gradus::raise<configuration_error>({"record_file '", path_, "'"}, {"a record from 0 to ", size() - 1}, {i});
    }
    const detail::record_entry& entry = entries_[static_cast<std::size_t>(i)];
    bytes.resize(entry.name_bytes + std::size_t{entry.image_bytes});
    read_at(entry.offset, bytes);
    if (const std::uint32_t crc = detail::checksum(0, bytes); crc != entry.crc) {
      gradus::raise<format_error>({"read '", name(i), "'"}, {"the checksum ", entry.crc}, {crc},
                                  "the file is damaged: copy it again");
    }
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(entry.name_bytes));
  }

 private:
  [[nodiscard]] std::uint64_t size_of_file() const {
    const long size = std::fseek(file_.get(), 0, SEEK_END) == 0 ? std::ftell(file_.get()) : -1;
    if (size < 0) {
      refuse("a file that can be read", std::strerror(errno));
    }
    return static_cast<std::uint64_t>(size);
  }

  void read_at(std::uint64_t offset, std::span<std::uint8_t> into) const {
    const std::lock_guard lock{mutex_};
    errno = 0;
    if (std::fseek(file_.get(), static_cast<long>(offset), SEEK_SET) != 0 ||
        (!into.empty() && std::fread(into.data(), 1, into.size(), file_.get()) != into.size())) {
      gradus::raise<format_error>({"read '", path_, "'"}, {into.size(), " bytes at ", offset},
                                  errno != 0 ? std::strerror(errno) : "the end of the file");
    }
  }

  void read_index(std::uint64_t file_bytes) {
    constexpr std::uint64_t least = record_format::head.size() + record_format::foot_bytes;
    if (file_bytes < least) {
      refuse("a record file", gradus::join({file_bytes, " bytes"}), "it is not a record file, or it is truncated");
    }
    std::array<std::uint8_t, record_format::head.size()> head{};
    read_at(0, head);
    if (std::memcmp(head.data(), record_format::head.data(), head.size()) != 0) {
      refuse("a record file", "a file with another beginning", "write one with data::record_writer");
    }
    std::array<std::uint8_t, record_format::foot_bytes> foot{};
    read_at(file_bytes - foot.size(), foot);
    if (std::memcmp(foot.data() + 24, record_format::end.data(), record_format::end.size()) != 0) {
      refuse("a finished record file", "a file without a foot", "its writer ended early, or the file is truncated");
    }
    const std::uint64_t index = detail::get_number(foot.data(), 8);
    const std::uint64_t count = detail::get_number(foot.data() + 8, 8);
    const std::uint64_t classes = detail::get_number(foot.data() + 16, 4);
    const std::uint64_t index_end = file_bytes - foot.size();
    if (index < head.size() || index > index_end || (index_end - index) % record_format::entry_bytes != 0 ||
        (index_end - index) / record_format::entry_bytes != count || classes < 1 || classes > 0x7fffffffU) {
      refuse("an index that fills the file up to its end and at least one class",
             gradus::join(
                 {count, " records from ", index, " on, ", classes, " classes, in a file of ", file_bytes, " bytes"}));
    }
    classes_ = static_cast<int>(classes);
    std::vector<std::uint8_t> bytes(index_end - index);
    read_at(index, bytes);
    const std::uint32_t crc = detail::checksum(0, bytes);
    if (crc != detail::get_number(foot.data() + 20, 4)) {
      refuse("an index with the correct checksum", "another one", "the file is damaged: copy it again");
    }
    hash_ = gradus::detail::mix_bits(crc ^ (count << 32U));
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint8_t* const at = bytes.data() + i * record_format::entry_bytes;
      const detail::record_entry entry{.offset = detail::get_number(at, 8),
                                       .image_bytes = static_cast<std::uint32_t>(detail::get_number(at + 8, 4)),
                                       .name_bytes = static_cast<std::uint32_t>(detail::get_number(at + 12, 4)),
                                       .label = static_cast<std::uint32_t>(detail::get_number(at + 16, 4)),
                                       .crc = static_cast<std::uint32_t>(detail::get_number(at + 20, 4))};
      const std::uint64_t length = std::uint64_t{entry.image_bytes} + entry.name_bytes;
      if (entry.offset < head.size() || entry.offset > index || length > index - entry.offset ||
          entry.image_bytes > record_format::most_record_bytes || entry.name_bytes > record_format::most_name_bytes ||
          entry.label >= classes) {
        refuse(gradus::join({"records before the index with labels from 0 to ", classes - 1}),
               gradus::join({"record ", i, " of ", length, " bytes at ", entry.offset, " with label ", entry.label}));
      }
      entries_.push_back(entry);
    }
  }

  [[noreturn]] void refuse(std::string_view expected, std::string_view actual, std::string_view hint = {}) const {
    gradus::raise<format_error>({"record_file '", path_, "'"}, expected, actual, hint);
  }

  std::string path_;
  detail::file_handle file_;
  mutable std::mutex mutex_;  // protects the position in the file
  int classes_ = 0;
  std::uint64_t hash_ = 0;
  dynamic_array<detail::record_entry> entries_;
};

}  // namespace gradus::data

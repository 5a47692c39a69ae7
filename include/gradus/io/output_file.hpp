// SPDX-License-Identifier: BSL-1.0
//
// A file that appears under its name when it is complete.
#pragma once

#include <unistd.h>  // getpid

#include <cerrno>       // EEXIST, EINTR, EINVAL
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::uint64_t
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move

#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/file_system.hpp"

namespace gradus::io {

/// Writes a file from its begin to its end under a temporary name in the same folder. `commit` syncs it and gives it
/// its name; until then, what had the name before stays as it is. Without `commit` nothing remains. After a crash of
/// the system, too, there is the old file or the new one, complete. A process that is killed leaves the temporary file,
/// "NAME.tmp-PROCESS-NUMBER", behind.
class output_file {
 public:
  /// Creates the temporary file.
  /// @param files  the calls of the operating system
  /// @throws format_error if the folder does not exist or cannot be written
  explicit output_file(std::string path, file_system& files = operating_system(),
                       error_location where = error_location::current())
      : files_{&files}, path_{std::move(path)} {
    constexpr int most_names = 1000;
    for (int i = 0; i < most_names; ++i) {
      temporary_ = join({path_, ".tmp-", static_cast<long>(::getpid()), "-", i});
      file_ = open_file{files, temporary_, open_mode::create};
      if (file_.error() != -EEXIST) {
        break;
      }
    }
    if (file_.error() != 0) {
      const std::string reason = errno_text(-file_.error());
      temporary_.clear();
      raise<format_error>({"write '", path_, "'"}, "a file that can be written", reason,
                          "check the folder and its permissions", where);
    }
  }
  output_file(const output_file&) = delete;
  output_file& operator=(const output_file&) = delete;
  ~output_file() { discard(); }

  /// Appends bytes.
  /// @throws format_error if they cannot be written: the file system is full, or an error of the device
  void write(std::span<const std::byte> bytes, error_location where = error_location::current()) {
    require(write_all(*files_, file_.number(), bytes, size_), {"room for ", bytes.size(), " bytes"}, where);
    size_ += bytes.size();
  }
  /// Appends a text.
  void write(std::string_view text, error_location where = error_location::current()) {
    write(std::as_bytes(std::span{text.data(), text.size()}), where);
  }
  /// The number of bytes that were written.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

  /// Waits until the bytes are on the device, and gives the file its name. Nothing can be written afterwards.
  /// @throws format_error if that fails; the file of that name is the old one then, unless only the sync of the folder
  /// failed
  void commit(error_location where = error_location::current()) {
    require(uninterrupted([&, this] { return files_->sync(file_.number()); }), "bytes that reach the device", where);
    const int closed = file_.close();
    require(closed == -EINTR ? 0 : closed, "bytes that reach the device", where);
    require(uninterrupted([&, this] { return files_->rename(temporary_, path_, true); }), "a file that can be replaced",
            where);
    temporary_.clear();
    const std::size_t slash = path_.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
    const int synced = uninterrupted([&, this] { return files_->sync_folder(folder); });
    // Some file systems cannot sync folders.
    require(synced == -EINVAL ? 0 : synced, "a name that reaches the device", where);
  }

 private:
  void require(int result, message_part expected, error_location where) {
    if (result != 0) {
      raise<format_error>({"write '", path_, "'"}, expected, errno_text(-result), {}, where);
    }
  }
  void discard() noexcept {
    (void)file_.close();
    if (!temporary_.empty()) {
      files_->remove(temporary_);
    }
  }

  file_system* files_;
  std::string path_;
  std::string temporary_;  // empty once it is gone
  open_file file_;
  std::uint64_t size_ = 0;
};

}  // namespace gradus::io

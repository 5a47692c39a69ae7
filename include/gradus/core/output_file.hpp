// SPDX-License-Identifier: BSL-1.0
//
// A file that appears under its name when it is complete; or a pipe or a device.
#pragma once

#include <unistd.h>  // getpid

#include <cerrno>       // EEXIST, EINTR, EINVAL, ENOTSUP, ENXIO, EPIPE, EROFS
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::uint64_t
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/file_system.hpp"
#include "gradus/core/text.hpp"

namespace gradus::io {

/// Writes a file from its begin to its end under a temporary name in the same folder. `commit` syncs it and gives it
/// its name; until then, what had the name before stays as it is. Without `commit` nothing remains. After a crash of
/// the system, too, there is the old file or the new one, complete. A process that is killed leaves the temporary file,
/// "NAME.tmp-PROCESS-NUMBER", behind.
///
/// A symbolic link is followed: it goes on leading to the file. Only a regular file is replaced, and the new one has
/// its permissions: a pipe, a device and an open file ("/dev/stdout") are written to.
///
/// Everything that the library writes as a whole is written by it: weights, models, arrays, data sets, traces. (A
/// checkpoint, which many ranks write, has a protocol of its own: io::checkpoint_writer.)
class output_file {
 public:
  /// Creates the temporary file, or opens what is written in place. Waits some seconds for a program that reads a
  /// pipe.
  /// @param files  the calls of the operating system
  /// @throws format_error if the folder does not exist or cannot be written, or no program reads the pipe
  explicit output_file(std::string path, file_system& files = operating_system(),
                       error_location where = error_location::current())
      : files_{&files}, path_{std::move(path)} {
    target_ = files.resolve_output(path_);
    if (target_.error != 0) {
      refuse(target_.error, "check the folder and its permissions", where);
    }
    if (target_.in_place) {
      file_ = open_file{files, target_.path, open_mode::append};
      if (file_.error() != 0) {
        refuse(file_.error(), file_.error() == -ENXIO ? "start the program that reads the pipe first" : "", where);
      }
      return;
    }
    constexpr int most_names = 1000;
    for (int i = 0; i < most_names; ++i) {
      temporary_ = join({target_.path, ".tmp-", static_cast<long>(::getpid()), "-", i});
      file_ = open_file{files, temporary_, open_mode::create};
      if (file_.error() != -EEXIST) {
        break;
      }
    }
    if (file_.error() != 0) {
      temporary_.clear();
      refuse(file_.error(), "check the folder and its permissions", where);
    }
    (void)files.copy_permissions(target_.path, file_.number());  // some file systems have no permissions
  }
  output_file(const output_file&) = delete;
  output_file& operator=(const output_file&) = delete;
  ~output_file() { discard(); }

  /// Appends bytes. A few are kept, to be written together with those that follow.
  /// @throws format_error if they cannot be written: the file system is full, or an error of the device
  void write(std::span<const std::byte> bytes, error_location where = error_location::current()) {
    constexpr std::size_t buffer_bytes = std::size_t{1} << 16U;
    if (buffer_.size() + bytes.size() > buffer_bytes) {
      flush(where);
    }
    if (bytes.size() > buffer_bytes) {
      write_now(bytes, where);
    } else {
      buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    }
  }
  /// Appends a text.
  void write(std::string_view text, error_location where = error_location::current()) {
    write(std::as_bytes(std::span{text.data(), text.size()}), where);
  }
  /// The number of bytes that were written.
  [[nodiscard]] std::uint64_t size() const noexcept { return written_ + buffer_.size(); }

  /// Waits until the bytes are on the device, and gives the file its name. Nothing can be written afterwards.
  /// @throws format_error if that fails; the file of that name is the old one then, unless only the sync of the folder
  /// failed
  void commit(error_location where = error_location::current()) {
    flush(where);
    const int reached = uninterrupted([&, this] { return files_->sync(file_.number()); });
    const bool cannot = target_.in_place && (reached == -EINVAL || reached == -EROFS || reached == -ENOTSUP);
    require(cannot ? 0 : reached, "bytes that reach the device", where);
    const int closed = file_.close();
    require(closed == -EINTR ? 0 : closed, "bytes that reach the device", where);
    if (target_.in_place) {
      return;
    }
    require(uninterrupted([&, this] { return files_->rename(temporary_, target_.path, true); }),
            "a file that can be replaced", where);
    temporary_.clear();
    const std::size_t slash = target_.path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : target_.path.substr(0, slash + 1);
    const int synced = uninterrupted([&, this] { return files_->sync_folder(folder); });
    // Some file systems cannot sync folders.
    require(synced == -EINVAL ? 0 : synced, "a name that reaches the device", where);
  }

 private:
  void write_now(std::span<const std::byte> bytes, error_location where) {
    const int failed = target_.in_place ? append_all(*files_, file_.number(), bytes)
                                        : write_all(*files_, file_.number(), bytes, written_);
    require(failed, {failed == -EPIPE ? "a reader of " : "room for ", bytes.size(), " bytes"}, where);
    written_ += bytes.size();
  }
  void flush(error_location where) {
    if (!buffer_.empty()) {
      write_now(buffer_, where);
      buffer_.clear();
    }
  }
  [[noreturn]] void refuse(int error, std::string_view hint, error_location where) const {
    raise<format_error>({"write '", path_, "'"}, "a file that can be written", errno_text(-error), hint, where);
  }
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
  output_target target_;
  std::string temporary_;  // empty once it is gone
  open_file file_;
  std::uint64_t written_ = 0;
  std::vector<std::byte> buffer_;  // what comes after that
};

}  // namespace gradus::io

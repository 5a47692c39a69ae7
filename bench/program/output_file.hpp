// SPDX-License-Identifier: BSL-1.0
//
// Files that programs write at the end of long work: opened before it, whole or not there after it.
#pragma once

#include <fcntl.h>     // open
#include <sys/stat.h>  // fchmod, stat
#include <unistd.h>    // access, close, ftruncate, getpid, unlink

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "gradus/core/file_system.hpp"

namespace program {

/// Files that are not finished, where a signal handler finds them: fixed memory, and no locks. Programs have a handful.
class unfinished_files {
 public:
  struct entry {
    char path[4096];    ///< empty: not used
    char target[4096];  ///< what it is to be called in the end
    char under[4200];   ///< what gradus::io::output_file calls it while the library writes it
  };

  [[nodiscard]] static std::array<entry, 16>& all() noexcept {
    static std::array<entry, 16> list{};
    return list;
  }

  /// For signal handlers, too.
  static void remove_all() noexcept {
    for (const entry& each : all()) {
      if (each.path[0] != '\0') {
        unlink(each.path);
        unlink(each.under);
      }
    }
  }
};

/// Whether both names lead to one file that is there.
[[nodiscard]] inline bool same_file(const std::string& a, const std::string& b) {
  struct stat first {};
  struct stat second {};
  return stat(a.c_str(), &first) == 0 && stat(b.c_str(), &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

/// A file that has its name when `commit` is called, and nothing of it is left if that is not called. What had the name
/// before stays until then. A symbolic link is followed. Devices, pipes and open files ("/dev/stdout") are opened
/// before the work, and written to. Files that only they themselves can be written to (hard links, or folders without
/// the permission) are written where they are.
class output_file {
 public:
  /// Nothing: no file was asked for.
  output_file() = default;

  /// @param option  as messages call it: "--json"
  /// @param path    empty: nothing
  /// @throws std::invalid_argument with the system's reason when it cannot be written, or when it is one that is
  ///         written already
  output_file(std::string option, const std::string& path) : option_{std::move(option)}, path_{path} {
    if (path.empty()) {
      return;
    }
    namespace fs = std::filesystem;
    std::error_code ignored;
    gradus::io::file_system& files = gradus::io::operating_system();
    const gradus::io::output_target target = files.resolve_output(path);
    if (target.error != 0) {
      refuse(-target.error);
    }
    target_ = target.path;
    struct stat found {};
    const bool exists = stat(target_.c_str(), &found) == 0;
    if (exists && access(target_.c_str(), W_OK) != 0) {
      refuse(errno);
    }
    for (const unfinished_files::entry& each : unfinished_files::all()) {
      if (each.path[0] != '\0' &&
          fs::weakly_canonical(each.target, ignored) == fs::weakly_canonical(target_, ignored)) {
        throw std::invalid_argument{option_ + ": '" + path_ + "' is written by another option too"};
      }
    }
    if (target.in_place) {
      open_ = files.open(target_, gradus::io::open_mode::append);
      if (open_ < 0) {
        refuse(-open_);
      }
      unfinished_ = target_;
      return;
    }
    if (exists && found.st_nlink > 1) {
      unfinished_ = target_;
      return;
    }
    for (int attempt = 0;; ++attempt) {
      unfinished_ = target_ + '.' + std::to_string(getpid()) + '-' + std::to_string(attempt) + ".tmp";
      const int file = open(unfinished_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (file >= 0) {
        if (exists) {
          static_cast<void>(fchmod(file, found.st_mode & 07777));
        }
        close(file);
        remember();
        return;
      }
      if (errno != EEXIST) {
        const int error = errno;
        if (exists && (error == EACCES || error == EPERM)) {
          unfinished_ = target_;
          return;
        }
        refuse(error);
      }
    }
  }

  output_file(output_file&& other) noexcept { swap(other); }
  output_file& operator=(output_file&& other) noexcept {
    output_file taken{std::move(other)};
    swap(taken);
    return *this;
  }
  ~output_file() {
    unlink_unfinished();
    if (open_ >= 0) {
      close(open_);
    }
    forget();
  }

  /// Whether there is a file to write.
  [[nodiscard]] explicit operator bool() const noexcept { return !unfinished_.empty(); }
  /// What it is called in the end, as the user wrote it.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Where it is to be written, for what writes to a path. What goes to a pipe, or where it is, is a file for temporary
  /// ones until then: the library replaces files.
  /// @throws std::invalid_argument
  [[nodiscard]] const std::string& unfinished() {
    if (!unfinished_.empty() && unfinished_ == target_) {
      if (open_ < 0) {
        open_ = open(target_.c_str(), O_WRONLY | O_CLOEXEC);
        if (open_ < 0) {
          refuse(errno);
        }
        replaced_ = true;
      }
      const char* const chosen = std::getenv("TMPDIR");
      std::string made = std::string{chosen == nullptr || *chosen == '\0' ? "/tmp" : chosen} + "/gradus_output.XXXXXX";
      const int file = mkstemp(made.data());
      if (file < 0) {
        refuse(errno);
      }
      close(file);
      unfinished_ = made;
      remember();
    }
    return unfinished_;
  }

  /// @throws std::invalid_argument when `input` is what would be overwritten, by whatever name
  void require_not(const std::string& input) const {
    if (!unfinished_.empty() && same_file(target_, input)) {
      throw std::invalid_argument{option_ + ": '" + path_ + "' is the input '" + input +
                                  "', which would be overwritten: choose another name"};
    }
  }

  /// The whole content, and its name. Does nothing if no file was asked for. @throws std::invalid_argument
  void write(std::string_view text) {
    if (unfinished_.empty()) {
      return;
    }
    if (open_ >= 0) {
      write_to_open(text);
      return commit();
    }
    std::FILE* const file = std::fopen(unfinished_.c_str(), "wb");
    if (file == nullptr) {
      refuse(errno);
    }
    errno = 0;
    const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
    const int error = errno;
    const bool closed = std::fclose(file) == 0;
    if (!written || !closed) {
      refuse(written ? errno : error);
    }
    commit();
  }

  /// All is written: the file gets its name. @throws std::invalid_argument
  void commit() {
    if (open_ >= 0) {
      if (unfinished_ != target_) {
        copy_to_open();
      }
      const int closed = close(std::exchange(open_, -1));
      if (closed != 0 && errno != EINTR) {
        refuse(errno);
      }
      unlink_unfinished();
    } else if (!unfinished_.empty() && unfinished_ != target_ &&
               std::rename(unfinished_.c_str(), target_.c_str()) != 0) {
      refuse(errno);
    }
    forget();
    unfinished_.clear();
    target_.clear();
  }

 private:
  [[noreturn]] void refuse(int error) const {
    throw std::invalid_argument{option_ + ": cannot write '" + path_ + "': " +
                                (error == ENXIO   ? "no program reads the pipe: start it first"
                                 : error == EPIPE ? "the program that reads the pipe has ended"
                                                  : std::strerror(error))};
  }

  void write_to_open(std::string_view text) {
    std::fflush(stdout);  // it may be the same
    if (std::exchange(replaced_, false) && ftruncate(open_, 0) != 0) {
      refuse(errno);
    }
    const auto bytes = std::as_bytes(std::span{text.data(), text.size()});
    if (const int failed = gradus::io::append_all(gradus::io::operating_system(), open_, bytes); failed != 0) {
      refuse(-failed);
    }
  }
  void copy_to_open() {
    std::ifstream from{unfinished_, std::ios::binary};
    std::string part(std::size_t{1} << 20U, '\0');
    while (from.read(part.data(), static_cast<std::streamsize>(part.size())), from.gcount() > 0) {
      write_to_open(std::string_view{part}.substr(0, static_cast<std::size_t>(from.gcount())));
    }
  }
  void unlink_unfinished() const noexcept {
    if (unfinished_ != target_) {
      unlink(unfinished_.c_str());
    }
  }

  void remember() noexcept {
    for (unfinished_files::entry& each : unfinished_files::all()) {
      if (each.path[0] == '\0' && unfinished_.size() < sizeof(each.path)) {
        target_.copy(each.target, sizeof(each.target) - 1);
        each.target[std::min(target_.size(), sizeof(each.target) - 1)] = '\0';
        const std::string under = unfinished_ + ".tmp-" + std::to_string(getpid()) + "-0";
        each.under[under.copy(each.under, sizeof(each.under) - 1)] = '\0';
        std::memcpy(each.path + 1, unfinished_.c_str() + 1, unfinished_.size());  // with the end
        each.path[0] = unfinished_[0];                                            // from now on it is there
        entry_ = &each;
        return;
      }
    }
  }
  void forget() noexcept {
    if (entry_ != nullptr) {
      entry_->path[0] = '\0';
      entry_ = nullptr;
    }
  }
  void swap(output_file& other) noexcept {
    std::swap(option_, other.option_);
    std::swap(path_, other.path_);
    std::swap(target_, other.target_);
    std::swap(unfinished_, other.unfinished_);
    std::swap(entry_, other.entry_);
    std::swap(open_, other.open_);
    std::swap(replaced_, other.replaced_);
  }

  std::string option_;
  std::string path_;
  std::string target_;
  std::string unfinished_;
  unfinished_files::entry* entry_ = nullptr;
  int open_ = -1;          // what is written in place
  bool replaced_ = false;  // that is a file, whose content goes first
};

}  // namespace program

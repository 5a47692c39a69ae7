// SPDX-License-Identifier: BSL-1.0
//
// Where an output file goes: links are followed, regular files replaced, pipes and devices written to.
#pragma once

#include <fcntl.h>     // fcntl, open
#include <signal.h>    // pthread_sigmask, sigpending, sigwait
#include <sys/stat.h>  // lstat, stat
#include <unistd.h>    // readlink, write
#if defined(__linux__)
#include <sys/vfs.h>  // statfs
#endif

#include <cerrno>   // errno
#include <chrono>   // std::chrono
#include <cstddef>  // std::byte
#include <cstdint>  // std::int64_t
#include <span>     // std::span
#include <string>   // std::string
#include <thread>   // std::this_thread

#include "gradus/core/config.hpp"

namespace gradus::io::detail {

/// Where the bytes of an output file go.
struct output_target {
  std::string path = {};  ///< behind all links: of the file that is made or replaced, or what `in_place` is written to
  /// A pipe or a device, or a file that a process has open ("/dev/stdout", "/proc/self/fd/3"): nothing takes its name.
  bool in_place = false;
  int error = 0;  ///< the negative errno: nothing can be written there
};

/// Whether the last part of a path stands for an open file. The text of such a link need not be a path.
[[nodiscard]] inline bool is_open_file_of_proc([[maybe_unused]] const std::string& folder) noexcept {
#if defined(__linux__)
  constexpr auto proc = 0x9fa0;  // PROC_SUPER_MAGIC
  struct statfs found {};
  return ::statfs(folder.c_str(), &found) == 0 && found.f_type == proc;
#else
  return false;
#endif
}

/// Follows the links of a path, also to a file that is not there yet.
[[nodiscard]] inline output_target resolve_output(const std::string& path) {
  constexpr int most_links = 40;
  std::string at = path;
  for (int links = 0; links <= most_links; ++links) {
    struct stat found {};
    if (::lstat(at.c_str(), &found) != 0) {
      return {.path = at, .error = errno == ENOENT ? 0 : -errno};
    }
    if (S_ISDIR(found.st_mode)) {
      return {.path = at, .error = -EISDIR};
    }
    if (!S_ISLNK(found.st_mode)) {
      return {.path = at, .in_place = !S_ISREG(found.st_mode)};
    }
    const std::size_t slash = at.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : at.substr(0, slash == 0 ? 1 : slash);
    if (is_open_file_of_proc(folder)) {
      if (::stat(at.c_str(), &found) != 0) {
        return {.path = at, .error = -errno};
      }
      return {.path = at, .in_place = true, .error = S_ISDIR(found.st_mode) ? -EISDIR : 0};
    }
    char text[4096];
    const ::ssize_t length = ::readlink(at.c_str(), text, sizeof(text));
    if (length < 0 || length == static_cast<::ssize_t>(sizeof(text))) {
      return {.path = at, .error = length < 0 ? -errno : -ENAMETOOLONG};
    }
    const std::string target(text, static_cast<std::size_t>(length));
    at = target.starts_with('/') ? target : folder + "/" + target;
  }
  return {.path = path, .error = -ELOOP};
}

/// Opens a target that is written in place. Waits some seconds for a program that reads a pipe.
/// @return a descriptor, or the negative errno: -ENXIO for a pipe that no program reads
[[nodiscard]] inline int open_in_place(const std::string& path) noexcept {
  constexpr std::chrono::seconds patience{5};
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (file >= 0) {
      ::fcntl(file, F_SETFL, ::fcntl(file, F_GETFL) & ~O_NONBLOCK);
      return file;
    }
    struct stat found {};
    const int error = errno;
    const bool waits = error == ENXIO && ::stat(path.c_str(), &found) == 0 && S_ISFIFO(found.st_mode);
    if (error != EINTR && (!waits || std::chrono::steady_clock::now() >= deadline)) {
      return -error;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
}

/// As write(2), without a signal when the reader of a pipe has ended: -EPIPE then.
[[nodiscard]] inline std::int64_t write_in_place(int file, std::span<const std::byte> bytes) noexcept {
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  sigset_t pending;
  sigpending(&pending);
  const bool was_pending = sigismember(&pending, SIGPIPE) == 1;
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, &pipe, &before);
  const ::ssize_t written = ::write(file, bytes.data(), bytes.size());
  const int error = errno;
  if (written < 0 && error == EPIPE && !was_pending) {
    sigpending(&pending);
    if (int taken = 0; sigismember(&pending, SIGPIPE) == 1) {
      sigwait(&pipe, &taken);
    }
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return written < 0 ? -static_cast<std::int64_t>(error) : static_cast<std::int64_t>(written);
}

}  // namespace gradus::io::detail

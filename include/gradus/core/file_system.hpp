// SPDX-License-Identifier: BSL-1.0
//
// The calls of the operating system that writing of files needs, behind an interface, so that tests can record them,
// let them fail and lose what was not synced.
#pragma once

#include <dirent.h>       // opendir, readdir, closedir
#include <fcntl.h>        // fcntl, open
#include <signal.h>       // pthread_sigmask, sigpending, sigwait
#include <sys/file.h>     // flock
#include <sys/stat.h>     // fchmod, fstat, lstat, mkdir, stat
#include <sys/statvfs.h>  // statvfs
#include <sys/types.h>    // off_t
#include <unistd.h>       // close, fsync, ftruncate, link, pread, pwrite, readlink, unlink, write
#if defined(__linux__)
#include <sys/vfs.h>  // statfs
#endif

#include <algorithm>     // std::min
#include <cerrno>        // errno, EINTR, ENOENT, ENOTSUP
#include <chrono>        // std::chrono
#include <cstddef>       // std::byte, std::size_t
#include <cstdint>       // std::int64_t, std::uint64_t
#include <cstdio>        // std::rename, renameat2
#include <span>          // std::span
#include <string>        // std::string
#include <string_view>   // std::string_view
#include <system_error>  // std::generic_category
#include <thread>        // std::this_thread
#include <utility>       // std::exchange
#include <vector>        // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/text.hpp"

namespace gradus::io {

/// Where the bytes of an output file go.
struct output_target {
  std::string path = {};  ///< behind all links: of the file that is made or replaced, or what `in_place` is written to
  /// A pipe or a device, or a file that a process has open ("/dev/stdout", "/proc/self/fd/3"): nothing takes its name.
  bool in_place = false;
  int error = 0;  ///< the negative errno: nothing can be written there
};

namespace detail {

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

}  // namespace detail

/// How a file is opened.
enum class open_mode {
  read,    ///< an existing file, to read; a pipe does not block
  write,   ///< an existing regular file, to write; the last part of the path must not be a symbolic link
  create,  ///< a new file, to write; fails if the path exists, also as a symbolic link
  append,  ///< a pipe, a device or an open file, to write at its end; -ENXIO if no program reads a pipe
};

/// What a path is.
struct file_status {
  bool regular = false;       ///< a regular file
  bool link = false;          ///< a symbolic link
  std::uint64_t size = 0;     ///< bytes
  std::int64_t modified = 0;  ///< the time of the last change, in seconds since 1970
  std::uint64_t device = 0;   ///< of the file, and
  std::uint64_t number = 0;   ///< its number there: together they tell the files of a machine apart
  std::int64_t owner = -1;    ///< the number of the user whose it is; -1 if unknown
};

/// The calls of the operating system. Functions that return int return 0, or for `open` a descriptor, or the negative
/// errno. A call may be interrupted (-EINTR) or transfer fewer bytes than it is asked for.
class file_system {
 public:
  file_system() = default;
  file_system(const file_system&) = delete;
  file_system& operator=(const file_system&) = delete;
  virtual ~file_system() = default;

  /// As open(2). The descriptor is closed when the process executes another program.
  [[nodiscard]] virtual int open(const std::string& path, open_mode mode) = 0;
  /// As close(2). The descriptor is gone, whatever it returns.
  virtual int close(int file) = 0;
  /// As pwrite(2): the number of bytes written, or the negative errno.
  [[nodiscard]] virtual std::int64_t write(int file, std::span<const std::byte> bytes, std::uint64_t offset) = 0;
  /// As write(2), of what `append` has opened. A pipe whose reader has ended gives -EPIPE, and no signal.
  [[nodiscard]] virtual std::int64_t append(int /*file*/, std::span<const std::byte> /*bytes*/) { return -ENOTSUP; }
  /// As pread(2): the number of bytes read, 0 at the end of the file, or the negative errno.
  [[nodiscard]] virtual std::int64_t read(int file, std::span<std::byte> bytes, std::uint64_t offset) = 0;
  /// As ftruncate(2).
  [[nodiscard]] virtual int resize(int file, std::uint64_t size) = 0;
  /// As fsync(2): the content of the file survives a crash of the system.
  [[nodiscard]] virtual int sync(int file) = 0;
  /// As fsync(2) of a folder: its entries survive a crash of the system.
  [[nodiscard]] virtual int sync_folder(const std::string& path) = 0;
  /// As flock(2) with LOCK_EX and LOCK_NB: -EWOULDBLOCK if another process or another descriptor has the lock.
  [[nodiscard]] virtual int lock(int file) = 0;
  /// As rename(2). Replaces what has the name `to`; or, without `replace`, returns -EEXIST if there is something.
  [[nodiscard]] virtual int rename(const std::string& from, const std::string& to, bool replace) = 0;
  /// As unlink(2). A symbolic link itself is removed, not what it refers to.
  virtual int remove(const std::string& path) = 0;
  /// Where a file that is written as a whole goes: behind the links of the path.
  [[nodiscard]] virtual output_target resolve_output(const std::string& path) { return {.path = path}; }
  /// Gives an open file the permissions that the file `from` has, as stat(2) and fchmod(2). A `from` that does not
  /// exist is no error.
  [[nodiscard]] virtual int copy_permissions(const std::string& /*from*/, int /*file*/) { return 0; }
  /// As fstat(2).
  [[nodiscard]] virtual int status(int file, file_status& into) = 0;
  /// As lstat(2).
  [[nodiscard]] virtual int status(const std::string& path, file_status& into) = 0;
  /// The names in a folder, in any order.
  [[nodiscard]] virtual int list(const std::string& folder, std::vector<std::string>& into) = 0;
  /// As mkdir(2), for each missing folder of the path. A folder that exists is no error.
  [[nodiscard]] virtual int make_folder(const std::string& path) = 0;
  /// Bytes that this process may still write to the file system of the folder, or -1 if unknown.
  [[nodiscard]] virtual std::int64_t free_bytes(const std::string& folder) = 0;
};

/// The text of an errno: "No space left on device".
[[nodiscard]] inline std::string errno_text(int number) {
  return std::generic_category().message(number);
}

/// Repeats a call of a file_system while it is interrupted.
template <class Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result == -EINTR) {
    result = call();
  }
  return result;
}

/// The files of the operating system.
class posix_file_system final : public file_system {
 public:
  int open(const std::string& path, open_mode mode) override {
    if (mode == open_mode::append) {
      return detail::open_in_place(path);
    }
    const int flags = mode == open_mode::read    ? O_RDONLY | O_NONBLOCK
                      : mode == open_mode::write ? O_WRONLY | O_NOFOLLOW
                                                 : O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
    return result_of(::open(path.c_str(), flags | O_CLOEXEC, 0666));
  }
  int close(int file) override { return result_of(::close(file)); }
  std::int64_t write(int file, std::span<const std::byte> bytes, std::uint64_t offset) override {
    return result_of(::pwrite(file, bytes.data(), one_call(bytes.size()), static_cast<::off_t>(offset)));
  }
  std::int64_t append(int file, std::span<const std::byte> bytes) override {
    return detail::write_in_place(file, bytes.first(one_call(bytes.size())));
  }
  output_target resolve_output(const std::string& path) override { return detail::resolve_output(path); }
  int copy_permissions(const std::string& from, int file) override {
    struct stat found {};
    if (::stat(from.c_str(), &found) != 0) {
      return errno == ENOENT ? 0 : -errno;
    }
    return result_of(::fchmod(file, found.st_mode & 0777U));
  }
  std::int64_t read(int file, std::span<std::byte> bytes, std::uint64_t offset) override {
    return result_of(::pread(file, bytes.data(), one_call(bytes.size()), static_cast<::off_t>(offset)));
  }
  int resize(int file, std::uint64_t size) override { return result_of(::ftruncate(file, static_cast<::off_t>(size))); }
  int sync(int file) override { return result_of(::fsync(file)); }
  int sync_folder(const std::string& path) override {
    const int folder = result_of(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder < 0) {
      return folder;
    }
    const int synced = uninterrupted([&] { return result_of(::fsync(folder)); });
    ::close(folder);
    return synced;
  }
  int lock(int file) override { return result_of(::flock(file, LOCK_EX | LOCK_NB)); }
  int rename(const std::string& from, const std::string& to, bool replace) override {
    if (replace) {
      return result_of(std::rename(from.c_str(), to.c_str()));
    }
#if defined(RENAME_NOREPLACE)
    const int renamed = result_of(::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE));
    if (renamed != -EINVAL && renamed != -ENOSYS) {
      return renamed;
    }
#endif
    // NFS and others: a second name, which cannot replace anything, in place of the first.
    const int linked = result_of(::link(from.c_str(), to.c_str()));
    return linked != 0 ? linked : result_of(::unlink(from.c_str()));
  }
  int remove(const std::string& path) override {
    return result_of(::unlink(path.c_str()));
  }
  int status(int file, file_status& into) override {
    struct stat found {};
    const int result = result_of(::fstat(file, &found));
    into = facts_of(found);
    return result;
  }
  int status(const std::string& path, file_status& into) override {
    struct stat found {};
    const int result = result_of(::lstat(path.c_str(), &found));
    into = facts_of(found);
    return result;
  }
  int list(const std::string& folder, std::vector<std::string>& into) override {
    into.clear();
    ::DIR* const open = ::opendir(folder.c_str());
    if (open == nullptr) {
      return -errno;
    }
    errno = 0;
    while (const ::dirent* const entry = ::readdir(open)) {
      into.emplace_back(entry->d_name);
    }
    const int result = -errno;
    ::closedir(open);
    return result;
  }
  int make_folder(const std::string& path) override {
    for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
      const std::string part = path.substr(0, end);
      struct stat found {};
      if (::stat(part.c_str(), &found) != 0 && ::mkdir(part.c_str(), 0777) != 0 && errno != EEXIST) {
        return -errno;
      }
      if (end == std::string::npos) {
        return 0;
      }
    }
  }
  std::int64_t free_bytes(const std::string& folder) override {
    struct statvfs found {};
    return ::statvfs(folder.c_str(), &found) != 0 ? -1 : static_cast<std::int64_t>(found.f_bavail * found.f_frsize);
  }

 private:
  template <class Integer>
  static Integer result_of(Integer result) noexcept {
    return result < 0 ? -static_cast<Integer>(errno) : result;
  }
  // Linux transfers at most 2 GiB - 4 KiB in a call, and macOS refuses more.
  static std::size_t one_call(std::size_t bytes) noexcept {
    return std::min(bytes, std::size_t{1} << 30U);
  }

  static file_status facts_of(const struct stat& found) noexcept {
    return {.regular = S_ISREG(found.st_mode),
            .link = S_ISLNK(found.st_mode),
            .size = static_cast<std::uint64_t>(found.st_size),
            .modified = static_cast<std::int64_t>(found.st_mtime),
            .device = static_cast<std::uint64_t>(found.st_dev),
            .number = static_cast<std::uint64_t>(found.st_ino),
            .owner = static_cast<std::int64_t>(found.st_uid)};
  }
};

/// The files of the operating system, for arguments that take a file_system.
[[nodiscard]] inline file_system& operating_system() {
  static posix_file_system files;
  return files;
}

/// Writes all bytes, in as many calls as that takes. Returns 0 or the negative errno.
[[nodiscard]] inline int write_all(file_system& files, int file, std::span<const std::byte> bytes,
                                   std::uint64_t offset) {
  while (!bytes.empty()) {
    const std::int64_t written = uninterrupted([&] { return files.write(file, bytes, offset); });
    if (written <= 0) {
      return written == 0 ? -EIO : static_cast<int>(written);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
  return 0;
}

/// The same at the end of what open_mode::append has opened.
[[nodiscard]] inline int append_all(file_system& files, int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::int64_t written = uninterrupted([&] { return files.append(file, bytes); });
    if (written <= 0) {
      return written == 0 ? -EIO : static_cast<int>(written);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return 0;
}

/// Reads all bytes, in as many calls as that takes. Returns 0, -ENODATA if the file ends before, or another negative
/// errno.
[[nodiscard]] inline int read_all(file_system& files, int file, std::span<std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const std::int64_t got = uninterrupted([&] { return files.read(file, bytes, offset); });
    if (got <= 0) {
      return got == 0 ? -ENODATA : static_cast<int>(got);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return 0;
}

/// A descriptor of a file_system, closed by the destructor.
class open_file {
 public:
  /// No file.
  open_file() = default;
  /// Opens a file; see `error`.
  open_file(file_system& files, const std::string& path, open_mode mode)
      : files_{&files}, number_{uninterrupted([&] { return files.open(path, mode); })} {}
  /// Takes over the descriptor.
  open_file(open_file&& other) noexcept : files_{other.files_}, number_{std::exchange(other.number_, -EBADF)} {}
  /// Closes the file, then takes over the other.
  open_file& operator=(open_file&& other) noexcept {
    if (this != &other) {
      (void)close();
      files_ = other.files_;
      number_ = std::exchange(other.number_, -EBADF);
    }
    return *this;
  }
  ~open_file() { (void)close(); }

  /// 0, or the negative errno with which it could not be opened.
  [[nodiscard]] int error() const noexcept { return number_ < 0 ? number_ : 0; }
  /// The descriptor. @pre error() == 0
  [[nodiscard]] int number() const noexcept { return number_; }
  /// Closes the file if it is open. Returns 0 or the negative errno.
  int close() noexcept {
    const int closing = std::exchange(number_, -EBADF);
    return closing < 0 ? 0 : files_->close(closing);
  }

 private:
  file_system* files_ = nullptr;
  int number_ = -EBADF;
};

/// "folder/name".
[[nodiscard]] inline std::string path_in(std::string_view folder, std::string_view name) {
  return join({folder, folder.ends_with('/') ? "" : "/", name});
}

}  // namespace gradus::io

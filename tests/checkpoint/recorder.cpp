// SPDX-License-Identifier: BSL-1.0
//
// Writes down the calls that change files. For LD_PRELOAD: each function here has the name of one of the C library, and
// calls it. The list is read by calls.cpp.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/types.h>

#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <mutex>
#include <string>

namespace {

std::mutex& list_mutex() {
  static std::mutex mutex;
  return mutex;
}
std::string& list() {
  static std::string text;
  return text;
}

void note(const std::string& line) {
  const int before = errno;
  const std::lock_guard lock{list_mutex()};
  list().append(line).append("\n");
  errno = before;
}

template <class Function>
Function* original(const char* name) {
  void* const found = ::dlsym(RTLD_NEXT, name);
  return reinterpret_cast<Function*>(found);
}

std::string file_of(int descriptor) {
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  static auto* const readlink = original<ssize_t(const char*, char*, std::size_t)>("readlink");
  const ssize_t size = readlink(link.c_str(), path, sizeof(path));
  return size < 0 ? "?" : std::string(path, static_cast<std::size_t>(size));
}

}  // namespace

// Declared with C linkage and these names by the C library; other attributes do not matter here.
extern "C" {

/// The lines so far; they are cleared. The caller frees nothing.
const char* gradus_recorded_calls();
const char* gradus_recorded_calls() {
  static std::string taken;
  const std::lock_guard lock{list_mutex()};
  taken.swap(list());
  list().clear();
  return taken.c_str();
}

int open(const char* path, int flags, ...) {
  ::mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list rest;
    va_start(rest, flags);
    mode = va_arg(rest, ::mode_t);
    va_end(rest);
  }
  static auto* const call = original<int(const char*, int, ::mode_t)>("open");
  const int file = call(path, flags, mode);
  if (file >= 0 && (flags & O_CREAT) != 0) {
    note(std::string{"create "} + path);
  }
  return file;
}
ssize_t pwrite(int file, const void* bytes, std::size_t size, off_t offset) {
  static auto* const call = original<ssize_t(int, const void*, std::size_t, off_t)>("pwrite");
  const ssize_t written = call(file, bytes, size, offset);
  note("write " + file_of(file) + " " + std::to_string(offset) + " " + std::to_string(written));
  return written;
}
int ftruncate(int file, off_t size) noexcept {
  static auto* const call = original<int(int, off_t)>("ftruncate");
  note("resize " + file_of(file) + " " + std::to_string(size));
  return call(file, size);
}
int fsync(int file) {
  static auto* const call = original<int(int)>("fsync");
  note("sync " + file_of(file));
  return call(file);
}
int rename(const char* from, const char* to) noexcept {
  static auto* const call = original<int(const char*, const char*)>("rename");
  const int result = call(from, to);
  if (result == 0) {
    note(std::string{"rename "} + from + " " + to);
  }
  return result;
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  static auto* const call = original<int(int, const char*, int, const char*, unsigned)>("renameat2");
  const int result = call(from_folder, from, to_folder, to, flags);
  if (result == 0) {
    note(std::string{"rename "} + from + " " + to);
  }
  return result;
}
int unlink(const char* path) noexcept {
  static auto* const call = original<int(const char*)>("unlink");
  const int result = call(path);
  if (result == 0) {
    note(std::string{"remove "} + path);
  }
  return result;
}

}  // extern "C"

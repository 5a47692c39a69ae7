// SPDX-License-Identifier: BSL-1.0
//
// Starts the library's threads.
#pragma once

#include <cstdio>        // std::fclose, std::fopen, std::fscanf
#include <string>        // std::string
#include <system_error>  // std::system_error
#include <thread>        // std::thread

#if defined(__linux__)
#include <pthread.h>       // pthread_setname_np
#include <sys/resource.h>  // getrlimit
#endif

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"

namespace gradus {

/// The limits on the number of threads, as far as the system reports them: "ulimit -u is 100, pids.max of the control
/// group is 64, kernel.threads-max is 190000".
[[nodiscard]] inline std::string thread_limits() {
  std::string text;
#if defined(__linux__)
  const auto add = [&text](const char* name, unsigned long long value) {
    append_text(text, {text.empty() ? "" : ", ", name, " is ", value});
  };
  rlimit processes{};
  if (getrlimit(RLIMIT_NPROC, &processes) == 0 && processes.rlim_cur != RLIM_INFINITY) {
    add("ulimit -u", processes.rlim_cur);
  }
  rlimit memory{};
  if (getrlimit(RLIMIT_AS, &memory) == 0 && memory.rlim_cur != RLIM_INFINITY) {
    add("ulimit -v (KiB, for stacks)", memory.rlim_cur / 1024);
  }
  const auto add_file = [&add](const char* name, const char* path) {
    if (std::FILE* const file = std::fopen(path, "r")) {
      unsigned long long value = 0;
      if (std::fscanf(file, "%llu", &value) == 1) {
        add(name, value);
      }
      std::fclose(file);
    }
  };
  add_file("pids.max of the control group", "/sys/fs/cgroup/pids.max");       // version 2, in a container
  add_file("pids.max of the control group", "/sys/fs/cgroup/pids/pids.max");  // version 1
  add_file("kernel.threads-max", "/proc/sys/kernel/threads-max");
#endif
  return text;
}

/// Starts a thread that calls body(object). A std::thread made from a lambda would compile its own type for every
/// lambda.
/// @param name  the name of the thread in debuggers and profilers, on systems that name threads; at most 15 characters
/// @throws device_error with the system's limits if it cannot start a thread
[[nodiscard]] inline std::thread start_thread([[maybe_unused]] const char* name, void (*body)(void* object),
                                              void* object) {
  try {
    std::thread started{body, object};
#if defined(__linux__)
    pthread_setname_np(started.native_handle(), name);
#endif
    return started;
  } catch (const std::system_error& failure) {
    raise<device_error>({"the thread '", name, "'"}, "another thread from the system", failure.what(),
                        {"use fewer threads or ranks, or raise a limit: ", thread_limits()});
  }
}

}  // namespace gradus

// SPDX-License-Identifier: BSL-1.0
//
// SIGINT, SIGTERM and SIGHUP: nothing half-written stays, children end, and the program ends by the signal itself.
#pragma once

#include <signal.h>    // kill, raise, sigaction, sigprocmask, sigtimedwait
#include <sys/wait.h>  // waitpid
#include <unistd.h>    // _exit, write

#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <string>
#include <system_error>

#include "output_file.hpp"

namespace program {

/// The signals by which a user, a terminal or a batch system ends a program.
inline constexpr int ending_signals[] = {SIGINT, SIGTERM, SIGHUP};

/// "SIGTERM". For signal handlers, too.
[[nodiscard]] inline const char* name_of_signal(int signal) noexcept {
  return signal == SIGINT ? "SIGINT" : signal == SIGTERM ? "SIGTERM" : signal == SIGHUP ? "SIGHUP" : "a signal";
}

/// Ends this process by the signal, as if nothing had handled it. A launcher such as mpiexec then knows that the job
/// is over, also when other ranks wait in MPI_Init for this one: a rank that exits before MPI_Init, with any status, is
/// to it a program without MPI. For signal handlers, too.
[[noreturn]] inline void end_by(int signal) noexcept {
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  sigemptyset(&usual.sa_mask);
  sigaction(signal, &usual, nullptr);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  raise(signal);
  _exit(128 + signal);  // the first process of a container is not ended by its own signals
}

/// The program was to end: main calls end_by(signal) when all is cleaned up.
struct interrupted : std::exception {
  explicit interrupted(int which) : signal{which} {}

  [[nodiscard]] const char* what() const noexcept override { return name_of_signal(signal); }

  int signal;
};

namespace detail {

inline const char*& program_name() noexcept {
  static const char* name = "";
  return name;
}

inline void say(const char* text) noexcept {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) {
    return;  // standard error cannot be written
  }
}

[[nodiscard]] inline bool is_ignored(int signal) noexcept {
  struct sigaction found {};
  return sigaction(signal, nullptr, &found) == 0 && found.sa_handler == SIG_IGN;
}

/// Calls only what a signal handler may.
inline void end_program(int signal) {
  unfinished_files::remove_all();
  say(program_name());
  say(": ended by ");
  say(name_of_signal(signal));
  bool any = false;
  for (const unfinished_files::entry& each : unfinished_files::all()) {
    if (each.path[0] != '\0') {
      say(any ? ", '" : "; not written: '");
      say(each.target);
      say("'");
      any = true;
    }
  }
  say("\n");
  end_by(signal);
}

}  // namespace detail

/// From now on a signal removes what output_file has not finished, says so, and ends the program as it would without a
/// handler: for a shell with 128 + signal.
/// Signals that are ignored, as by nohup, stay so.
inline void end_on_signals(const char* name) {
  detail::program_name() = name;
  for (const int signal : ending_signals) {
    if (!detail::is_ignored(signal)) {
      struct sigaction chosen {};
      chosen.sa_handler = detail::end_program;
      sigemptyset(&chosen.sa_mask);
      sigaction(signal, &chosen, nullptr);
    }
  }
}

/// While it lives, signals stay pending until `wait_for` takes them: for a program of one thread that starts children.
class held_signals {
 public:
  held_signals() {
    ::signal(SIGCHLD, SIG_DFL);  // where it is ignored, the exit status of children is lost
    sigemptyset(&held_);
    sigaddset(&held_, SIGCHLD);
    for (const int each : ending_signals) {
      if (!detail::is_ignored(each)) {
        sigaddset(&held_, each);
      }
    }
    sigprocmask(SIG_BLOCK, &held_, &before_);
  }
  held_signals(const held_signals&) = delete;
  held_signals& operator=(const held_signals&) = delete;
  ~held_signals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

  /// What a child begins with.
  [[nodiscard]] const sigset_t& of_children() const noexcept { return before_; }

  /// The child's status as waitpid has it.
  /// @param child  a process that leads a group of its own
  /// @throws interrupted when a signal came: the child and what it has started are ended first
  /// @throws std::system_error when there is no such child
  [[nodiscard]] int wait_for(pid_t child) const {
    int status = 0;
    for (;;) {
      if (ended(child, status)) {
        return status;
      }
      const timespec patience{.tv_sec = 1, .tv_nsec = 0};
      const int came = sigtimedwait(&held_, nullptr, &patience);
      if (came > 0 && came != SIGCHLD) {
        end_group(child);
        throw interrupted{came};
      }
    }
  }

 private:
  static bool ended(pid_t child, int& status) {
    const pid_t found = waitpid(child, &status, WNOHANG);
    if (found < 0 && errno != EINTR) {
      throw std::system_error{errno, std::generic_category(), "cannot wait for a child"};
    }
    return found == child;
  }

  /// It has some seconds to end by itself, as mpiexec needs to end its ranks.
  void end_group(pid_t child) const {
    kill(-child, SIGTERM);
    int status = 0;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{5};
    sigset_t child_ends;
    sigemptyset(&child_ends);
    sigaddset(&child_ends, SIGCHLD);
    while (!ended(child, status)) {
      if (std::chrono::steady_clock::now() > deadline) {
        kill(-child, SIGKILL);
        while (!ended(child, status)) {
          sigtimedwait(&child_ends, nullptr, &pause);
        }
        break;
      }
      sigtimedwait(&child_ends, nullptr, &pause);
    }
    kill(-child, SIGKILL);  // what is left of the group
  }

  static constexpr timespec pause{.tv_sec = 0, .tv_nsec = 50'000'000};

  sigset_t held_{};
  sigset_t before_{};
};

}  // namespace program

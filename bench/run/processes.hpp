// SPDX-License-Identifier: BSL-1.0
//
// The processes of a job: starts it, finds what it has started, and ends all of them.
#pragma once

#include <signal.h>     // sigset_t
#include <sys/types.h>  // pid_t

#include <chrono>    // std::chrono::milliseconds
#include <optional>  // std::optional
#include <set>       // std::set
#include <string>    // std::string
#include <vector>    // std::vector

#include "decision.hpp"

namespace supervisor {

/// A descriptor that is closed in the end.
class descriptor {
 public:
  descriptor() = default;
  explicit descriptor(int number) noexcept : number_{number} {}
  descriptor(descriptor&& other) noexcept;
  descriptor& operator=(descriptor&& other) noexcept;
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  ~descriptor();

  [[nodiscard]] int get() const noexcept { return number_; }
  [[nodiscard]] bool open() const noexcept { return number_ >= 0; }
  void close() noexcept { *this = descriptor{}; }

 private:
  int number_ = -1;
};

/// A command that runs, in a session of its own. It gets SIGTERM if gradus_run is killed.
struct started_job {
  pid_t process = -1;        ///< -1: it could not be started
  ending end = {};           ///< why, as a shell would say it
  std::string failure = {};  ///< why, in words
  descriptor output = {};    ///< if they are piped, what it writes to standard output
  descriptor errors = {};    ///< and to standard error
  descriptor input = {};     ///< if it has one, what it reads from standard input
};

/// @param signals  that are blocked in the job
/// @param piped    whether its output comes through pipes; else it has that of this process
/// @param input    whether it reads from a pipe; else there is nothing to read
[[nodiscard]] started_job start_job(const std::vector<std::string>& command, const sigset_t& signals, bool piped,
                                    bool input = false);

/// The descendants of this process. Launchers give ranks sessions and groups of their own, and a launcher that dies
/// leaves them behind: this process becomes their parent then, so it finds and ends all of them.
class descendants {
 public:
  /// Processes that are there already are none of the job's.
  descendants();

  /// Takes the exit status of all children that have ended.
  /// @return  how `awaited` ended, if it did
  [[nodiscard]] std::optional<ending> reap(pid_t awaited) const;

  /// Those that have not ended.
  [[nodiscard]] std::vector<pid_t> living() const;

  /// Waits until none is left.
  /// @return false if there are still some after this time
  [[nodiscard]] bool wait(std::chrono::milliseconds longest, pid_t awaited, std::optional<ending>& end) const;

  /// SIGKILL to all, again until none is left: they may start others meanwhile.
  /// @return false if some are left after 30 seconds: in the kernel, of a file system that does not answer
  [[nodiscard]] bool kill_all(pid_t awaited, std::optional<ending>& end) const;

 private:
  std::set<pid_t> others_;  // children that are not of the job, as of `monitor & exec gradus_run`
};

}  // namespace supervisor

// SPDX-License-Identifier: BSL-1.0
//
// What follows when a job has ended. Decides only: starts nothing, reads no clock and no files.
#pragma once

#include <cstddef>  // std::size_t
#include <string>   // std::string
#include <vector>   // std::vector

namespace supervisor {

/// What ended a job.
struct ending {
  enum class kind : unsigned char {
    exited,  ///< by itself: `number` is its exit status
    killed,  ///< by a signal: `number` is the signal
    silent   ///< gradus_run killed it, because nothing had come from it for long
  };
  kind what = kind::exited;
  int number = 0;
};

/// "SIGKILL".
[[nodiscard]] std::string name_of_signal(int number);
/// "exit status 9", "exit status 137 (128 + SIGKILL)", "SIGKILL", "silence".
[[nodiscard]] std::string text_of(const ending& end);
/// The exit status of gradus_run if it ends with this job: that of the job, or 128 + the signal.
[[nodiscard]] int status_of(const ending& end) noexcept;

/// One start of the job, after its end.
struct attempt {
  ending end = {};
  double seconds = 0;  ///< from its start to its end
  /// Whether a newer checkpoint has come in this time. Where no folder of checkpoints is given: whether it lasted at
  /// least `at_once` seconds.
  bool progress = false;
  int passed_on = 0;  ///< the signal that was passed on to it, or 0
};

/// A job that ends earlier did not really begin.
inline constexpr double at_once = 60;  // seconds
/// A pause before a start is at most this long.
inline constexpr double longest_pause = 60;  // seconds

/// What the user allows.
struct limits {
  std::vector<int> ranks = {0};  ///< the number of ranks to begin with, and smaller ones; never empty
  int restarts = 10;             ///< starts after the first
  int useless_starts = 2;        ///< this number in a row without progress, on the fewest ranks, are the last
  double first_pause = 1;        ///< seconds before a start; doubled after each start without progress
  /// After a signal the job's exit status says nothing: mpiexec of MPICH ends with 0 if it has reached its ranks by
  /// ssh.
  bool signals_hide_status = false;
};

/// Where a series of starts is.
struct series {
  int starts = 1;             ///< begun so far
  std::size_t choice = 0;     ///< into limits::ranks
  int useless = 0;            ///< starts in a row without progress on this number of ranks
  bool any_progress = false;  ///< of any start
  double pause = 0;           ///< seconds before this start
};

/// What comes next.
struct decision {
  bool again = false;
  series next = {};         ///< of the next start, if there is one
  int status = 0;           ///< of gradus_run, if there is none
  std::string reason = {};  ///< why there is none, or why on fewer ranks
};

/// Decides what follows on the end of the start that `now` describes.
[[nodiscard]] decision decide(const series& now, const attempt& last, const limits& allowed);

/// The exit status after a signal that comes while no job runs: of those with which schedulers announce the end of a
/// job, train::interrupted::exit_code, since a later start goes on from the newest checkpoint; else 128 + the signal.
[[nodiscard]] int status_between_starts(int signal) noexcept;

}  // namespace supervisor

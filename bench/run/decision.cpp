// SPDX-License-Identifier: BSL-1.0
//
// What follows when a job has ended.
#include "decision.hpp"

#include <signal.h>  // SIGKILL, SIGTERM, SIGUSR1
#include <string.h>  // sigabbrev_np

#include <algorithm>  // std::min

#include "gradus/core/text.hpp"
#include "gradus/train/interrupted.hpp"

namespace supervisor {

namespace {

constexpr int interrupted = gradus::train::interrupted::exit_code;

/// A shell's, of a program that cannot be executed or is not there.
bool is_without_program(int status) noexcept {
  return status == 126 || status == 127;
}

/// Of a command line that cannot be followed: of most programs, of sysexits.h, and of MPICH's mpiexec, also if it does
/// not find the program.
bool is_usage_error(int status) noexcept {
  return status == 2 || status == 64 || status == 255;
}

decision end_with(int status, std::string reason) {
  return {.status = status, .reason = std::move(reason)};
}

}  // namespace

std::string name_of_signal(int number) {
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 32)
  if (const char* const name = sigabbrev_np(number)) {
    return gradus::join({"SIG", name});
  }
#endif
  return gradus::join({"signal ", number});
}

std::string text_of(const ending& end) {
  switch (end.what) {
    case ending::kind::killed:
      return name_of_signal(end.number);
    case ending::kind::silent:
      return "silence";
    case ending::kind::exited:
      break;
  }
  std::string text = gradus::join({"exit status ", end.number});
  if (end.number > 128 && end.number < 128 + 32) {
    gradus::append_text(text, {" (128 + ", name_of_signal(end.number - 128), ")"});
  }
  return text;
}

int status_of(const ending& end) noexcept {
  switch (end.what) {
    case ending::kind::killed:
      return 128 + end.number;
    case ending::kind::silent:
      return 128 + SIGKILL;
    case ending::kind::exited:
      break;
  }
  return end.number;
}

decision decide(const series& now, const attempt& last, const limits& allowed) {
  const int status = status_of(last.end);
  if (last.passed_on != 0) {
    const bool hidden = allowed.signals_hide_status && last.end.what == ending::kind::exited && status == 0;
    return end_with(hidden ? status_between_starts(last.passed_on) : status,
                    gradus::join({name_of_signal(last.passed_on), " was passed on to it"}));
  }
  if (last.end.what == ending::kind::exited) {
    if (status == 0) {
      return end_with(0, "the job is complete");
    }
    if (status == interrupted) {
      return end_with(status, "the job has saved a checkpoint because of a signal");
    }
    if (is_without_program(status)) {
      return end_with(status, "there is no such program, or it cannot be executed");
    }
    if (is_usage_error(status) && !now.any_progress && !last.progress && last.seconds < at_once) {
      return end_with(status, "the status is that of a wrong command line");
    }
  }
  series next = now;
  next.any_progress = now.any_progress || last.progress;
  next.useless = last.progress ? 0 : now.useless + 1;
  std::string reason;
  if (!last.progress && now.choice + 1 < allowed.ranks.size()) {
    next.choice = now.choice + 1;
    next.useless = 0;
    reason = gradus::join({"no progress on ", allowed.ranks[now.choice], " ranks"});
  }
  if (next.useless >= allowed.useless_starts) {
    return end_with(status, gradus::join({next.useless, next.useless == 1 ? " start" : " starts in a row",
                                          " made no progress (--useless-starts ", allowed.useless_starts, ")"}));
  }
  if (now.starts > allowed.restarts) {
    return end_with(status, gradus::join({"--restarts ", allowed.restarts, " are used up"}));
  }
  next.starts = now.starts + 1;
  next.pause = last.progress || now.pause <= 0 ? allowed.first_pause
                                               : std::min(2 * now.pause, std::max(longest_pause, allowed.first_pause));
  return {.again = true, .next = next, .reason = std::move(reason)};
}

int status_between_starts(int signal) noexcept {
  return signal == SIGTERM || signal == SIGUSR1 ? interrupted : 128 + signal;
}

}  // namespace supervisor

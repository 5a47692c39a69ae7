// SPDX-License-Identifier: BSL-1.0
//
// Ways to compute the same thing, timed by turns.
#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "../program/statistics.hpp"

namespace bench {

/// One way to compute something, and how long it took.
struct contestant {
  std::string name;
  std::function<void()> run;
  std::vector<double> seconds;

  [[nodiscard]] double best() const { return *std::min_element(seconds.begin(), seconds.end()); }
  [[nodiscard]] double median() const { return program::median(seconds); }
};

/// Seconds: with one thread those of the processor, so that other work on the machine counts less.
inline double now(bool one_thread) {
  timespec time{};
  clock_gettime(one_thread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Runs for a while. @return seconds of a run
inline double seconds_of_run(const std::function<void()>& run, double least, bool one_thread) {
  const double begin = now(one_thread);
  double end = begin;
  int runs = 0;
  do {
    run();
    ++runs;
    end = now(one_thread);
  } while (end - begin < least);
  return (end - begin) / runs;
}

/// Rounds in which everybody takes a turn: other work on the machine meets all alike. A pause lets the threads of the
/// one before go to sleep, and those of the next wake up, each on a processor of its own, before they are timed.
inline void race(std::vector<contestant>& contestants, int rounds, bool pause) {
  for (contestant& c : contestants) {
    c.run();
  }
  for (int round = 0; round < rounds; ++round) {
    for (contestant& c : contestants) {
      if (pause) {
        std::this_thread::sleep_for(std::chrono::milliseconds{20});
        seconds_of_run(c.run, 20e-3, false);
      }
      c.seconds.push_back(seconds_of_run(c.run, pause ? 2e-3 : 0.0, !pause));
    }
  }
}

}  // namespace bench

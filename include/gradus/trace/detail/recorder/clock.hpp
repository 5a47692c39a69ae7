// SPDX-License-Identifier: BSL-1.0
//
// The clock of a recorder: the processor's time stamp counter if the system considers it reliable.
#pragma once

#include <chrono>   // std::chrono::steady_clock
#include <cstdint>  // std::int64_t
#include <cstdio>   // std::FILE, std::fgets, std::fopen

#include "gradus/core/config.hpp"

#if defined(__x86_64__) && defined(__linux__)
#include <x86intrin.h>  // __rdtsc
#endif

namespace gradus::trace::detail {

/// Nanoseconds of std::chrono::steady_clock.
[[nodiscard]] inline std::int64_t steady_nanoseconds() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// True if the kernel uses the time stamp counter as its clock: then it runs evenly and equally on all processors.
[[nodiscard]] inline bool time_stamps_are_steady() noexcept {
  bool steady = false;
#if defined(__x86_64__) && defined(__linux__)
  if (std::FILE* const in = std::fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "r");
      in != nullptr) {
    char text[8] = {};
    steady = std::fgets(text, sizeof(text), in) != nullptr && text[0] == 't' && text[1] == 's' && text[2] == 'c' &&
             text[3] == '\n';
    std::fclose(in);
  }
#endif
  return steady;
}

/// A clock in ticks, with their conversion to nanoseconds of std::chrono::steady_clock. Reading the counter takes a
/// third of the time of reading the system's clock, and a span needs two readings.
class tick_clock {
 public:
  tick_clock() noexcept : fast_{time_stamps_are_steady()}, start_{both()} {}

  [[nodiscard]] std::int64_t now() const noexcept {
#if defined(__x86_64__) && defined(__linux__)
    if (fast_) {
      return static_cast<std::int64_t>(__rdtsc());
    }
#endif
    return steady_nanoseconds();
  }

  /// The ticks and the nanoseconds at one moment.
  struct reading {
    std::int64_t ticks = 0;
    std::int64_t nanoseconds = 0;
  };

  [[nodiscard]] const reading& start() const noexcept {
    return start_;
  }

  /// Reads both clocks several times, and returns the reading with the shortest time between its two halves.
  [[nodiscard]] reading both() const noexcept {
    reading best;
    std::int64_t least = -1;
    for (int i = 0; i < 16; ++i) {
      const std::int64_t before = now();
      const std::int64_t nanoseconds = steady_nanoseconds();
      const std::int64_t after = now();
      if (least < 0 || after - before < least) {
        least = after - before;
        best = {before + (after - before) / 2, nanoseconds};
      }
    }
    return best;
  }

 private:
  bool fast_;
  reading start_;
};

/// The line through two readings.
class tick_scale {
 public:
  tick_scale(const tick_clock::reading& a, const tick_clock::reading& b) noexcept
      : start_{a},
        rate_{b.ticks > a.ticks
                  ? static_cast<double>(b.nanoseconds - a.nanoseconds) / static_cast<double>(b.ticks - a.ticks)
                  : 1.0} {}

  [[nodiscard]] std::int64_t nanoseconds(std::int64_t ticks) const noexcept {
    return start_.nanoseconds + static_cast<std::int64_t>(rate_ * static_cast<double>(ticks - start_.ticks));
  }

 private:
  tick_clock::reading start_;
  double rate_;
};

}  // namespace gradus::trace::detail

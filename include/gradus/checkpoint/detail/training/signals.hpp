// SPDX-License-Identifier: BSL-1.0
//
// Signals with which a scheduler announces the end of a job.
#pragma once

#include <atomic>   // std::atomic
#include <csignal>  // std::signal, SIGTERM
#include <mutex>    // std::lock_guard, std::mutex

#include "gradus/core/config.hpp"

namespace gradus::train::detail {

/// While an object lives, SIGTERM and SIGUSR1 do not end the process: they are counted. Several objects may live, as of
/// thread ranks; the last one restores what the signals did before.
class end_signals {
 public:
  end_signals() {
    const std::lock_guard lock{mutex()};
    if (users()++ == 0) {
      received().store(0, std::memory_order_relaxed);
      for (int k = 0; k < count; ++k) {
        before()[k] = std::signal(numbers[k], &note);
      }
    }
  }
  end_signals(const end_signals&) = delete;
  end_signals& operator=(const end_signals&) = delete;
  ~end_signals() {
    const std::lock_guard lock{mutex()};
    if (--users() == 0) {
      for (int k = 0; k < count; ++k) {
        std::signal(numbers[k], before()[k]);
      }
    }
  }

  /// The number of the last signal that has come; 0 for none.
  [[nodiscard]] static int last() noexcept { return received().load(std::memory_order_relaxed); }

  /// Those that are counted.
#if defined(SIGUSR1)
  static constexpr int count = 2;
  static constexpr int numbers[] = {SIGTERM, SIGUSR1};
#else
  static constexpr int count = 1;
  static constexpr int numbers[] = {SIGTERM};
#endif

 private:
  using handler = void (*)(int);

  static void note(int number) noexcept {
    received().store(number, std::memory_order_relaxed);
  }

  static std::atomic<int>& received() noexcept {
    static std::atomic<int> number{0};
    return number;
  }
  static int& users() noexcept {
    static int number = 0;
    return number;
  }
  static handler* before() noexcept {
    static handler handlers[count] = {};
    return handlers;
  }
  static std::mutex& mutex() noexcept {
    static std::mutex one;
    return one;
  }
};

}  // namespace gradus::train::detail

// SPDX-License-Identifier: BSL-1.0
//
// Signals with which a scheduler announces the end of a job.
#pragma once

#include <signal.h>  // sigaction, sigemptyset, SA_RESTART, SIGUSR1

#include <atomic>     // std::atomic
#include <csignal>    // std::raise, SIGTERM
#include <exception>  // std::uncaught_exceptions
#include <mutex>      // std::lock_guard, std::mutex

#include "gradus/core/config.hpp"

namespace gradus::train::detail {

/// While an object lives, SIGTERM and SIGUSR1 do not end the process: they are noted. Several objects may live, as of
/// thread ranks; the last one gives the signals back to the handlers that they had before. A signal that has come and
/// that no save has heeded then comes again, for these handlers; not while an exception ends the training, whose text
/// would be lost.
class end_signals {
 public:
  end_signals() {
    const std::lock_guard lock{mutex()};
    if (users()++ == 0) {
      received().store(0, std::memory_order_relaxed);
      heeded().store(false, std::memory_order_relaxed);
      struct sigaction own = {};
      own.sa_handler = &note;
      own.sa_flags = SA_RESTART;
      sigemptyset(&own.sa_mask);
      for (int k = 0; k < count; ++k) {
        ::sigaction(numbers[k], &own, &before()[k]);
      }
    }
  }
  end_signals(const end_signals&) = delete;
  end_signals& operator=(const end_signals&) = delete;
  ~end_signals() {
    if (const int number = give_back(); number != 0 && std::uncaught_exceptions() <= exceptions_at_start_) {
      static_cast<void>(std::raise(number));
    }
  }

  /// The number of the last signal that has come; 0 for none.
  [[nodiscard]] static int last() noexcept { return received().load(std::memory_order_relaxed); }

  /// The training ends because of the signal.
  static void heed() noexcept { heeded().store(true, std::memory_order_relaxed); }

  /// Those that are noted.
  static constexpr int count = 2;
  static constexpr int numbers[] = {SIGTERM, SIGUSR1};

 private:
  /// @return  the signal that no save has heeded, or 0
  static int give_back() noexcept {
    const std::lock_guard lock{mutex()};
    if (--users() != 0) {
      return 0;
    }
    for (int k = 0; k < count; ++k) {
      struct sigaction now = {};
      ::sigaction(numbers[k], nullptr, &now);
      if ((now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == &note) {  // else the program has set another one
        ::sigaction(numbers[k], &before()[k], nullptr);
      }
    }
    return heeded().load(std::memory_order_relaxed) ? 0 : last();
  }

  static void note(int number) noexcept { received().store(number, std::memory_order_relaxed); }

  static std::atomic<int>& received() noexcept {
    static std::atomic<int> number{0};
    return number;
  }
  static std::atomic<bool>& heeded() noexcept {
    static std::atomic<bool> all{false};
    return all;
  }
  static int& users() noexcept {
    static int number = 0;
    return number;
  }
  static struct sigaction* before() noexcept {
    static struct sigaction actions[count] = {};
    return actions;
  }
  static std::mutex& mutex() noexcept {
    static std::mutex one;
    return one;
  }

  int exceptions_at_start_ = std::uncaught_exceptions();
};

}  // namespace gradus::train::detail

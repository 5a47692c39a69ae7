// SPDX-License-Identifier: BSL-1.0
//
// Ends a test that hangs.
#pragma once

#include <chrono>              // std::chrono
#include <condition_variable>  // std::condition_variable
#include <cstdio>              // std::fflush, std::fprintf
#include <cstdlib>             // std::_Exit
#include <mutex>               // std::mutex, std::scoped_lock, std::unique_lock
#include <thread>              // std::thread

#include "gradus/core/config.hpp"

namespace gradus::conformance {

/// Ends the program after a time limit, so that a test that hangs is reported.
class watchdog {
 public:
  /// Starts the time limit, which ends with this object.
  explicit watchdog(std::chrono::seconds limit)
      : guard_{[this, limit] {
          std::unique_lock lock{mutex_};
          if (!stop_.wait_for(lock, limit, [this] { return stopped_; })) {
            std::fprintf(stderr, "watchdog: the test has run for %lld s\n", static_cast<long long>(limit.count()));
            std::fflush(nullptr);
            std::_Exit(3);
          }
        }} {}
  watchdog(const watchdog&) = delete;
  watchdog& operator=(const watchdog&) = delete;
  ~watchdog() {
    {
      const std::scoped_lock lock{mutex_};
      stopped_ = true;
    }
    stop_.notify_all();
    guard_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopped_ = false;
  std::thread guard_;
};

}  // namespace gradus::conformance

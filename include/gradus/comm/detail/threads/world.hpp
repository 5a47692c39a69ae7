// SPDX-License-Identifier: BSL-1.0
//
// State that all communicators of a group of thread ranks share: the first failure, sleeping and waking.
#pragma once

#include <algorithm>           // std::min
#include <atomic>              // std::atomic
#include <chrono>              // std::chrono
#include <condition_variable>  // std::condition_variable
#include <mutex>               // std::mutex, std::scoped_lock, std::unique_lock
#include <source_location>     // std::source_location
#include <string>              // std::string
#include <string_view>         // std::string_view
#include <thread>              // std::this_thread, std::thread::hardware_concurrency

#include "gradus/comm/call.hpp"
#include "gradus/comm/wait.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"

namespace gradus::comm::detail {

/// The first failure among the ranks, and the condition on which ranks sleep until something changes.
class thread_world {
 public:
  explicit thread_world(int size)
      : size_{size}, crowded_{static_cast<unsigned>(size) > std::thread::hardware_concurrency()} {}

  [[nodiscard]] int size() const noexcept { return size_; }

  /// Number of polls that follow each other at once before a waiting rank yields its processor.
  [[nodiscard]] int spins() const noexcept { return crowded_ ? 50 : 2000; }
  /// How long a rank then polls and yields between polls before it sleeps. Short if ranks share processors. Otherwise
  /// it covers the wait for a rank that computes some milliseconds longer, because waking a thread takes long,
  /// especially in a virtual machine, whose host has to assign a processor.
  [[nodiscard]] std::chrono::milliseconds patience() const noexcept {
    return std::chrono::milliseconds{crowded_ ? 0 : 10};
  }

  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_seq_cst); }

  /// The rank that failed first, or -1.
  [[nodiscard]] int failed_rank() {
    const std::scoped_lock lock{mutex_};
    return failed() ? failed_rank_ : -1;
  }

  /// Makes every operation throw from now on. The first reason stays.
  void fail(int rank, std::string_view reason) noexcept;

  /// `rank` has withdrawn from an operation because of an exception. The reason follows by fail(); if it does not
  /// follow within reason_grace, this reason is used.
  void suspect(int rank, std::string_view reason) noexcept;

  /// Turns a suspicion that is old enough into a failure.
  void look_at_suspicion() noexcept;

  [[noreturn]] void raise(const call_description& what, const std::source_location& where) {
    std::unique_lock lock{mutex_};
    const std::string reason = gradus::join({"rank ", failed_rank_, " failed: ", failure_});
    lock.unlock();
    gradus::raise<communication_error>(what.describe(), {}, reason, hint_of_failed, where);
  }

  /// Wakes ranks. Call it after every change for which a sleeping rank may wait. The change itself is a sequentially
  /// consistent write. So either a rank that is about to sleep sees the change, or this call sees that rank.
  void wake() noexcept {
    if (sleepers_.load(std::memory_order_seq_cst) != 0) {
      { const std::scoped_lock lock{mutex_}; }
      changed_.notify_all();
    }
  }

  /// Sleeps until ready() is true or the deadline is over. It may return early.
  template <class Ready>
  void sleep(clock::time_point deadline, Ready&& ready) {
    std::unique_lock lock{mutex_};
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    if (!ready()) {
      changed_.wait_until(lock, std::min(deadline, clock::now() + std::chrono::milliseconds{100}));
    }
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }

 private:
  void record(int rank, std::string_view reason) noexcept;

  int size_;
  bool crowded_;  // true if ranks share processors
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string failure_;
  std::string suspicion_;
  int failed_rank_ = -1;
  int suspected_rank_ = -1;
  clock::time_point suspected_since_{};
  std::atomic<bool> suspected_{false};
  alignas(64) std::atomic<bool> failed_{false};
  alignas(64) std::atomic<int> sleepers_{0};
};

/// Calls look() until it returns true: for some milliseconds without sleeping, then after each change. False if the
/// time limit is over. Not poll_until_complete: ranks of one process wake each other, so a late one need not be polled.
template <class Look, class Ready>
bool wait_in(thread_world& world, std::chrono::milliseconds limit, Look&& look, Ready&& ready) {
  for (int i = 0; i < world.spins(); ++i) {
    if (look()) {
      return true;
    }
    pause_processor();
  }
  const clock::time_point began = clock::now();
  const clock::time_point deadline = began + limit;
  for (const auto end = began + std::min(limit, world.patience()); clock::now() < end; std::this_thread::yield()) {
    if (look()) {
      return true;
    }
  }
  while (!look()) {
    if (clock::now() >= deadline) {
      return false;
    }
    world.sleep(deadline, ready);
  }
  return true;
}

}  // namespace gradus::comm::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::comm::detail {

GRADUS_INLINE void thread_world::fail(int rank, std::string_view reason) noexcept {
  {
    const std::scoped_lock lock{mutex_};
    record(rank, reason);
  }
  changed_.notify_all();
}

GRADUS_INLINE void thread_world::suspect(int rank, std::string_view reason) noexcept {
  const std::scoped_lock lock{mutex_};
  if (failed() || suspected_.load(std::memory_order_relaxed)) {
    return;
  }
  suspected_rank_ = rank;
  suspected_since_ = clock::now();
  try {
    suspicion_ = reason;
  } catch (...) {
    suspicion_.clear();
  }
  suspected_.store(true, std::memory_order_seq_cst);
}

GRADUS_INLINE void thread_world::look_at_suspicion() noexcept {
  if (!suspected_.load(std::memory_order_relaxed) || failed()) {
    return;
  }
  const std::scoped_lock lock{mutex_};
  if (clock::now() - suspected_since_ > reason_grace) {
    record(suspected_rank_, suspicion_);
  }
}

GRADUS_INLINE void thread_world::record(int rank, std::string_view reason) noexcept {  // with the mutex held
  if (failed()) {
    return;
  }
  failed_rank_ = rank;
  try {
    failure_ = reason;
  } catch (...) {
    failure_.clear();
  }
  failed_.store(true, std::memory_order_seq_cst);
}

}  // namespace gradus::comm::detail
#endif

// SPDX-License-Identifier: BSL-1.0
//
// A pool of threads for loops over independent tasks.
#pragma once

#include <atomic>     // std::atomic
#include <cstddef>    // std::size_t
#include <cstdint>    // std::uint32_t, std::uint64_t
#include <exception>  // std::exception_ptr
#include <memory>     // std::addressof
#include <mutex>      // std::mutex, std::scoped_lock
#include <thread>     // std::thread
#include <utility>    // std::exchange

#if defined(__linux__)
#include <pthread.h>  // pthread_getaffinity_np, pthread_setaffinity_np
#include <sched.h>    // cpu_set_t, sched_getaffinity, sched_getcpu
#endif

#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/spin.hpp"
#include "gradus/core/thread.hpp"

namespace gradus {

/// The number of processors on which this process may run, at least 1. Uses the affinity mask if the system has one.
[[nodiscard]] inline int available_processors() noexcept {
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    const int count = CPU_COUNT(&set);
    if (count > 0) {
      return count;
    }
  }
#endif
  const unsigned count = std::thread::hardware_concurrency();
  return count == 0 ? 1 : static_cast<int>(count);
}

namespace detail {

/// Threads that run the tasks 0 .. count-1 of one loop at a time; the calling thread takes part.
///
/// Any thread may run any task, so tasks must not depend on the thread; then results do not depend on the number of
/// threads. Workers spin for a short while after a loop and then sleep, because loops follow each other within
/// microseconds in a training step, and idle threads must leave the processors to other ranks. A loop never waits for a
/// worker that has not begun one of its tasks. If run() is called from within a task, or while another thread uses the
/// pool, the calling thread runs the tasks; a task may use another pool. All tasks round to nearest and treat denormal
/// numbers alike, whatever the calling thread does outside. run() does not allocate.
class thread_pool {
 public:
  /// @param threads  threads that take part in a loop, the caller included; at least 1
  /// @param pin      bind worker i to the i-th processor of the process's affinity mask
  /// @param flush_denormals  in tasks, denormal numbers are 0
  explicit thread_pool(int threads, bool pin = false, bool flush_denormals = false);

  thread_pool(const thread_pool&) = delete;
  thread_pool& operator=(const thread_pool&) = delete;
  ~thread_pool() { stop(); }

  /// Threads that take part in a loop, the caller included.
  [[nodiscard]] int threads() const noexcept { return static_cast<int>(workers_.size()) + 1; }

  /// Calls task(i) once for each i in [0, count) and returns when all are done.
  /// @pre count < 2^32
  /// @throws the first exception of a task; tasks that have not begun by then do not run
  template <class Task>
  void run(index_t count, Task& task) {
    // Only this call is compiled for each loop.
    run_calls(
        count, [](void* object, index_t i) { (*static_cast<Task*>(object))(i); },
        const_cast<void*>(static_cast<const void*>(std::addressof(task))));
  }

 private:
  using call_type = void (*)(void*, index_t);

  /// The pool whose task the calling thread runs, or null.
  static const thread_pool*& task_of() noexcept {
    thread_local const thread_pool* pool = nullptr;
    return pool;
  }

  void run_calls(index_t count, call_type call, void* object);

  // A ticket is (generation, tasks not yet begun). A thread reads the loop's fields between loading the ticket and
  // replacing it. The replacement succeeds only if the ticket is unchanged. Then the fields belong to its loop, because
  // a loop's fields stay until its tasks are done.
  void take_tasks() noexcept;

  void work();

  /// Keeps sleeping workers off the processor of this thread while they are woken. In a virtual machine, Linux treats a
  /// processor that was idle for some milliseconds as one that the host has taken away. It then wakes a worker on the
  /// processor of this thread, where both stay for five milliseconds or more.
  void wake_workers() noexcept;

  void wake_elsewhere() noexcept {
#if defined(__linux__)
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    const int here = sched_getcpu();
    if (here >= 0 && pthread_getaffinity_np(workers_.front().native_handle(), sizeof(allowed), &allowed) == 0 &&
        CPU_COUNT(&allowed) >= threads()) {  // not if workers are pinned
      cpu_set_t others = allowed;
      CPU_CLR(static_cast<std::size_t>(here), &others);
      allow(others);
      wake_all();
      allow(allowed);
      return;
    }
#endif
    wake_all();
  }

#if defined(__linux__)
  void allow(const cpu_set_t& processors) noexcept {
    for (std::thread& worker : workers_) {
      pthread_setaffinity_np(worker.native_handle(), sizeof(processors), &processors);
    }
  }
#endif

  void wake_all() noexcept {
    wake_.fetch_add(1, std::memory_order_release);
    wake_.notify_all();
  }

  void stop() noexcept;

  static void pin_thread([[maybe_unused]] std::thread& thread, [[maybe_unused]] int position) noexcept {
#if defined(__linux__)
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
      return;
    }
    int found = 0;
    for (std::size_t processor = 0; processor < CPU_SETSIZE; ++processor) {
      if (CPU_ISSET(processor, &allowed) && found++ == position) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(processor, &one);
        // Best effort: a container may forbid it, and the loop is correct without it.
        pthread_setaffinity_np(thread.native_handle(), sizeof(one), &one);
        return;
      }
    }
#endif
  }

  bool flush_denormals_;
  dynamic_array<std::thread> workers_;
  std::atomic<int> sleeping_{0};  // number of sleeping workers
  std::atomic<bool> in_use_{false};
  std::exception_ptr failure_;
  std::mutex failure_mutex_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> failed_{false};
  std::atomic<void*> object_{nullptr};
  std::atomic<call_type> call_{nullptr};
  std::atomic<std::uint32_t> count_{0};
  alignas(64) std::atomic<std::uint64_t> ticket_{0};
  alignas(64) std::atomic<std::uint32_t> finished_{0};
  alignas(64) std::atomic<std::uint32_t> wake_{0};
};

}  // namespace detail
}  // namespace gradus

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::detail {

GRADUS_INLINE_CONSTRUCTOR thread_pool::thread_pool(int threads, bool pin, bool flush_denormals)
    : flush_denormals_{flush_denormals} {
  workers_.reserve(static_cast<std::size_t>(threads > 1 ? threads - 1 : 0));
  try {
    for (int worker = 1; worker < threads; ++worker) {
      workers_.push_back(start_thread(
          "gradus pool", [](void* pool) { static_cast<thread_pool*>(pool)->work(); }, this));
      if (pin) {
        pin_thread(workers_.back(), worker);
      }
    }
  } catch (...) {
    stop();
    throw;
  }
}

GRADUS_NEVER_INLINE GRADUS_INLINE void thread_pool::run_calls(index_t count, call_type call, void* object) {
  if (count <= 0) {
    return;
  }
  const floating_point_scope arithmetic{flush_denormals_};
  if (count == 1 || workers_.empty() || task_of() == this || in_use_.exchange(true, std::memory_order_acquire)) {
    for (index_t i = 0; i < count; ++i) {
      call(object, i);
    }
    return;
  }
  const auto tasks = static_cast<std::uint32_t>(count);
  failed_.store(false, std::memory_order_relaxed);
  finished_.store(0, std::memory_order_relaxed);
  count_.store(tasks, std::memory_order_relaxed);
  object_.store(object, std::memory_order_relaxed);
  call_.store(call, std::memory_order_relaxed);
  const std::uint64_t generation = (ticket_.load(std::memory_order_relaxed) >> 32U) + 1;
  ticket_.store((generation << 32U) | tasks, std::memory_order_release);
  wake_workers();
  take_tasks();
  spin_then_sleep(finished_, [&](std::uint32_t finished) { return finished == tasks; });
  const std::exception_ptr failure = std::exchange(failure_, nullptr);
  in_use_.store(false, std::memory_order_release);
  if (failure != nullptr) {
    std::rethrow_exception(failure);
  }
}

GRADUS_INLINE void thread_pool::take_tasks() noexcept {
  const thread_pool* const outer = std::exchange(task_of(), this);
  std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (static_cast<std::uint32_t>(ticket) != 0) {
    const std::uint32_t count = count_.load(std::memory_order_relaxed);
    void* const object = object_.load(std::memory_order_relaxed);
    const call_type call = call_.load(std::memory_order_relaxed);
    if (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
      continue;
    }
    if (!failed_.load(std::memory_order_relaxed)) {
      try {
        call(object, static_cast<index_t>(count - static_cast<std::uint32_t>(ticket)));
      } catch (...) {
        const std::scoped_lock lock{failure_mutex_};
        if (!failed_.load(std::memory_order_relaxed)) {
          failure_ = std::current_exception();
          failed_.store(true, std::memory_order_relaxed);
        }
      }
    }
    if (finished_.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
      finished_.notify_all();
    }
    ticket = ticket_.load(std::memory_order_acquire);
  }
  task_of() = outer;
}

GRADUS_INLINE void thread_pool::work() {
  const floating_point_scope arithmetic{flush_denormals_};
  std::uint32_t seen = 0;
  for (;;) {
    seen = spin_then_sleep(
        wake_, [&](std::uint32_t now) { return now != seen; },
        [&, this](std::uint32_t now) {
          sleeping_.fetch_add(1, std::memory_order_relaxed);
          wake_.wait(now, std::memory_order_acquire);
          sleeping_.fetch_sub(1, std::memory_order_relaxed);
        });
    if (stopping_.load(std::memory_order_acquire)) {
      return;
    }
    take_tasks();
  }
}

GRADUS_INLINE void thread_pool::wake_workers() noexcept {
  if (sleeping_.load(std::memory_order_relaxed) == 0) {
    wake_all();
  } else {
    wake_elsewhere();
  }
}

GRADUS_INLINE void thread_pool::stop() noexcept {
  stopping_.store(true, std::memory_order_release);
  wake_all();
  for (std::thread& worker : workers_) {
    worker.join();
  }
  workers_.clear();
}

}  // namespace gradus::detail
#endif

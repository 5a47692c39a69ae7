// SPDX-License-Identifier: BSL-1.0
//
// The thread of a rank that carries its messages to and from parameter servers, and serves if the rank is a server.
#pragma once

#include <atomic>              // std::atomic
#include <chrono>              // std::chrono
#include <condition_variable>  // std::condition_variable
#include <cstddef>             // std::size_t
#include <cstdint>             // std::uint64_t, std::uint8_t
#include <exception>           // std::current_exception, std::exception, std::exception_ptr, std::rethrow_exception
#include <memory>              // std::unique_ptr
#include <mutex>               // std::mutex, std::unique_lock
#include <source_location>     // std::source_location
#include <span>                // std::span
#include <string>              // std::string
#include <string_view>         // std::string_view
#include <thread>              // std::thread, std::this_thread
#include <utility>             // std::move

#include "gradus/comm/wait.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/text.hpp"
#include "gradus/parameter_server/detail/protocol/links.hpp"
#include "gradus/parameter_server/detail/protocol/loop.hpp"
#include "gradus/parameter_server/detail/protocol/messages.hpp"
#include "gradus/parameter_server/detail/protocol/worker_side.hpp"

namespace gradus::parallel::detail {

/// Pauses of a thread that polls. A poll moves a few kilobytes of a message that comes through a socket, and many polls
/// complete nothing. So the thread first only yields its processor, and sleeps when nothing has come for a while.
/// Unlike a rank with comm::backoff, it waits beside ranks that compute: it never spins, sleeps earlier, and sleeps
/// longer the longer nothing comes.
class polling_pause {
 public:
  void moved() noexcept { idle_ = 0; }
  void pause() {
    if (++idle_ < yields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds{idle_ < 10 * yields ? 50 : 200});
    }
  }

 private:
  static constexpr int yields = 1000;
  int idle_ = 0;
};

/// Serves until all workers have left or are lost: the work of a rank that is only a server.
/// @throws communication_error if a rank fails or no worker sends anything within the time limit
inline void serve_to_the_end(server_loop& loop, comm::link& channel) {
  try {
    polling_pause rest;
    while (!loop.done()) {
      if (loop.poll()) {
        rest.moved();
        continue;
      }
      if (comm::clock::now() - loop.moved_at() > channel.time_limit() * 2) {
        std::string reason =
            gradus::join({"no worker has been heard of within ", comm::seconds_text(channel.time_limit() * 2)});
        if (const dynamic_array<int> silent = channel.silent_ranks("parameter_server.serve"); !silent.empty()) {
          append_text(reason, {"; no answer from ", comm::ranks_text(silent)});
        }
        raise<communication_error>("parameter_server.serve", {}, reason, "set_time_limit allows longer waits");
      }
      rest.pause();
    }
  } catch (const std::exception& failure) {
    channel.fail(failure.what());
    throw;
  }
}

/// One worker's rank: its worker side, and its server if it is one too, moved forward by a thread of its own while the
/// program computes.
class server_exchange {
 public:
  /// @param server  null: the rank is only a worker
  /// @param flush_denormals  as the devices of the workers
  /// @pre what is referred to outlives it
  server_exchange(server_links& links, worker_side& worker, server_loop* server, std::size_t segments, bool staged,
                  bool flush_denormals)
      : links_{&links},
        worker_{&worker},
        server_{server},
        segments_{segments},
        staged_{staged},
        flush_denormals_{flush_denormals},
        limit_{links.channel().time_limit()} {}

  server_exchange(const server_exchange&) = delete;
  server_exchange& operator=(const server_exchange&) = delete;

  /// The worker leaves; a server goes on until the other workers have left, or are lost.
  ~server_exchange() {
    if (!thread_.joinable()) {
      return;
    }
    {
      const std::scoped_lock lock{mutex_};
      leaving_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  /// The first round: worker 0's values become those of the servers, then of all workers.
  void start(bool first_worker) {
    kind_ = first_worker ? round_kind::initial : round_kind::join;
    finished_.store(true, std::memory_order_release);
    thread_ = std::thread{[this] { run(); }};
    std::unique_lock lock{mutex_};
    wait(lock, "parameter_server.start", [this] { return !asked() && worker_->pulled() && worker_->pushed(); });
    if (staged_) {
      worker_->take_values();
    }
  }

  /// The gradients of `count` more segments are complete.
  void segments_ready(std::size_t count) noexcept {
    ready_.fetch_add(count, std::memory_order_release);
    if (server_ == nullptr) {
      changed_.notify_one();
    }
  }

  /// All gradients are there: asks for the next values; staged, waits for those asked for in the step before.
  void finish(double learning_rate, const std::source_location& where) {
    std::unique_lock lock{mutex_};
    if (staged_ && pull_is_out_) {
      wait(
          lock, "parameter_server.finish", [this] { return worker_->pulled(); }, where);
      worker_->take_values();
    }
    kind_ = round_kind::push;
    rate_ = learning_rate;
    finished_.store(true, std::memory_order_release);
    changed_.notify_all();
    // The next backward pass writes the gradients: they must be gone by then.
    wait(
        lock, "parameter_server.finish", [this] { return !asked() && worker_->pushed(); }, where);
    pull_is_out_ = staged_;
  }

  /// Waits until the values of segments [first, first + count) are here. Returns whether all are.
  bool wait_for_values(std::size_t first, std::size_t count, const std::source_location& where) {
    std::unique_lock lock{mutex_};
    wait(
        lock, "parameter_server.finish", [&, this] { return worker_->pulled(first, count); }, where);
    return worker_->pulled();
  }

  /// Staged values become those of the network: the next step computes with the newest.
  void complete(const std::source_location& where) {
    if (pull_is_out_) {
      std::unique_lock lock{mutex_};
      wait(
          lock, "parameter_server.complete", [this] { return worker_->pulled(); }, where);
      worker_->take_values();
      pull_is_out_ = false;
    }
  }

  /// What each server has done. @pre no step is under way
  void ask_for_summaries(const std::source_location& where) {
    complete(where);
    std::unique_lock lock{mutex_};
    wait(
        lock, "parameter_server.summary", [this] { return worker_->pulled() && worker_->pushed(); }, where);
    kind_ = round_kind::summary;
    finished_.store(true, std::memory_order_release);
    changed_.notify_all();
    wait(
        lock, "parameter_server.summary", [this] { return !asked() && worker_->pushed(); }, where);
  }

  /// Copies a buffer of the servers' state to one that is laid out as the flat buffers. @pre no step is under way
  void fetch(std::size_t buffer, std::span<std::uint8_t> to, const std::source_location& where) {
    exchange_state({.kind = round_kind::fetch, .buffer = buffer}, to, where);
  }
  /// Sets such a buffer on the servers. @pre no step is under way
  void store(std::size_t buffer, std::uint64_t updates, std::span<std::uint8_t> from,
             const std::source_location& where) {
    exchange_state({.kind = round_kind::store, .buffer = buffer, .updates = updates}, from, where);
  }

 private:
  void exchange_state(const round_header& header, std::span<std::uint8_t> memory, const std::source_location& where) {
    constexpr std::string_view what = "parameter_server, the state of the servers";
    std::unique_lock lock{mutex_};
    wait(
        lock, what, [this] { return worker_->pulled() && worker_->pushed(); }, where);
    kind_ = header.kind;
    state_header_ = header;
    state_memory_ = memory;
    finished_.store(true, std::memory_order_release);
    changed_.notify_all();
    wait(
        lock, what, [this] { return !asked() && worker_->pulled() && worker_->pushed(); }, where);
  }

  using clock = comm::clock;

  /// The program has asked for something that the thread has not begun. @pre the mutex is held
  [[nodiscard]] bool asked() const noexcept { return finished_.load(std::memory_order_acquire); }

  /// Lets the thread go on meanwhile. An exception ends it.
  dynamic_array<int> ask_who_is_silent(std::unique_lock<std::mutex>& lock, std::string_view what) {
    lock.unlock();
    try {
      dynamic_array<int> silent = links_->channel().silent_ranks(what);
      lock.lock();
      return silent;
    } catch (...) {
      lock.lock();
      ended_ = true;
      throw;
    }
  }

  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, std::string_view what, const Condition& condition,
            const std::source_location& where = std::source_location::current()) {
    clock::time_point deadline = clock::now() + limit_;
    std::size_t seen = moves_;
    while (failure_ == nullptr && !condition()) {
      changed_.wait_for(lock, std::chrono::milliseconds{20});
      if (moves_ != seen) {
        seen = moves_;
        deadline = clock::now() + limit_;
      } else if (clock::now() >= deadline) {
        const dynamic_array<int> silent = ask_who_is_silent(lock, what);
        if (failure_ != nullptr || moves_ != seen || condition()) {
          continue;
        }
        const std::string time = comm::seconds_text(limit_);
        // The server may wait itself, for a rank that does not answer.
        const std::string reason =
            silent.empty() ? gradus::join({worker_->describe_missing(), ": it did not answer within ", time})
                           : gradus::join({worker_->describe_missing(), ": not complete within ", time,
                                           "; no answer from ", comm::ranks_text(silent)});
        links_->channel().fail(gradus::join({what, ": ", reason}));
        ended_ = true;
        raise<communication_error>(what, {}, reason, "set_time_limit allows longer waits", where);
      }
    }
    if (failure_ != nullptr) {
      try {
        std::rethrow_exception(failure_);
      } catch (error& failure) {
        failure.add_context(what, where);
        throw;
      }
    }
  }

  void run() noexcept {
    const floating_point_scope arithmetic{flush_denormals_};
    try {
      polling_pause rest;
      while (!over()) {
        bool moved = false;
        {
          const std::scoped_lock lock{mutex_};
          if (ended_) {
            return;
          }
          moved = move_forward();
          moves_ += moved ? 1 : 0;
        }
        if (moved) {
          changed_.notify_all();
          rest.moved();
          continue;
        }
        std::unique_lock lock{mutex_};
        if (server_ == nullptr && worker_->pushed() && worker_->pulled() && !asked() && !leaving_ && !ready_to_push()) {
          changed_.wait_for(lock, std::chrono::milliseconds{1});
          continue;
        }
        lock.unlock();
        rest.pause();
      }
    } catch (...) {
      const std::scoped_lock lock{mutex_};
      failure_ = std::current_exception();
      try {
        throw;
      } catch (const std::exception& failure) {
        links_->channel().fail(failure.what());
      } catch (...) {
        links_->channel().fail("an exception that is not a std::exception");
      }
    }
    changed_.notify_all();
  }

  [[nodiscard]] bool ready_to_push() const noexcept {
    return ready_.load(std::memory_order_acquire) > pushed_segments_;
  }

  /// @pre the mutex is held
  bool move_forward() {
    bool moved = server_ != nullptr && server_->poll();
    moved = worker_->poll() || moved;
    if (left_) {
      return moved;
    }
    if (leaving_) {
      return leave() || moved;
    }
    const bool finish = asked();
    const std::size_t ready = ready_.load(std::memory_order_acquire);
    if (finish && kind_ != round_kind::push) {
      if (kind_ == round_kind::initial || kind_ == round_kind::join) {
        worker_->open(kind_, 0);
        if (kind_ == round_kind::initial) {
          worker_->push(segments_, worker_->buffers().values);
        }
        worker_->close(0, true);
      } else if (kind_ == round_kind::fetch) {
        worker_->open(state_header_);
        worker_->ask(state_memory_);
      } else if (kind_ == round_kind::store) {
        worker_->open(state_header_);
        worker_->push(segments_, state_memory_);
        worker_->end_round(0, true);
      } else {
        worker_->open(kind_, 0);
      }
      answered();
      return true;
    }
    if (ready > pushed_segments_) {
      if (!worker_->is_open()) {
        worker_->open(round_kind::push, pull_is_out_ ? 1 : 0);
      }
      worker_->push(ready, worker_->buffers().gradients);
      pushed_segments_ = ready;
      moved = true;
    }
    if (finish && worker_->pulled()) {
      if (!worker_->is_open()) {  // a network without parameters
        worker_->open(round_kind::push, pull_is_out_ ? 1 : 0);
      }
      worker_->close(rate_, true);
      ready_.store(0, std::memory_order_release);
      pushed_segments_ = 0;
      answered();
      moved = true;
    }
    return moved;
  }

  void answered() {
    finished_.store(false, std::memory_order_release);
    static_cast<void>(worker_->poll());  // counts what has just been begun
  }

  /// The worker says that it leaves; a round that it has begun is made void first.
  bool leave() {
    if (worker_->is_open()) {
      worker_->push(segments_, worker_->buffers().gradients);
      worker_->close(0, false);
      return true;
    }
    if (!worker_->pushed() || !worker_->pulled()) {
      return false;
    }
    worker_->open(round_kind::leave, 0);
    left_ = true;
    static_cast<void>(worker_->poll());
    left_at_ = clock::now();
    return true;
  }

  /// The end of the thread.
  [[nodiscard]] bool over() {
    const std::scoped_lock lock{mutex_};
    if (leaving_ && left_at_ == clock::time_point{}) {
      left_at_ = clock::now();
    }
    if (leaving_ && !left_) {
      return clock::now() - left_at_ > limit_;  // a server does not answer
    }
    if (!left_) {
      return false;
    }
    const bool told = worker_->pushed() || clock::now() - left_at_ > limit_;
    return told && (server_ == nullptr || server_->done());
  }

  server_links* links_;
  worker_side* worker_;
  server_loop* server_;
  std::size_t segments_;
  bool staged_;
  bool flush_denormals_;
  std::chrono::milliseconds limit_;
  std::atomic<std::size_t> ready_{0};  // segments of this step
  std::atomic<bool> finished_{false};  // something is asked for
  bool pull_is_out_ = false;           // staged: the values of a step are on their way; of the program's thread
  std::mutex mutex_;                   // guards what follows, worker and server
  std::condition_variable changed_;
  round_kind kind_ = round_kind::push;  // what is asked for
  round_header state_header_;           // of fetch and store
  std::span<std::uint8_t> state_memory_;
  double rate_ = 0;
  std::size_t pushed_segments_ = 0;  // of this step
  std::size_t moves_ = 0;
  bool leaving_ = false;
  bool left_ = false;
  bool ended_ = false;  // the program has given up
  clock::time_point left_at_{};
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace gradus::parallel::detail

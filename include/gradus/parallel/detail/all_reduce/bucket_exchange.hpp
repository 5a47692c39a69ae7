// SPDX-License-Identifier: BSL-1.0
//
// Reduces the buckets of a step over the ranks behind the rest of backward.
#pragma once

#include <algorithm>        // std::clamp
#include <atomic>           // std::atomic
#include <chrono>           // std::chrono::microseconds, std::chrono::steady_clock
#include <cstddef>          // std::size_t
#include <cstdint>          // std::uint32_t
#include <exception>        // std::current_exception, std::exception_ptr, std::rethrow_exception
#include <mutex>            // std::mutex, std::unique_lock
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string>           // std::string
#include <thread>           // std::thread, std::this_thread
#include <utility>          // std::exchange, std::move

#include "gradus/comm/request.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/thread.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/parallel/bucket.hpp"

namespace gradus::parallel::detail {

/// Sums parts of the flat buffer of gradients over the ranks.
class gradient_channel {
 public:
  virtual comm::request reduce(index_t begin, index_t end) = 0;

 protected:
  ~gradient_channel() = default;
};

/// The parts of the buckets of one rank's step, begun in a fixed order, the same on all ranks, each as soon as the
/// gradients of its bucket are complete and little enough is under way. A thread of its own moves them forward while
/// the program computes; in wait_next the program's thread does. One thread at a time touches the channel. Without a
/// thread the program's moves them forward whenever gradients of a layer are complete.
class bucket_exchange {
 public:
  struct settings {
    bool overlap = true;       ///< they travel behind backward
    bool thread = true;        ///< a thread moves them forward; else segments_ready does
    bool late = false;         ///< buckets may still be taken when the next step has begun
    index_t credit_bytes = 0;  ///< under way at most; a single part may be longer
    index_t element_bytes = 1;
    bool flush_denormals = false;                   ///< the thread takes denormal numbers as 0
    std::chrono::microseconds longest_pause{2000};  ///< of the thread, between two polls
  };

  /// @param parts  of all buckets, in the order in which they travel
  /// @pre the channel and the segments outlive the exchange
  bucket_exchange(gradient_channel& channel, std::span<const optim::segment> segments, bucket_list buckets,
                  part_list parts, const settings& options);

  bucket_exchange(const bucket_exchange&) = delete;
  bucket_exchange& operator=(const bucket_exchange&) = delete;

  ~bucket_exchange();

  [[nodiscard]] std::span<const bucket> buckets() const noexcept { return {buckets_.data(), buckets_.size()}; }
  /// In the order in which they travel.
  [[nodiscard]] std::span<const part> parts() const noexcept { return {parts_.data(), parts_.size()}; }
  [[nodiscard]] const settings& options() const noexcept { return options_; }

  /// The gradients of `count` more segments are complete, in their order.
  void segments_ready(std::size_t count);

  /// Whether a bucket with segments of [first, first + count) has not been taken in this step.
  [[nodiscard]] bool waits_for(std::size_t first, std::size_t count) const noexcept;

  [[nodiscard]] bool all_taken() const noexcept { return all_taken_; }

  /// Waits for the next bucket of which all parts come and returns it; to be called once for each bucket of a step.
  /// @throws communication_error that names the bucket when a rank fails or does not come
  const bucket& wait_next();

 private:
  using clock = std::chrono::steady_clock;

  /// @pre the mutex is held
  const bucket& wait_for_next_bucket();

  /// @pre the mutex is held
  void begin_what_can_begin();

  /// The next part in the order is complete: there is credit for others.
  void count_done() noexcept {
    elements_under_way_ -= parts_[done_++].size();
    changed_ = clock::now();
  }

  void wake() noexcept {
    calls_.fetch_add(1, std::memory_order_release);
    calls_.notify_one();
  }

  void poll() noexcept;

  /// One poll moves a few kilobytes of a message that comes through a socket. So it polls again as long as a poll takes
  /// long enough to have moved something: empty polls dominate the thread's cost. True if a part is under way.
  bool move_while_data_flows() noexcept;

  /// True if a part is under way that has to be polled again. What goes wrong is thrown by wait_next.
  /// @pre the mutex is held
  bool move_forward() noexcept;

  gradient_channel* channel_;
  std::span<const optim::segment> segments_;
  bucket_list buckets_;
  part_list parts_;  // in the order in which they travel
  settings options_;
  std::atomic<std::size_t> ready_{0};       // segments
  std::size_t next_complete_ = 0;           // bucket; of the computing thread
  bool all_taken_ = false;                  // since the last segments were ready; of the computing thread
  std::mutex mutex_;                        // guards the channel and what follows
  dynamic_array<comm::request> under_way_;  // of the parts
  index_t elements_under_way_ = 0;          // of the parts from done_ to begun_
  std::size_t begun_ = 0;                   // parts
  std::size_t done_ = 0;                    // parts that are complete, and all before them
  std::size_t taken_ = 0;                   // parts
  clock::time_point changed_{};             // when the last part began or was complete
  std::exception_ptr failure_;
  clock::duration pause_{};  // of the thread: as long as the last part has been under way
  std::atomic<std::uint32_t> calls_{0};
  std::atomic<bool> stopping_{false};
  std::thread poller_;
};

}  // namespace gradus::parallel::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::parallel::detail {

GRADUS_INLINE_CONSTRUCTOR bucket_exchange::bucket_exchange(gradient_channel& channel,
                                                           std::span<const optim::segment> segments,
                                                           bucket_list buckets, part_list parts,
                                                           const settings& options)
    : channel_{&channel},
      segments_{segments},
      buckets_{std::move(buckets)},
      parts_{std::move(parts)},
      options_{options},
      under_way_(parts_.size()) {
  if (options_.overlap && options_.thread && !buckets_.empty()) {
    poller_ = start_thread(
        "gradus buckets", [](void* self) { static_cast<bucket_exchange*>(self)->poll(); }, this);
  }
}

GRADUS_INLINE_CONSTRUCTOR bucket_exchange::~bucket_exchange() {
  if (poller_.joinable()) {
    stopping_.store(true, std::memory_order_release);
    wake();
    poller_.join();
  }
}

GRADUS_INLINE void bucket_exchange::segments_ready(std::size_t count) {
  all_taken_ = false;
  const std::size_t ready = ready_.load(std::memory_order_relaxed) + count;
  ready_.store(ready, std::memory_order_release);
  if (options_.overlap && !options_.thread) {
    move_forward();
  } else if (options_.overlap && next_complete_ < buckets_.size() && ready >= buckets_[next_complete_].end_segment()) {
    while (next_complete_ < buckets_.size() && ready >= buckets_[next_complete_].end_segment()) {
      ++next_complete_;
    }
    {
      const std::unique_lock lock{mutex_, std::try_to_lock};
      if (lock.owns_lock()) {
        move_forward();
      }
    }
    wake();
  }
}

GRADUS_INLINE bool bucket_exchange::waits_for(std::size_t first, std::size_t count) const noexcept {
  for (std::size_t i = taken_; i < parts_.size() && !all_taken_; ++i) {
    const bucket& one = buckets_[parts_[i].bucket];
    if (one.first_segment < first + count && first < one.end_segment()) {
      return true;
    }
  }
  return false;
}

GRADUS_INLINE const bucket& bucket_exchange::wait_next() {
  std::unique_lock lock{mutex_};
  const bucket& next = wait_for_next_bucket();
  const bool more = taken_ < parts_.size();
  if (!more) {  // ready for the next step
    all_taken_ = true;
    taken_ = 0;
    done_ = 0;
    begun_ = 0;
    next_complete_ = 0;
    ready_.store(0, std::memory_order_relaxed);
  }
  lock.unlock();
  if (options_.overlap && more) {
    wake();  // the next ones move on during the update of this one; a thread that is woken before the lock is free
             // finds it taken, and goes to sleep again
  }
  return next;
}

GRADUS_INLINE const bucket& bucket_exchange::wait_for_next_bucket() {
  const auto where = std::source_location::current();
  const part* next = nullptr;
  try {
    do {
      next = &parts_[taken_];
      if (failure_ != nullptr) {
        std::rethrow_exception(std::exchange(failure_, nullptr));
      }
      begin_what_can_begin();
      if (begun_ == taken_) {
        raise<configuration_error>("all_reduce.finish", "all gradients of the step", "a bucket that is not complete",
                                   "call finish after backward");
      }
      under_way_[taken_].wait(where);
      if (done_ == taken_) {
        count_done();
      }
      ++taken_;
    } while (waits_for(buckets_[next->bucket].first_segment, 1));
  } catch (error& failure) {
    failure.add_context(describe(buckets(), next->bucket, segments_), where);
    throw;
  }
  return buckets_[next->bucket];
}

GRADUS_INLINE void bucket_exchange::begin_what_can_begin() {
  const std::size_t ready = ready_.load(std::memory_order_acquire);
  for (; begun_ < parts_.size() && ready >= buckets_[parts_[begun_].bucket].end_segment(); ++begun_) {
    const part& next = parts_[begun_];
    if (begun_ > done_ && !has_credit(elements_under_way_ * options_.element_bytes,
                                      next.size() * options_.element_bytes, options_.credit_bytes)) {
      return;
    }
    under_way_[begun_] = channel_->reduce(next.begin, next.end);
    elements_under_way_ += next.size();
    changed_ = clock::now();
  }
}

GRADUS_INLINE void bucket_exchange::poll() noexcept {
  const floating_point_scope arithmetic{options_.flush_denormals};
  while (!stopping_.load(std::memory_order_acquire)) {
    const std::uint32_t calls = calls_.load(std::memory_order_acquire);
    if (move_while_data_flows()) {
      std::this_thread::sleep_for(pause_);
    } else {
      calls_.wait(calls, std::memory_order_acquire);
    }
  }
}

GRADUS_INLINE bool bucket_exchange::move_while_data_flows() noexcept {
  constexpr std::chrono::microseconds look_at_nothing{10};
  constexpr std::chrono::microseconds shortest_pause{200};
  constexpr std::chrono::microseconds longest_run{500};
  const clock::time_point begin = clock::now();
  clock::time_point last = begin;
  for (bool moved = true; moved && last - begin < longest_run;) {
    const std::unique_lock lock{mutex_, std::try_to_lock};
    if (!lock.owns_lock() || !move_forward()) {
      return false;
    }
    const clock::time_point now = clock::now();
    moved = now - last >= look_at_nothing;
    last = now;
    pause_ = std::clamp<clock::duration>(now - changed_, shortest_pause, options_.longest_pause);
  }
  return true;
}

GRADUS_INLINE bool bucket_exchange::move_forward() noexcept {
  if (failure_ != nullptr) {
    return false;
  }
  try {
    for (;;) {
      begin_what_can_begin();
      const std::size_t before = done_;
      for (std::size_t i = done_; i < begun_; ++i) {
        if (under_way_[i].test() && i == done_) {
          count_done();
        }
      }
      if (done_ == before) {
        return done_ < begun_;
      }
    }
  } catch (...) {
    failure_ = std::current_exception();
    return false;
  }
}

}  // namespace gradus::parallel::detail
#endif

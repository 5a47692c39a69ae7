// SPDX-License-Identifier: BSL-1.0
//
// Records the work of the threads of one rank, in a lock-free ring of spans for each thread.
#pragma once

#include <algorithm>    // std::sort
#include <atomic>       // std::atomic
#include <bit>          // std::bit_ceil
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::int32_t, std::int64_t, std::uint32_t, std::uint64_t, std::uint8_t
#include <functional>   // std::less_equal
#include <memory>       // std::make_unique, std::unique_ptr
#include <mutex>        // std::mutex, std::scoped_lock
#include <optional>     // std::optional
#include <span>         // std::span
#include <string_view>  // std::string_view
#include <thread>       // std::this_thread, std::thread
#include <vector>       // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/trace/clock_alignment.hpp"
#include "gradus/trace/detail/recorder/clock.hpp"
#include "gradus/trace/detail/recorder/name_table.hpp"
#include "gradus/trace/detail/recorder/ring.hpp"
#include "gradus/trace/span.hpp"

namespace gradus::trace {

/// Functions of a profiler that marks ranges of the calling thread; see trace/nvtx.hpp.
struct range_hooks {
  void (*push)(const char* name) noexcept = nullptr;  ///< begins a range
  void (*pop)() noexcept = nullptr;                   ///< ends the innermost range
};

/// Options of a recorder.
struct recorder_options {
  std::size_t capacity = 32768;  ///< spans kept for each thread, rounded up to a power of two; 64 bytes each
  bool enabled = true;           ///< record from the beginning; see recorder::enable
  range_hooks ranges = {};       ///< also called for each scope, layer and phase
};

/// The recording of a rank, with times in nanoseconds of std::chrono::steady_clock.
struct recording {
  std::vector<span> spans;    ///< ordered by begin; of those that began together the longest is first
  std::uint64_t dropped = 0;  ///< number of spans that were overwritten by later ones
};

/// The recorder of one rank.
///
/// @code
///   trace::recorder recorder;                                         // by the rank's own thread
///   auto world = trace::traced(comm::mpi{environment}, recorder);     // its transfers are recorded
///   train::trainer trainer{net, optim::sgd{}, world};                 // and so is the training: train/traced.hpp
///   trainer.fit(loader, {.epochs = 2});
///   trace::write("trace.json", recorder, world);
/// @endcode
///
/// Any thread may record. Each has its own ring, allocated when it records for the first time. After that, recording
/// neither allocates nor waits: it takes two readings of a clock and 64 bytes. When a ring is full, new spans replace
/// the oldest. The recorder must outlive everything that records with it.
class recorder {
 public:
  /// The calling thread becomes the rank's own thread: its work is shown on track::step.
  /// @throws configuration_error if the capacity is 0
  explicit recorder(const recorder_options& options = {}) : options_{options}, enabled_{options.enabled} {
    if (options.capacity < 1 || options.capacity > most_spans) {
      raise<configuration_error>("trace::recorder", {"a capacity from 1 to ", most_spans}, {options.capacity});
    }
    options_.capacity = std::bit_ceil(options.capacity);
    this_thread();
  }

  recorder(const recorder&) = delete;
  recorder& operator=(const recorder&) = delete;

  /// Turns recording on or off. While it is off, it only costs a test of a flag.
  void enable(bool on) noexcept { enabled_.store(on, std::memory_order_relaxed); }
  /// True if spans are recorded.
  [[nodiscard]] bool enabled() const noexcept { return enabled_.load(std::memory_order_relaxed); }

  /// The current time in ticks of the recorder's clock; the length of a tick is unknown.
  [[nodiscard]] std::int64_t now() const noexcept { return clock_.now(); }

  /// Stores a text that is built at run time. Equal texts are stored once. Locks and may allocate: call it before the
  /// steps that are recorded.
  [[nodiscard]] name intern(std::string_view text) {
    const std::scoped_lock lock{mutex_};
    return names_.intern(text);
  }

  /// Names a range of memory, such as "gradients 3", in spans of transfers of that memory or a part of it.
  void name_memory(std::span<const std::byte> memory, std::string_view text) {
    const name known = intern(text);
    const std::scoped_lock lock{mutex_};
    for (named_memory& each : memory_) {
      if (each.begin == memory.data()) {
        each = {memory.data(), memory.size(), known};
        return;
      }
    }
    memory_.push_back({memory.data(), memory.size(), known});
  }

  /// The name of the named memory that contains these bytes, or none.
  [[nodiscard]] name memory_name(const std::byte* begin, std::size_t bytes) const noexcept {
    constexpr std::less_equal<> before;
    const std::scoped_lock lock{mutex_};
    for (const named_memory& each : memory_) {
      if (bytes != 0 && before(each.begin, begin) && before(begin + bytes, each.begin + each.bytes)) {
        return each.known;
      }
    }
    return {};
  }

  /// Sets the training step of later spans, on all threads; -1: none.
  void set_step(std::int32_t step) noexcept { step_.store(step, std::memory_order_relaxed); }
  /// The current training step; -1: none.
  [[nodiscard]] std::int32_t step() const noexcept { return step_.load(std::memory_order_relaxed); }

  /// Sets the track on which later work of the calling thread is shown.
  void set_track(track where) { this_thread().where = where; }

  /// Stores a span of the calling thread, if recording is on. Fills in the thread.
  void push(span& one) {
    if (enabled()) {
      thread_spans& mine = this_thread();
      one.thread = mine.number;
      mine.spans.push(one);
    }
  }

  /// The same, on the track of the calling thread.
  void push_here(span& one) {
    if (enabled()) {
      thread_spans& mine = this_thread();
      one.thread = mine.number;
      one.where = mine.where;
      mine.spans.push(one);
    }
  }

  /// Begins a range of the profiler, if there are hooks.
  void push_range(name title) const noexcept {
    if (options_.ranges.push != nullptr) {
      options_.ranges.push(title.text());
    }
  }
  /// Ends the innermost range of the profiler, if there are hooks.
  void pop_range() const noexcept {
    if (options_.ranges.pop != nullptr) {
      options_.ranges.pop();
    }
  }

  /// Stores the first measurement of the clock; later calls have no effect.
  void note_clock(const clock_offset& measured) {
    const std::scoped_lock lock{mutex_};
    if (!first_clock_) {
      first_clock_ = measured;
    }
  }
  /// The first measurement of the clock, if any.
  [[nodiscard]] std::optional<clock_offset> first_clock() const {
    const std::scoped_lock lock{mutex_};
    return first_clock_;
  }

  /// Reserves channel numbers for a communicator and its duplicates; returns the first.
  [[nodiscard]] std::uint32_t next_channels() noexcept {
    const std::scoped_lock lock{mutex_};
    return families_++ << 16U;
  }

  /// The spans recorded so far. Other threads may continue to record.
  [[nodiscard]] recording read() const {
    recording result;
    {
      const std::scoped_lock lock{mutex_};
      for (const known_thread& each : threads_) {
        result.dropped += each.spans->spans.read(result.spans);
      }
    }
    const detail::tick_scale scale{clock_.start(), clock_.both()};
    for (span& each : result.spans) {
      each.begin = scale.nanoseconds(each.begin);
      each.end = scale.nanoseconds(each.end);
    }
    std::sort(result.spans.begin(), result.spans.end(), [](const span& a, const span& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end != b.end ? a.end > b.end : a.what < b.what;
    });
    return result;
  }

 private:
  static constexpr std::size_t most_spans = std::size_t{1} << 28U;

  struct thread_spans {
    thread_spans(std::size_t capacity, std::uint8_t position, track of_thread)
        : spans{capacity}, number{position}, where{of_thread} {}
    detail::ring spans;
    std::uint8_t number;
    track where;
  };
  struct named_memory {
    const std::byte* begin;
    std::size_t bytes;
    name known;
  };
  /// The recorder that the calling thread used last, identified by a number that is unique among all recorders.
  struct last_used {
    std::uint64_t recorder = 0;
    thread_spans* spans = nullptr;
  };

  static last_used& last() noexcept {
    static thread_local constinit last_used used{};
    return used;
  }
  static std::uint64_t next_id() noexcept {
    static std::atomic<std::uint64_t> made{0};
    return made.fetch_add(1, std::memory_order_relaxed) + 1;
  }

  thread_spans& this_thread() {
    last_used& used = last();
    if (used.recorder != id_) {
      used = {id_, &find_thread()};
    }
    return *used.spans;
  }

  /// The ring of the calling thread; creates it if there is none.
  thread_spans& find_thread() {
    const std::thread::id own = std::this_thread::get_id();
    const std::scoped_lock lock{mutex_};
    for (known_thread& each : threads_) {
      if (each.id == own) {
        return *each.spans;
      }
    }
    const auto number = static_cast<std::uint8_t>(threads_.size() < 255 ? threads_.size() : 255);
    threads_.push_back({own, std::make_unique<thread_spans>(options_.capacity, number,
                                                            threads_.empty() ? track::step : track::other)});
    return *threads_.back().spans;
  }

  recorder_options options_;
  std::uint64_t id_ = next_id();
  detail::tick_clock clock_;
  std::atomic<bool> enabled_;
  std::atomic<std::int32_t> step_{-1};
  mutable std::mutex mutex_;  // protects the members below
  detail::name_table names_;
  dynamic_array<named_memory> memory_;
  std::optional<clock_offset> first_clock_;
  std::uint32_t families_ = 0;
  struct known_thread {
    std::thread::id id;
    std::unique_ptr<thread_spans> spans;
  };
  dynamic_array<known_thread> threads_;
};

/// Records a span from its construction to the end of the block, on the calling thread:
///
/// @code
///   trace::scope copying{recorder, trace::category::copy, "images to the device"};
///   copying.bytes(images.size_bytes());
/// @endcode
class scope {
 public:
  /// Begins the span.
  scope(recorder& to, category what, name title, name subject = {}, std::int64_t bytes = -1) noexcept
      : recorder_{to.enabled() ? &to : nullptr} {
    if (recorder_ != nullptr) {
      span_.bytes = bytes;
      span_.title = title;
      span_.subject = subject;
      span_.what = what;
      span_.step = to.step();
      to.push_range(title);
      span_.begin = to.now();
    }
  }
  scope(const scope&) = delete;
  scope& operator=(const scope&) = delete;
  ~scope() {
    if (recorder_ != nullptr) {
      span_.end = recorder_->now();
      recorder_->pop_range();
      recorder_->push_here(span_);
    }
  }

  /// Sets the number of bytes that are moved.
  void bytes(std::size_t count) noexcept { span_.bytes = static_cast<std::int64_t>(count); }

 private:
  recorder* recorder_;
  span span_{};
};

}  // namespace gradus::trace

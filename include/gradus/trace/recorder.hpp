// SPDX-License-Identifier: BSL-1.0
//
// Records what the threads of one rank do: a ring of spans for each thread, without locks.
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
  void (*push)(const char* name) noexcept = nullptr;
  void (*pop)() noexcept = nullptr;
};

/// How a recorder works.
struct recorder_options {
  std::size_t capacity = 32768;  ///< spans kept of each thread, rounded up to a power of two; 64 bytes each
  bool enabled = true;           ///< record from the beginning on; see recorder::enable
  range_hooks ranges = {};       ///< also told of every scope, layer and phase
};

/// What a rank has recorded, with times in nanoseconds of std::chrono::steady_clock.
struct recording {
  std::vector<span> spans;    ///< in the order in which they began; of those that began together the longest first
  std::uint64_t dropped = 0;  ///< spans that were overwritten by later ones
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
/// Any thread may record; each has a ring of its own, made when it records for the first time. After that recording
/// allocates nothing and waits for nobody: two readings of a clock and 64 bytes. When a ring is full, the newest spans
/// replace the oldest. The recorder must outlive whatever records with it.
class recorder {
 public:
  /// The calling thread is the rank's own: what it does is shown as track::step.
  /// @throws configuration_error when there is no room for spans
  explicit recorder(const recorder_options& options = {}) : options_{options}, enabled_{options.enabled} {
    if (options.capacity < 1 || options.capacity > most_spans) {
      raise<configuration_error>("trace::recorder", {"a capacity from 1 to ", most_spans}, {options.capacity});
    }
    options_.capacity = std::bit_ceil(options.capacity);
    this_thread();
  }

  recorder(const recorder&) = delete;
  recorder& operator=(const recorder&) = delete;

  /// Whether spans are kept. Outside of what is to be seen, recording can be off: then it costs a look at a flag.
  void enable(bool on) noexcept { enabled_.store(on, std::memory_order_relaxed); }
  [[nodiscard]] bool enabled() const noexcept { return enabled_.load(std::memory_order_relaxed); }

  /// The clock of spans, in ticks of unknown length.
  [[nodiscard]] std::int64_t now() const noexcept { return clock_.now(); }

  /// Keeps a text that is put together at run time. Equal texts are kept once. Locks and may allocate: call it before
  /// the steps that are to be recorded.
  [[nodiscard]] GRADUS_COLD name intern(std::string_view text) {
    const std::scoped_lock lock{mutex_};
    return names_.intern(text);
  }

  /// Transfers of this memory, or of a part of it, shall be shown with a name: "gradients 3".
  GRADUS_COLD void name_memory(std::span<const std::byte> memory, std::string_view text) {
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

  /// The name of the named memory that these bytes are a part of, or none.
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

  /// The training step to which what follows belongs, on all threads; -1: to none.
  void set_step(std::int32_t step) noexcept { step_.store(step, std::memory_order_relaxed); }
  [[nodiscard]] std::int32_t step() const noexcept { return step_.load(std::memory_order_relaxed); }

  /// What the calling thread does is shown there from now on.
  GRADUS_COLD void set_track(track where) { this_thread().where = where; }

  /// Keeps a span of the calling thread, if recording is on. Fills in the thread.
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

  void push_range(name title) const noexcept {
    if (options_.ranges.push != nullptr) {
      options_.ranges.push(title.text());
    }
  }
  void pop_range() const noexcept {
    if (options_.ranges.pop != nullptr) {
      options_.ranges.pop();
    }
  }

  /// What is known of the clock at the beginning; the first call counts.
  GRADUS_COLD void note_clock(const clock_offset& measured) {
    const std::scoped_lock lock{mutex_};
    if (!first_clock_) {
      first_clock_ = measured;
    }
  }
  [[nodiscard]] GRADUS_COLD std::optional<clock_offset> first_clock() const {
    const std::scoped_lock lock{mutex_};
    return first_clock_;
  }

  /// Numbers of communicators for one more family of duplicates.
  [[nodiscard]] std::uint32_t next_channels() noexcept {
    const std::scoped_lock lock{mutex_};
    return families_++ << 16U;
  }

  /// What was recorded so far. Other threads may go on recording.
  [[nodiscard]] GRADUS_COLD recording read() const {
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
    thread_spans(std::size_t capacity, std::uint8_t position, track place)
        : spans{capacity}, number{position}, where{place} {}
    detail::ring spans;
    std::uint8_t number;
    track where;
  };
  struct named_memory {
    const std::byte* begin;
    std::size_t bytes;
    name known;
  };
  /// The recorder that the calling thread used last, by a number that no other recorder ever has.
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

  /// The ring of the calling thread, made if there is none.
  GRADUS_COLD thread_spans& find_thread() {
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
  mutable std::mutex mutex_;  // of what follows
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

/// A span from here to the end of the block, on the calling thread:
///
/// @code
///   trace::scope copying{recorder, trace::category::copy, "images to the device"};
///   copying.bytes(images.size_bytes());
/// @endcode
class scope {
 public:
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

  /// How many bytes are moved.
  void bytes(std::size_t count) noexcept { span_.bytes = static_cast<std::int64_t>(count); }

 private:
  recorder* recorder_;
  span span_{};
};

}  // namespace gradus::trace

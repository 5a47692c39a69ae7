// SPDX-License-Identifier: BSL-1.0
//
// One collective of thread ranks: the ranks store their pointers, and the waiting ranks do the work.
#pragma once

#include <algorithm>        // std::clamp, std::max, std::min
#include <atomic>           // std::atomic
#include <chrono>           // std::chrono
#include <cstddef>          // std::byte, std::size_t
#include <cstdint>          // std::uint32_t, std::uint64_t
#include <cstring>          // std::memcpy
#include <memory>           // std::make_unique, std::shared_ptr, std::unique_ptr
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string>           // std::string
#include <thread>           // std::this_thread

#include "gradus/comm/call.hpp"
#include "gradus/comm/detail/threads/world.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/comm/transfer.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"

namespace gradus::comm::detail {

class thread_channel;

/// The meeting of the ranks of a group for one collective; reused for later ones.
///
/// The work of a collective is an interval [0, work) of elements that is split into chunks. The rank that arrives last
/// makes the chunks available, and every rank that waits takes chunks until none is left. So no rank waits for another
/// that has arrived and computes something else. The thread that computes a chunk does not change its bits:
/// contributions are combined in the order of the ranks.
class thread_collective {
 public:
  /// Computes the elements [begin, end) of the work.
  using kernel = void (*)(const thread_collective& meeting, index_t begin, index_t end);

  /// The call of one rank.
  struct alignas(64) entry final : operation {
    thread_collective* meeting = nullptr;
    int rank = 0;
    std::atomic<std::uint64_t> arrived_at{0};  // the number of the last collective at which the rank arrived here
    call_description what{};
    const element_type* element = nullptr;
    kernel work = nullptr;
    index_t elements = 0;  // elements of the work
    index_t element_bytes = 1;
    std::chrono::milliseconds limit{};
    std::shared_ptr<thread_channel> new_channel{};  // of a duplicate

    bool test(const std::source_location& where) override { return meeting->look(*this, where); }
    void wait(const std::source_location& where) override { meeting->wait(*this, where); }
    void abandon(bool unwinding) noexcept override { meeting->abandon(*this, unwinding); }
    void release() noexcept override { meeting->left_.fetch_add(1, std::memory_order_acq_rel); }
  };

  thread_collective(thread_world& world, const dynamic_array<std::atomic<bool>>& departed);

  [[nodiscard]] int ranks() const noexcept { return world_->size(); }
  [[nodiscard]] entry& at(int rank) noexcept { return entries_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const entry& at(int rank) const noexcept { return entries_[static_cast<std::size_t>(rank)]; }
  /// The arrays of a rank. Called by the rank before it arrives.
  void set_arrays(int rank, const void* input, void* output) noexcept {
    inputs_[static_cast<std::size_t>(rank)] = static_cast<const std::byte*>(input);
    outputs_[static_cast<std::size_t>(rank)] = static_cast<std::byte*>(output);
  }
  /// The arrays of all ranks, for kernels.
  [[nodiscard]] std::span<const std::byte* const> inputs() const noexcept { return {inputs_.data(), inputs_.size()}; }
  [[nodiscard]] std::span<std::byte* const> outputs() const noexcept { return {outputs_.data(), outputs_.size()}; }

  /// The number of the collective that meets here.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_.load(std::memory_order_acquire); }
  /// True if every rank of the last collective has released its entry and begun the next collective.
  [[nodiscard]] bool vacant() const noexcept { return left_.load(std::memory_order_acquire) == 2 * ranks(); }
  /// A rank begins the next collective.
  void move_on() noexcept { left_.fetch_add(1, std::memory_order_acq_rel); }

  /// Marks the meeting at which all ranks are before their first collective.
  void begin_circle() noexcept { left_.store(ranks(), std::memory_order_relaxed); }

  /// Prepares a vacant meeting for the collective `number`. Only one thread at a time.
  void open(std::uint64_t number) noexcept {
    state_.store(0, std::memory_order_relaxed);
    left_.store(0, std::memory_order_relaxed);
    number_.store(number, std::memory_order_release);
  }

  /// Arrives with a complete entry. The last rank to arrive calls `complete` before any work is done.
  template <class Complete>
  void arrive(entry& mine, Complete&& complete) {
    mine.arrived_at.store(number_.load(std::memory_order_relaxed), std::memory_order_seq_cst);
    const std::uint32_t before = state_.fetch_add(1, std::memory_order_seq_cst);
    if ((before & broken) != 0 || (before & arrivals) + 1 != static_cast<std::uint32_t>(ranks())) {
      return;
    }
    if (const int other = first_disagreement(); other >= 0) {
      refuse(other);
      return;
    }
    complete();
    begin_work(mine);
  }

 private:
  static constexpr std::uint32_t arrivals = 0xffff;
  static constexpr std::uint32_t broken = 1U << 16U;    // a rank has withdrawn; no thread touches the buffers
  static constexpr std::uint32_t ready = 1U << 17U;     // all ranks have arrived; chunks can be taken
  static constexpr std::uint32_t finished = 1U << 18U;  // all chunks are done

  [[nodiscard]] int first_disagreement() const noexcept;

  /// Rank `other` calls a different collective than rank 0.
  void refuse(int other) {
    world_->fail(other, gradus::join({"ranks disagree about a collective: rank 0 calls ", at(0).what.describe(),
                                      ", rank ", other, " calls ", at(other).what.describe()}));
    state_.fetch_or(broken, std::memory_order_seq_cst);
    world_->wake();
  }

  void begin_work(const entry& mine) noexcept;

  /// Computes chunks until none is left.
  void help(const entry& mine) noexcept;

  [[nodiscard]] bool arrived(int rank) const noexcept {
    return at(rank).arrived_at.load(std::memory_order_seq_cst) == number_.load(std::memory_order_relaxed);
  }

  /// A rank that has not arrived and never will, or -1.
  [[nodiscard]] int departed_rank() const noexcept;

  bool look(entry& mine, const std::source_location& where);

  /// True if a sleeping rank has to wake up.
  [[nodiscard]] bool stirring() const noexcept {
    return (state_.load(std::memory_order_seq_cst) & (ready | finished)) != 0 || world_->failed() ||
           departed_rank() >= 0;
  }

  void wait(entry& mine, const std::source_location& where);

  [[noreturn]] void raise_time_out(const entry& mine, const std::source_location& where);

  /// Takes the buffers back. False if the collective is complete instead.
  bool withdraw(entry& mine) noexcept;

  void abandon(entry& mine, bool unwinding) noexcept;

  thread_world* world_;
  const dynamic_array<std::atomic<bool>>* departed_;
  dynamic_array<entry> entries_;
  dynamic_array<const std::byte*> inputs_;  // of each rank
  dynamic_array<std::byte*> outputs_;       // of each rank
  index_t chunk_ = 1;                       // elements of a chunk
  index_t chunks_ = 0;
  std::atomic<std::uint64_t> number_{0};
  alignas(64) std::atomic<std::uint32_t> state_{0};
  alignas(64) std::atomic<index_t> next_{0};
  alignas(64) std::atomic<index_t> remaining_{0};
  alignas(64) std::atomic<int> left_;

 public:
  std::atomic<thread_collective*> following{nullptr};  // the next one in the channel's circle of meetings
};

/// Calls part(block, from, to) for the parts of [begin, end) in blocks of `block` elements.
template <class Part>
void for_each_block(index_t begin, index_t end, index_t block, Part&& part) {
  while (begin < end) {
    const index_t number = begin / block;
    const index_t stop = std::min(end, (number + 1) * block);
    part(static_cast<int>(number), begin, stop);
    begin = stop;
  }
}

inline void all_reduce_chunk(const thread_collective& meeting, index_t begin, index_t end) {
  const thread_collective::entry& call = meeting.at(0);
  call.element->combine(call.what.operation, meeting.inputs(), begin, end, meeting.outputs(), 0);
}

void reduce_scatter_chunk(const thread_collective& meeting, index_t begin, index_t end);

// Copies are independent of the element type: they count bytes.
inline void copy_unless_same(std::byte* to, const std::byte* from, index_t bytes) noexcept {
  if (to != from) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
}

void all_gather_chunk(const thread_collective& meeting, index_t begin, index_t end);

void broadcast_chunk(const thread_collective& meeting, index_t begin, index_t end);

}  // namespace gradus::comm::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::comm::detail {

GRADUS_INLINE_CONSTRUCTOR thread_collective::thread_collective(thread_world& world,
                                                               const dynamic_array<std::atomic<bool>>& departed)
    : world_{&world},
      departed_{&departed},
      entries_(static_cast<std::size_t>(world.size())),
      inputs_(entries_.size()),
      outputs_(entries_.size()),
      left_{2 * world.size()} {
  for (int rank = 0; rank < world.size(); ++rank) {
    at(rank).meeting = this;
    at(rank).rank = rank;
  }
}

GRADUS_INLINE int thread_collective::first_disagreement() const noexcept {
  for (int rank = 1; rank < ranks(); ++rank) {
    if (!(at(rank).what == at(0).what)) {
      return rank;
    }
  }
  return -1;
}

GRADUS_INLINE void thread_collective::begin_work(const entry& mine) noexcept {
  // Read by all ranks together; below that, sharing the work takes longer than the work.
  constexpr index_t small_bytes = 8 * 1024;
  constexpr index_t smallest_chunk = 16 * 1024;
  constexpr index_t largest_chunk = 128 * 1024;
  const index_t bytes = mine.elements * mine.element_bytes;
  const bool alone = bytes * ranks() <= small_bytes;
  if (alone) {
    chunks_ = 0;
  } else {
    const index_t chunk_bytes = std::clamp(bytes / ranks(), smallest_chunk, largest_chunk);
    // A whole number of 64-byte blocks, so that two threads never write to one cache line of an aligned buffer.
    chunk_ = std::max<index_t>(chunk_bytes / 64 * 64 / mine.element_bytes, 1);
    chunks_ = (mine.elements + chunk_ - 1) / chunk_;
  }
  next_.store(0, std::memory_order_relaxed);
  remaining_.store(chunks_, std::memory_order_relaxed);
  std::uint32_t expected = static_cast<std::uint32_t>(ranks());
  if (!state_.compare_exchange_strong(expected, expected | ready, std::memory_order_seq_cst)) {
    return;  // a rank has withdrawn in the meantime
  }
  if (alone) {
    if (mine.elements > 0) {
      mine.work(*this, 0, mine.elements);
    }
    state_.fetch_or(finished, std::memory_order_seq_cst);
  }
  world_->wake();
}

GRADUS_INLINE void thread_collective::help(const entry& mine) noexcept {
  while (next_.load(std::memory_order_relaxed) < chunks_) {
    const index_t chunk = next_.fetch_add(1, std::memory_order_relaxed);
    if (chunk >= chunks_) {
      return;
    }
    mine.work(*this, chunk * chunk_, std::min((chunk + 1) * chunk_, mine.elements));
    if (remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      state_.fetch_or(finished, std::memory_order_seq_cst);
      world_->wake();
    }
  }
}

GRADUS_INLINE int thread_collective::departed_rank() const noexcept {
  for (int rank = 0; rank < ranks(); ++rank) {
    if ((*departed_)[static_cast<std::size_t>(rank)].load(std::memory_order_seq_cst) && !arrived(rank)) {
      return rank;
    }
  }
  return -1;
}

GRADUS_INLINE bool thread_collective::look(entry& mine, const std::source_location& where) {
  std::uint32_t state = state_.load(std::memory_order_seq_cst);
  if ((state & (ready | finished)) == ready) {
    help(mine);
    state = state_.load(std::memory_order_seq_cst);
  }
  if ((state & finished) != 0) {
    return true;
  }
  if ((state & ready) != 0) {
    return false;  // others compute their last chunks
  }
  world_->look_at_suspicion();
  if (!world_->failed()) {
    const int gone = departed_rank();
    if (gone < 0) {
      return false;
    }
    world_->fail(
        gone, gradus::join({"it has left the group, but rank ", mine.rank, " waits for it in ", mine.what.describe()}));
  }
  if (!withdraw(mine)) {
    return true;
  }
  world_->raise(mine.what, where);
}

GRADUS_INLINE void thread_collective::wait(entry& mine, const std::source_location& where) {
  if (wait_in(
          *world_, mine.limit, [&, this] { return look(mine, where); },
          [&, this] {
            const std::uint32_t state = state_.load(std::memory_order_seq_cst);
            // Between ready and finished a rank without a chunk sleeps until the last chunk is done.
            return (state & finished) != 0 || ((state & ready) == 0 && stirring());
          })) {
    return;
  }
  if (withdraw(mine)) {
    raise_time_out(mine, where);
  }
}

GRADUS_INLINE void thread_collective::raise_time_out(const entry& mine, const std::source_location& where) {
  dynamic_array<int> missing;
  for (int rank = 0; rank < ranks(); ++rank) {
    if (!arrived(rank)) {
      missing.push_back(rank);
    }
  }
  const std::string reason =
      gradus::join({missing.empty() ? "nothing in " : gradus::join({ranks_text(missing), " did not arrive within "}),
                    seconds_text(mine.limit)});
  world_->fail(mine.rank, gradus::join({mine.what.describe(), ": ", reason}));
  gradus::raise<communication_error>(mine.what.describe(), {}, reason, "set_time_limit allows longer waits", where);
}

GRADUS_NEVER_INLINE GRADUS_INLINE bool thread_collective::withdraw(entry& mine) noexcept {
  std::uint32_t state = state_.load(std::memory_order_seq_cst);
  while ((state & (ready | broken)) == 0) {
    if (state_.compare_exchange_weak(state, state | broken, std::memory_order_seq_cst)) {
      world_->wake();
      return true;
    }
  }
  if ((state & ready) == 0) {
    return true;
  }
  help(mine);
  while ((state_.load(std::memory_order_seq_cst) & finished) == 0) {
    std::this_thread::yield();  // others compute their last chunks, which ends soon
  }
  return false;
}

GRADUS_INLINE void thread_collective::abandon(entry& mine, bool unwinding) noexcept {
  if (unwinding) {
    try {
      world_->suspect(mine.rank,
                      gradus::join({"it left ", mine.what.describe(), " unfinished because of an exception"}));
    } catch (...) {
      world_->suspect(mine.rank, {});
    }
    withdraw(mine);
    return;
  }
  try {
    wait(mine, std::source_location::current());
  } catch (...) {
    // The group has failed; the next operation reports it.
  }
}

GRADUS_INLINE void reduce_scatter_chunk(const thread_collective& meeting, index_t begin, index_t end) {
  const thread_collective::entry& call = meeting.at(0);
  for_each_block(begin, end, call.what.count, [&](int owner, index_t from, index_t to) {
    call.element->combine(call.what.operation, meeting.inputs(), from, to,
                          meeting.outputs().subspan(static_cast<std::size_t>(owner), 1), -owner * call.what.count);
  });
}

GRADUS_INLINE void all_gather_chunk(const thread_collective& meeting, index_t begin, index_t end) {
  const index_t block = meeting.at(0).elements / meeting.ranks();  // bytes
  for_each_block(begin, end, block, [&](int owner, index_t from, index_t to) {
    const std::byte* const source = meeting.inputs()[static_cast<std::size_t>(owner)] + (from - owner * block);
    for (std::byte* const output : meeting.outputs()) {
      copy_unless_same(output + from, source, to - from);
    }
  });
}

GRADUS_INLINE void broadcast_chunk(const thread_collective& meeting, index_t begin, index_t end) {
  const auto root = static_cast<std::size_t>(meeting.at(0).what.peer);
  const std::byte* const source = meeting.inputs()[root] + begin;
  for (std::size_t rank = 0; rank < meeting.outputs().size(); ++rank) {
    if (rank != root) {
      copy_unless_same(meeting.outputs()[rank] + begin, source, end - begin);
    }
  }
}

}  // namespace gradus::comm::detail
#endif

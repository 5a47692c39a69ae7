// SPDX-License-Identifier: BSL-1.0
//
// A channel of thread ranks: it brings together the ranks of collectives, and the ends of messages.
#pragma once

#include <atomic>           // std::atomic
#include <chrono>           // std::chrono
#include <cstddef>          // std::size_t
#include <cstdint>          // std::uint64_t
#include <exception>        // std::exception
#include <memory>           // std::make_shared, std::make_unique, std::shared_ptr, std::unique_ptr
#include <mutex>            // std::mutex, std::scoped_lock
#include <source_location>  // std::source_location
#include <utility>          // std::move

#include "gradus/comm/call.hpp"
#include "gradus/comm/detail/threads/collective.hpp"
#include "gradus/comm/detail/threads/message.hpp"
#include "gradus/comm/detail/threads/world.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/comm/thread_window.hpp"
#include "gradus/comm/transfer.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/index.hpp"

namespace gradus::comm::detail {

/// A separate space of messages and collectives for the ranks of a world. It allocates only until it has as many
/// meetings and messages as are ever under way at a time. How many messages that are depends on how late ranks are:
/// where steps must not allocate, ranks reserve them.
class thread_channel {
 public:
  explicit thread_channel(std::shared_ptr<thread_world> world);

  [[nodiscard]] thread_world& world() noexcept { return *world_; }

  /// Begins a collective for one rank.
  request collective(int rank, const transfer& one, thread_collective::kernel work, index_t elements,
                     index_t element_bytes, std::chrono::milliseconds limit) {
    return request{arrive(rank, one, work, elements, element_bytes, limit)};
  }

  /// A new channel of the same world, the same for all ranks.
  std::shared_ptr<thread_channel> duplicate(int rank, std::chrono::milliseconds limit);

  /// The arrays of a rank's next window, shared with the windows of the other ranks that have the same number.
  std::shared_ptr<window_arrays> next_window(int rank);

  /// Begins one end of a message.
  request message(int rank, const call_description& what, const void* data, std::size_t bytes,
                  std::chrono::milliseconds limit);

  /// Makes `count` more messages. A message is in use while one of its two ends is, so one for each end that a rank has
  /// at a time is enough.
  void reserve_messages(std::size_t count) {
    const std::scoped_lock lock{pool_mutex_};
    add_messages(count);
  }

  /// Marks that the rank begins no more operations.
  void depart(int rank) noexcept {
    departed_[static_cast<std::size_t>(rank)].store(true, std::memory_order_seq_cst);
    world_->wake();
  }

 private:
  struct alignas(64) position {
    thread_collective* current = nullptr;  // the rank's last collective
    std::uint64_t number = 0;              // the number of the rank's last collective
    std::size_t windows = 0;               // number of windows that the rank has made
  };

  /// A window for which some ranks may not have the arrays yet.
  struct meeting_window {
    std::shared_ptr<window_arrays> arrays;
    int ranks = 0;  // number of ranks that have them
  };

  void require_working(const call_description& what) {
    world_->look_at_suspicion();
    if (world_->failed()) {
      world_->raise(what, std::source_location::current());
    }
  }

  thread_collective::entry& arrive(int rank, const transfer& one, thread_collective::kernel work, index_t elements,
                                   index_t element_bytes, std::chrono::milliseconds limit);

  /// Inserts vacant meetings before `next` and returns the first of them.
  thread_collective* add_collectives(std::size_t count, thread_collective* next);

  /// All ranks go around a circle of meetings in the same order. The first rank of a collective opens the next one, or
  /// doubles the circle if the next is still in use. How many are in use depends on how late ranks are, and
  /// steady-state steps must not allocate.
  thread_collective& next_collective(position& here);

  void make_channel(thread_collective& meeting);

  /// Makes messages and puts them into the pool, which is locked.
  void add_messages(std::size_t count);

  thread_message& fresh_message();

  std::shared_ptr<thread_world> world_;
  dynamic_array<std::atomic<bool>> departed_;
  dynamic_array<position> positions_;
  dynamic_array<thread_message::mailbox> boxes_;
  std::mutex collectives_mutex_;
  dynamic_array<std::unique_ptr<thread_collective>> collectives_;
  std::mutex windows_mutex_;
  dynamic_array<meeting_window> windows_;
  std::mutex pool_mutex_;
  dynamic_array<std::unique_ptr<thread_message>> messages_;
  thread_message* pool_ = nullptr;
};

}  // namespace gradus::comm::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::comm::detail {

GRADUS_INLINE_CONSTRUCTOR thread_channel::thread_channel(std::shared_ptr<thread_world> world)
    : world_{std::move(world)},
      departed_(static_cast<std::size_t>(world_->size())),
      positions_(static_cast<std::size_t>(world_->size())),
      boxes_(departed_.size() * departed_.size()) {
  constexpr std::size_t collectives_at_first = 8;
  thread_collective* const first = add_collectives(collectives_at_first, nullptr);
  collectives_.front()->following = first;
  first->begin_circle();
  for (position& each : positions_) {
    each.current = first;
  }
}

GRADUS_INLINE std::shared_ptr<thread_channel> thread_channel::duplicate(int rank, std::chrono::milliseconds limit) {
  thread_collective::entry& mine = arrive(rank, transfer{.what = {.kind = call_kind::duplicate}}, nullptr, 0, 1, limit);
  struct taker {
    thread_collective::entry& entry;
    std::shared_ptr<thread_channel> channel{};
    ~taker() { entry.release(); }
  } taker{mine};
  mine.wait(std::source_location::current());
  return std::move(mine.new_channel);
}

GRADUS_INLINE std::shared_ptr<window_arrays> thread_channel::next_window(int rank) {
  const std::scoped_lock lock{windows_mutex_};
  const std::size_t number = positions_[static_cast<std::size_t>(rank)].windows++;
  if (number == windows_.size()) {
    windows_.push_back({.arrays = std::make_shared<window_arrays>(world_->size())});
  }
  meeting_window& window = windows_[number];
  const std::shared_ptr<window_arrays> arrays = window.arrays;
  if (++window.ranks == world_->size()) {
    window.arrays.reset();
  }
  return arrays;
}

GRADUS_INLINE request thread_channel::message(int rank, const call_description& what, const void* data,
                                              std::size_t bytes, std::chrono::milliseconds limit) {
  require_working(what);
  const bool sending = what.kind == call_kind::send;
  const auto from = static_cast<std::size_t>(sending ? rank : what.peer);
  const auto to = static_cast<std::size_t>(sending ? what.peer : rank);
  return thread_message::post(boxes_[to * departed_.size() + from], sending, rank, what, data, bytes, limit,
                              [this]() -> thread_message& { return fresh_message(); });
}

GRADUS_COLD GRADUS_INLINE thread_collective::entry& thread_channel::arrive(int rank, const transfer& one,
                                                                           thread_collective::kernel work,
                                                                           index_t elements, index_t element_bytes,
                                                                           std::chrono::milliseconds limit) {
  require_working(one.what);
  thread_collective& meeting = next_collective(positions_[static_cast<std::size_t>(rank)]);
  thread_collective::entry& mine = meeting.at(rank);
  mine.what = one.what;
  mine.element = one.element;
  mine.work = work;
  mine.elements = elements;
  mine.element_bytes = element_bytes;
  mine.limit = limit;
  meeting.set_arrays(rank, one.input, one.output);
  meeting.arrive(mine, [&, this] {
    if (one.what.kind == call_kind::duplicate) {
      make_channel(meeting);
    }
  });
  return mine;
}

GRADUS_COLD GRADUS_INLINE thread_collective* thread_channel::add_collectives(std::size_t count,
                                                                             thread_collective* next) {
  for (; count > 0; --count) {
    collectives_.push_back(std::make_unique<thread_collective>(*world_, departed_));
    collectives_.back()->following.store(next, std::memory_order_release);
    next = collectives_.back().get();
  }
  return next;
}

GRADUS_INLINE thread_collective& thread_channel::next_collective(position& here) {
  const std::uint64_t number = here.number + 1;
  thread_collective* next = here.current->following.load(std::memory_order_acquire);
  if (next->number() != number) {
    const std::scoped_lock lock{collectives_mutex_};
    next = here.current->following.load(std::memory_order_acquire);
    if (next->number() != number) {
      if (!next->vacant()) {
        next = add_collectives(collectives_.size(), next);
        next->open(number);
        here.current->following.store(next, std::memory_order_release);
      } else {
        next->open(number);
      }
    }
  }
  here.current->move_on();
  here.current = next;
  here.number = number;
  return *next;
}

GRADUS_COLD GRADUS_INLINE void thread_channel::make_channel(thread_collective& meeting) {
  try {
    const auto channel = std::make_shared<thread_channel>(world_);
    for (int rank = 0; rank < world_->size(); ++rank) {
      meeting.at(rank).new_channel = channel;
    }
  } catch (const std::exception& failure) {
    world_->fail(0, failure.what());
    throw;
  }
}

GRADUS_INLINE void thread_channel::add_messages(std::size_t count) {
  messages_.reserve(messages_.size() + count);
  for (; count > 0; --count) {
    messages_.push_back(std::make_unique<thread_message>(*world_, departed_, pool_mutex_, pool_));
    messages_.back()->next_ = pool_;
    pool_ = messages_.back().get();
  }
}

GRADUS_INLINE thread_message& thread_channel::fresh_message() {
  const std::scoped_lock lock{pool_mutex_};
  if (pool_ == nullptr) {
    add_messages(messages_.empty() ? 8 : messages_.size());
  }
  thread_message& message = *pool_;
  pool_ = message.next_;
  return message;
}

}  // namespace gradus::comm::detail
#endif

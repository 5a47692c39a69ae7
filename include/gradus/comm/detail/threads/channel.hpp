// SPDX-License-Identifier: BSL-1.0
//
// A channel of thread ranks: it brings collectives together and matches messages with receivers.
#pragma once

#include <atomic>           // std::atomic
#include <chrono>           // std::chrono
#include <cstddef>          // std::size_t
#include <cstdint>          // std::uint32_t, std::uint64_t
#include <cstring>          // std::memcpy
#include <exception>        // std::exception
#include <memory>           // std::make_shared, std::make_unique, std::shared_ptr, std::unique_ptr
#include <mutex>            // std::mutex, std::scoped_lock
#include <source_location>  // std::source_location
#include <string>           // std::string
#include <thread>           // std::this_thread
#include <utility>          // std::exchange, std::move

#include "gradus/comm/call.hpp"
#include "gradus/comm/detail/threads/collective.hpp"
#include "gradus/comm/detail/threads/world.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/comm/thread_window.hpp"
#include "gradus/comm/transfer.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"

namespace gradus::comm::detail {

/// One message between two thread ranks. It is copied once, from the sender's buffer to the receiver's, by the rank
/// that polls first after both have begun.
class thread_message {
 public:
  struct end final : operation {
    thread_message* message = nullptr;
    bool posted = false;
    int rank = 0;
    call_description what{};
    std::size_t bytes = 0;
    std::chrono::milliseconds limit{};

    bool test(const std::source_location& where) override { return message->look(*this, where); }
    void wait(const std::source_location& where) override { message->wait(*this, where); }
    void abandon(bool unwinding) noexcept override { message->abandon(*this, unwinding); }
    void release() noexcept override { message->drop(); }
  };

  /// Messages from one rank to another that only one of them has begun, in order.
  struct mailbox {
    std::mutex mutex;
    thread_message* first = nullptr;
    thread_message* last = nullptr;
  };

  end sender;
  end receiver;

  thread_message(thread_world& world, const dynamic_array<std::atomic<bool>>& departed, std::mutex& pool_mutex,
                 thread_message*& pool)
      : world_{&world}, departed_{&departed}, pool_mutex_{&pool_mutex}, pool_{&pool} {
    sender.message = this;
    receiver.message = this;
  }

  /// Matches one end with a waiting message in the box, or adds `fresh()` to the box.
  template <class Fresh>
  static request post(mailbox& box, bool sending, int rank, const call_description& what, const void* data,
                      std::size_t bytes, std::chrono::milliseconds limit, Fresh&& fresh) {
    std::unique_lock lock{box.mutex};
    thread_message* before = nullptr;
    thread_message* message = box.first;
    while (message != nullptr && (message->mine(sending).posted || message->mine(!sending).what.tag != what.tag)) {
      before = message;
      message = message->next_;
    }
    const bool matched = message != nullptr;
    if (matched) {
      unlink(box, before, *message);
      message->references_ = 2;
    } else {
      message = &fresh();
      message->open(box);
    }
    end& end = message->mine(sending);
    end.posted = true;
    end.rank = rank;
    end.what = what;
    end.bytes = bytes;
    end.limit = limit;
    if (sending) {
      message->from_ = data;
    } else {
      message->to_ = const_cast<void*>(data);  // the caller passed a pointer to mutable elements
    }
    lock.unlock();
    if (matched) {
      message->match();
    }
    return request{end};
  }

  thread_message* next_ = nullptr;  // the next one in its mailbox or in the pool

 private:
  enum class stage : std::uint32_t { open, matched, copying, finished, broken };

  [[nodiscard]] end& mine(bool sending) noexcept { return sending ? sender : receiver; }

  void open(mailbox& box) noexcept;

  static void unlink(mailbox& box, thread_message* before, thread_message& message) noexcept;

  void match();

  /// Copies, unless the other rank does.
  void copy() noexcept;

  [[nodiscard]] bool peer_departed(const end& mine) const noexcept {
    return (*departed_)[static_cast<std::size_t>(mine.what.peer)].load(std::memory_order_seq_cst);
  }

  bool look(end& mine, const std::source_location& where);

  void wait(end& mine, const std::source_location& where);

  /// Takes the buffer back. False if the message has been delivered already.
  bool withdraw() noexcept;

  void abandon(end& mine, bool unwinding) noexcept;

  void drop() noexcept;

  thread_world* world_;
  const dynamic_array<std::atomic<bool>>* departed_;
  std::mutex* pool_mutex_;
  thread_message** pool_;
  mailbox* box_ = nullptr;
  bool linked_ = false;  // protected by the box
  const void* from_ = nullptr;
  void* to_ = nullptr;
  std::atomic<int> references_{0};
  std::atomic<stage> stage_{stage::open};
};

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

GRADUS_INLINE void thread_message::open(mailbox& box) noexcept {  // with the box locked
  box_ = &box;
  sender.posted = false;
  receiver.posted = false;
  references_ = 1;
  stage_.store(stage::open, std::memory_order_relaxed);
  next_ = nullptr;
  linked_ = true;
  (box.last == nullptr ? box.first : box.last->next_) = this;
  box.last = this;
}

GRADUS_INLINE void thread_message::unlink(mailbox& box, thread_message* before, thread_message& message) noexcept {
  (before == nullptr ? box.first : before->next_) = message.next_;
  if (box.last == &message) {
    box.last = before;
  }
  message.linked_ = false;
}

GRADUS_INLINE void thread_message::match() {
  constexpr std::size_t small_bytes = 8 * 1024;
  if (sender.what.count != receiver.what.count || sender.what.element != receiver.what.element) {
    world_->fail(receiver.rank,
                 gradus::join({"ranks disagree about a message: rank ", sender.rank, " calls ", sender.what.describe(),
                               ", rank ", receiver.rank, " calls ", receiver.what.describe()}));
    stage_.store(stage::broken, std::memory_order_seq_cst);
  } else {
    stage_.store(stage::matched, std::memory_order_seq_cst);
    if (sender.bytes <= small_bytes) {
      copy();
    }
  }
  world_->wake();
}

GRADUS_INLINE void thread_message::copy() noexcept {
  stage expected = stage::matched;
  if (stage_.compare_exchange_strong(expected, stage::copying, std::memory_order_seq_cst)) {
    if (sender.bytes != 0) {
      std::memcpy(to_, from_, sender.bytes);
    }
    stage_.store(stage::finished, std::memory_order_seq_cst);
    world_->wake();
  }
}

GRADUS_INLINE bool thread_message::look(end& mine, const std::source_location& where) {
  // Read before the stage: a peer that has departed has begun its end before, or never will.
  const bool alone = peer_departed(mine);
  stage now = stage_.load(std::memory_order_seq_cst);
  if (now == stage::matched) {
    copy();
    now = stage_.load(std::memory_order_seq_cst);
  }
  if (now == stage::finished) {
    return true;
  }
  if (now == stage::copying) {
    return false;
  }
  world_->look_at_suspicion();
  if (!world_->failed()) {
    if (!alone) {
      return false;
    }
    world_->fail(mine.what.peer,
                 gradus::join({"it has left the group, but rank ", mine.rank, " calls ", mine.what.describe()}));
  }
  if (!withdraw()) {
    return true;
  }
  world_->raise(mine.what, where);
}

GRADUS_INLINE void thread_message::wait(end& mine, const std::source_location& where) {
  if (wait_in(
          *world_, mine.limit, [&, this] { return look(mine, where); },
          [&, this] {
            const stage now = stage_.load(std::memory_order_seq_cst);
            return now == stage::matched || now == stage::finished ||
                   (now != stage::copying && (world_->failed() || peer_departed(mine)));
          })) {
    return;
  }
  if (!withdraw()) {
    return;
  }
  const std::string reason =
      gradus::join({"rank ", mine.what.peer, " did not arrive within ", seconds_text(mine.limit)});
  world_->fail(mine.rank, gradus::join({mine.what.describe(), ": ", reason}));
  gradus::raise<communication_error>(mine.what.describe(), {}, reason, "set_time_limit allows longer waits", where);
}

GRADUS_INLINE bool thread_message::withdraw() noexcept {
  {
    const std::scoped_lock lock{box_->mutex};
    if (linked_) {
      thread_message* before = nullptr;
      for (thread_message* message = box_->first; message != this; message = message->next_) {
        before = message;
      }
      unlink(*box_, before, *this);
      stage_.store(stage::broken, std::memory_order_seq_cst);
      return true;
    }
  }
  for (;;) {
    copy();
    const stage now = stage_.load(std::memory_order_seq_cst);
    if (now == stage::finished || now == stage::broken) {
      return now == stage::broken;
    }
    std::this_thread::yield();  // the other rank is about to match or to copy, which ends soon
  }
}

GRADUS_INLINE void thread_message::abandon(end& mine, bool unwinding) noexcept {
  if (unwinding) {
    try {
      world_->suspect(mine.rank,
                      gradus::join({"it left ", mine.what.describe(), " unfinished because of an exception"}));
    } catch (...) {
      world_->suspect(mine.rank, {});
    }
    withdraw();
    return;
  }
  try {
    wait(mine, std::source_location::current());
  } catch (...) {
    // The group has failed; the next operation reports it.
  }
}

GRADUS_INLINE void thread_message::drop() noexcept {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    const std::scoped_lock lock{*pool_mutex_};
    next_ = *pool_;
    *pool_ = this;
  }
}

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

// SPDX-License-Identifier: BSL-1.0
//
// A message between two thread ranks, which matches its sender with its receiver.
#pragma once

#include <atomic>           // std::atomic
#include <chrono>           // std::chrono
#include <cstddef>          // std::size_t
#include <cstdint>          // std::uint32_t
#include <cstring>          // std::memcpy
#include <mutex>            // std::mutex, std::scoped_lock, std::unique_lock
#include <source_location>  // std::source_location
#include <string>           // std::string
#include <thread>           // std::this_thread

#include "gradus/comm/call.hpp"
#include "gradus/comm/detail/threads/world.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/comm/wait.hpp"
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

}  // namespace gradus::comm::detail
#endif

// SPDX-License-Identifier: BSL-1.0
//
// The queue of collectives of ranks that share memory: waits, failures, and messages that are under way at the same
// time.
#pragma once

#include <mpi.h>

#include <algorithm>        // std::min
#include <chrono>           // std::chrono::milliseconds
#include <cstddef>          // std::byte, std::size_t
#include <cstdint>          // std::uint8_t, std::uint64_t
#include <cstring>          // std::memcpy
#include <memory>           // std::make_shared, std::shared_ptr
#include <source_location>  // std::source_location
#include <string>           // std::string
#include <utility>          // std::move

#include "gradus/comm/call.hpp"
#include "gradus/comm/detail/mpi/blocking_calls.hpp"
#include "gradus/comm/detail/mpi/membership.hpp"
#include "gradus/comm/detail/mpi/process.hpp"
#include "gradus/comm/detail/mpi/registered_memory.hpp"
#include "gradus/comm/detail/mpi_shared/memory.hpp"
#include "gradus/comm/detail/mpi_shared/steps.hpp"
#include "gradus/comm/detail/mpi_shared/window.hpp"
#include "gradus/comm/detail/request/operation_pool.hpp"
#include "gradus/comm/detail/request/poll.hpp"
#include "gradus/comm/mpi.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/comm/wait.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"

namespace gradus::comm::detail {

class mpi_shared_channel;

/// A collective, or a message of the MPI library. A wait for either makes the collectives progress.
class shared_operation final : public operation {
 public:
  explicit shared_operation(mpi_shared_channel& channel) noexcept : channel_{&channel} {}

  bool test(const std::source_location& where) override;
  void wait(const std::source_location& where) override;
  void abandon(bool unwinding) noexcept override;
  void release() noexcept override;

 private:
  friend class mpi_shared_channel;

  void open(const call_description& what, std::chrono::milliseconds limit) noexcept {
    what_ = what;
    limit_ = limit;
    is_message_ = false;
    complete_ = false;
    next_ = nullptr;
  }

  bool look(const std::source_location& where) {
    if (is_message_ && !complete_) {
      complete_ = message_.test(where);
    }
    return complete_;
  }

  mpi_shared_channel* channel_;
  call_description what_{};
  std::chrono::milliseconds limit_{};
  std::uint64_t number_ = 0;  // for a collective: the number that mpi_membership::begin returned
  bool is_message_ = false;
  bool complete_ = false;
  request message_;
  shared_collective collective_{};
  shared_operation* next_ = nullptr;  // the next collective in the queue
};

/// The collectives of one rank, run in the order in which they were begun, and its messages.
class mpi_shared_channel {
 public:
  mpi_shared_channel(mpi messages, mpi_process& process, bool world, std::size_t segment_bytes,
                     std::shared_ptr<mpi_shared_pool> pool, const mpi_blocking_calls& call)
      : messages_{std::move(messages)}, process_{&process}, world_{world}, steps_{messages_.native(), messages_.rank(),
                                                                                  messages_.size(),   segment_bytes,
                                                                                  std::move(pool),    call} {}

  mpi_shared_channel(const mpi_shared_channel&) = delete;
  mpi_shared_channel& operator=(const mpi_shared_channel&) = delete;

  [[nodiscard]] mpi& messages() noexcept { return messages_; }
  [[nodiscard]] mpi_process& process() const noexcept { return *process_; }
  [[nodiscard]] bool world() const noexcept { return world_; }
  [[nodiscard]] int rank() const noexcept { return messages_.rank(); }
  [[nodiscard]] int size() const noexcept { return messages_.size(); }
  [[nodiscard]] std::size_t segment_bytes() const noexcept { return steps_.segment_bytes(); }
  [[nodiscard]] const std::shared_ptr<mpi_shared_pool>& pool() const noexcept { return steps_.pool(); }

  /// Called by all ranks; see mpi_shared::register_memory.
  [[nodiscard]] std::shared_ptr<mpi_registration> register_memory(std::byte* begin, index_t bytes,
                                                                  std::chrono::milliseconds limit) {
    // MPI's call that makes windows returns only after all ranks have called it. So synchronize first, with one size.
    const call_description what{
        .kind = call_kind::register_memory, .count = bytes, .element = element_name<std::uint8_t>};
    this->begin({.what = what}, limit).wait();
    if (segment_bytes() < 2 * page_bytes()) {
      return nullptr;  // the array is too short to have whole pages
    }
    const mpi_blocking_calls call{*process_, what, limit, world_};
    auto memory = mpi_registered_memory::of(messages_.native(), rank(), pool(), begin, bytes, call);
    if (memory == nullptr) {
      return nullptr;
    }
    dynamic_array<std::shared_ptr<mpi_registration>> in_use;
    for (auto& each : registrations_) {
      if (each->memory() != nullptr) {
        in_use.push_back(std::move(each));
      }
    }
    in_use.push_back(std::make_shared<mpi_registration>(std::move(memory)));
    registrations_ = std::move(in_use);
    return registrations_.back();
  }

  request begin(const shared_task& task, std::chrono::milliseconds limit) {
    require_working(task.what);
    if (size() == 1) {
      copy_own(task);
      return {};
    }
    shared_operation& mine = fresh(task.what, limit);
    mine.number_ = membership().begin(task.what);
    mine.collective_.task = task;
    find_memory(mine.collective_);
    if (head_ == nullptr) {
      head_ = &mine;
      steps_.start(mine.collective_);
      steps_.offer(mine.collective_);
    } else {
      tail_->next_ = &mine;
    }
    tail_ = &mine;
    return request{mine};
  }

  /// @param begin  begins the message with the MPI library
  template <class Begin>
  request begin_message(const call_description& what, std::chrono::milliseconds limit, const Begin& begin) {
    request message = begin();
    shared_operation& mine = fresh(what, limit);
    mine.is_message_ = true;
    mine.message_ = std::move(message);
    return request{mine};
  }

  void put_back(shared_operation& each) noexcept { operations_.put_back(each); }

  /// Runs the collectives as far as possible without waiting. True if there was progress.
  /// @throws communication_error if the ranks disagree
  bool advance(const std::source_location& where) {
    bool moved = false;
    while (head_ != nullptr && !process_->failed()) {
      shared_operation& mine = *head_;
      moved = steps_.advance(mine.collective_) || moved;
      if (mine.collective_.disagrees) {
        refuse(mine.collective_, where);
      }
      if (!mine.collective_.over()) {
        break;
      }
      mine.complete_ = true;
      head_ = mine.next_;
      if (head_ != nullptr) {
        steps_.start(head_->collective_);
      }
    }
    return moved;
  }

  /// Waits until the operation is complete, and runs the collectives meanwhile.
  void wait_for(shared_operation& mine, const std::source_location& where) {
    constexpr unsigned polls_per_pump = 64;
    const call_description& what = mine.what_;
    poll_until_complete(
        spins(), mine.limit_,
        [&, this] {
          const bool moved = advance(where);
          if (mine.look(where)) {
            return poll_result::complete;
          }
          require_unfailed(what, where);
          return moved ? poll_result::progress : poll_result::nothing;
        },
        [&, this](unsigned polls) {
          look_for_notices(mine);
          if (polls % polls_per_pump == 0) {
            pump();
          }
        },
        [&, this] { raise_time_out(what, mine.limit_, where); });
  }

  /// Polls for notices. Afterwards the process may have failed. A message polls by itself.
  void look_for_notices(const shared_operation& mine) {
    process_->glance_at_notices(mine.what_);
    if (!mine.is_message_) {
      process_->look_for_departures(membership(), mine.what_, mine.number_, world_);
    }
  }

  /// This rank takes part only in the collectives before this one.
  void leave_unfinished(const shared_operation& mine) noexcept {
    give_up();
    membership().give_up(mine.number_);
    process_->leave_unfinished(mine.what_);
  }

  /// @throws communication_error if the job has failed
  void require_unfailed(const call_description& what, const std::source_location& where) {
    if (broken_ || process_->failed()) {
      raise_failure(what, where);
    }
  }

  /// Makes room for `count` more messages.
  void reserve_messages(std::size_t count) {
    messages_.reserve_messages(count);
    operations_.reserve(count, *this);
  }

  /// Stops all collectives: from now on no rank touches the buffers of those under way.
  void give_up() noexcept {
    broken_ = true;
    head_ = nullptr;
  }

 private:
  /// Polls before a waiting rank yields its processor: about ten microseconds. A rank waits for data that others copy
  /// at this moment, or for a rank that is not running, perhaps because this one has its processor.
  [[nodiscard]] int spins() const noexcept { return std::min(process_->spins(), 300); }

  [[nodiscard]] mpi_membership& membership() const noexcept { return messages_.channel_->membership(); }

  shared_operation& fresh(const call_description& what, std::chrono::milliseconds limit) {
    shared_operation& mine = operations_.idle(*this);
    mine.open(what, limit);
    operations_.take();
    return mine;
  }

  /// Finds the registered memory that contains the data.
  void find_memory(shared_collective& mine) noexcept {
    const shared_task& task = mine.task;
    mine.memory = nullptr;
    std::uint64_t location = 0;
    if (!registrations_.empty() && steps_.goes_directly(task.what, task.element->bytes)) {
      for (const std::shared_ptr<mpi_registration>& each : registrations_) {
        const mpi_registered_memory* const memory = each->memory();
        const index_t offset =
            memory == nullptr ? -1 : memory->offset_of(task.output, task.what.count * task.element->bytes);
        if (offset >= 0) {
          mine.memory = memory;
          mine.offset = offset;
          location = memory->number() << packed_call::offset_bits | static_cast<std::uint64_t>(offset);
        }
      }
    }
    mine.packed = packed_call{task.what, location};
  }

  void require_working(const call_description& what) {
    process_->look_at_unfinished();
    process_->glance_at_notices(what);
    require_unfailed(what, std::source_location::current());
    if (process_->over()) {
      gradus::raise<communication_error>(what.describe(), "a running MPI", "an MPI that has been finalized",
                                         "keep the mpi_environment until the end of main");
    }
  }

  [[noreturn]] void raise_failure(const call_description& what, const std::source_location& where) {
    give_up();
    process_->look_at_unfinished();
    process_->raise(what, world_, where);
  }

  [[noreturn]] void raise_time_out(const call_description& what, std::chrono::milliseconds limit,
                                   const std::source_location& where) {
    std::string reason = gradus::join({"not complete within ", seconds_text(limit)});
    try {
      if (head_ != nullptr) {
        const dynamic_array<int> late = steps_.late_ranks(head_->collective_);
        if (!late.empty()) {
          append_text(reason, {"; ", ranks_text(late), world_ ? "" : " of this communicator", " did not come to ",
                               head_->what_.describe()});
        }
      }
      reason.append(process_->ask_others(what));
    } catch (...) {
      // The plain reason is enough.
    }
    give_up();
    if (process_->failed()) {
      process_->raise(what, world_, where);  // another rank reported a failure first
    }
    process_->fail(gradus::join({what.describe(), ": ", reason}));
    gradus::raise<communication_error>(what.describe(), {}, reason, "set_time_limit allows longer waits", where);
  }

  [[noreturn]] void refuse(const shared_collective& mine, const std::source_location& where) {
    const int other = mine.seen;
    const std::string own_text = mine.packed.describe();
    const std::string their_text = steps_.begun_by_other(mine).describe();
    const bool own_first = rank() < other;
    const std::string reason = gradus::join({"ranks disagree about a collective: rank ", own_first ? rank() : other,
                                             " calls ", own_first ? own_text : their_text, ", rank ",
                                             own_first ? other : rank(), " calls ", own_first ? their_text : own_text});
    const std::string call_text = mine.task.what.describe();
    give_up();
    process_->fail(reason);
    gradus::raise<communication_error>(call_text, {}, reason, {}, where);
  }

  /// Lets MPI progress messages and the collectives of other communicators while this rank waits in shared memory.
  void pump() noexcept {
    if (!process_->over()) {
      int present = 0;
      process_->enter([&, this] {
        return MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, messages_.native(), &present, MPI_STATUS_IGNORE);
      });
    }
  }

  /// The collective of a single rank.
  static void copy_own(const shared_task& task) noexcept {
    if (task.what.count > 0 && task.input != task.output) {
      std::memcpy(task.output, task.input, static_cast<std::size_t>(task.what.count * task.element->bytes));
    }
  }

  mpi messages_;
  mpi_process* process_;
  bool world_;
  shared_steps steps_;
  bool broken_ = false;
  dynamic_array<std::shared_ptr<mpi_registration>> registrations_;
  shared_operation* head_ = nullptr;  // the collectives under way, in the order in which they were begun
  shared_operation* tail_ = nullptr;  // valid only if head_ is not null
  operation_pool<shared_operation> operations_;
};

inline bool shared_operation::test(const std::source_location& where) {
  channel_->advance(where);
  if (look(where)) {
    return true;
  }
  channel_->require_unfailed(what_, where);
  channel_->look_for_notices(*this);
  return false;
}

inline void shared_operation::wait(const std::source_location& where) {
  if (!complete_) {
    channel_->wait_for(*this, where);
  }
}

inline void shared_operation::abandon(bool unwinding) noexcept {
  mpi_process& process = channel_->process();
  if (complete_ || process.over()) {
    return;
  }
  if (unwinding || process.failed()) {
    if (is_message_) {
      message_.cancel();
    } else {
      channel_->leave_unfinished(*this);
    }
    return;
  }
  try {
    wait(std::source_location::current());
  } catch (...) {
    // The process has failed; the next operation reports it.
  }
}

inline void shared_operation::release() noexcept {
  message_.cancel();  // complete or empty, unless a wait has thrown
  channel_->put_back(*this);
}

}  // namespace gradus::comm::detail

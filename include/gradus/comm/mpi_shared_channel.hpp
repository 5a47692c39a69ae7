// SPDX-License-Identifier: BSL-1.0
//
// The collectives of ranks that share memory, step by step, and the queue in which they stand.
// Module: comm. Depends on: core, MPI. For mpi_shared.hpp; not for use by itself.
#pragma once

#include <mpi.h>

#include <algorithm>        // std::max, std::min
#include <chrono>           // std::chrono::milliseconds
#include <cstddef>          // std::byte, std::size_t
#include <cstdint>          // std::uint64_t
#include <cstring>          // std::memcpy
#include <memory>           // std::make_unique, std::unique_ptr
#include <source_location>  // std::source_location
#include <string>           // std::string
#include <utility>          // std::move

#include "gradus/comm/detail/call.hpp"        // call, call_kind
#include "gradus/comm/detail/wait.hpp"        // backoff, clock, ranks_text, seconds_text
#include "gradus/comm/mpi.hpp"                // mpi
#include "gradus/comm/mpi_process.hpp"        // mpi_process
#include "gradus/comm/mpi_shared_window.hpp"  // mpi_shared_window, packed_call
#include "gradus/comm/reduction.hpp"          // reduction_block
#include "gradus/comm/request.hpp"            // operation, request
#include "gradus/core/config.hpp"             // GRADUS_COLD
#include "gradus/core/error.hpp"              // communication_error
#include "gradus/core/index.hpp"              // index_t
#include "gradus/core/text.hpp"               // append, text
#include "gradus/core/vector.hpp"             // vector

namespace gradus::comm::detail {

/// result[i] = sources[0][i] op ... op sources[ranks - 1][i] for i in [0, count), and the same to `copy` unless it is
/// null. The result may lie on one of the sources.
using shared_reduction = void (*)(const std::byte* const* sources, int ranks, std::byte* result, std::byte* copy,
                                  index_t count) noexcept;

template <class Element, class Combine>
void reduce_contributions(const std::byte* const* sources, int ranks, std::byte* result, std::byte* copy,
                          index_t count) noexcept {
  const Combine combine{};
  const auto source = [&](int rank) { return reinterpret_cast<const Element*>(sources[rank]); };
  constexpr index_t block = reduction_block<Element>;
  index_t i = 0;
  for (; i + block <= count; i += block) {
    Element values[block];
    std::memcpy(values, source(0) + i, sizeof(values));
    for (int rank = 1; rank < ranks; ++rank) {
      const Element* const other = source(rank) + i;
      for (index_t k = 0; k < block; ++k) {
        values[k] = combine(values[k], other[k]);
      }
    }
    std::memcpy(reinterpret_cast<Element*>(result) + i, values, sizeof(values));
    if (copy != nullptr) {
      std::memcpy(reinterpret_cast<Element*>(copy) + i, values, sizeof(values));
    }
  }
  for (; i < count; ++i) {
    Element value = source(0)[i];
    for (int rank = 1; rank < ranks; ++rank) {
      value = combine(value, source(rank)[i]);
    }
    reinterpret_cast<Element*>(result)[i] = value;
    if (copy != nullptr) {
      reinterpret_cast<Element*>(copy)[i] = value;
    }
  }
}

class mpi_shared_channel;

/// What a rank hands over when it begins a collective.
struct shared_task {
  call what{};
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  index_t element_bytes = 1;
  shared_reduction reduce = nullptr;
};

/// One collective in steps. All ranks take the same steps, because they follow from the call and the segment size.
///
///   phase   | what a rank does
///   fill    | copies what others need of its segment into its slot
///   combine | when the slots are filled: takes or reduces its part, or all of it
///   collect | all_reduce of large arrays only, when the parts are reduced: copies the parts of the others
class shared_operation final : public operation {
 public:
  explicit shared_operation(mpi_shared_channel& channel) noexcept : channel_{&channel} {}

  bool test(const std::source_location& where) override;
  void wait(const std::source_location& where) override;
  void abandon(bool unwinding) noexcept override;
  void release() noexcept override;

 private:
  friend class mpi_shared_channel;

  mpi_shared_channel* channel_;
  shared_task task_{};
  packed_call packed_{0, 0};
  std::chrono::milliseconds limit_{};
  index_t step_elements_ = 1;
  bool collects_ = false;  // has the third phase
  bool complete_ = false;
  bool agreed_ = false;      // all ranks have begun it with the same arguments
  int seen_ = 0;             // ranks, from 0, that the next combine or collect need not look at any more
  int seen_reduced_ = 0;     //
  std::uint64_t first_ = 0;  // step
  std::uint64_t end_ = 0;    // the step after the last
  std::uint64_t fills_ = 0;  // the next step to be filled, combined, collected
  std::uint64_t combines_ = 0;
  std::uint64_t collects_next_ = 0;
  shared_operation* next_ = nullptr;
};

/// A message of the MPI library whose waits also move the collectives.
class shared_message final : public operation {
 public:
  explicit shared_message(mpi_shared_channel& channel) noexcept : channel_{&channel} {}

  bool test(const std::source_location& where) override;
  void wait(const std::source_location& where) override;
  void abandon(bool unwinding) noexcept override;
  void release() noexcept override;

 private:
  friend class mpi_shared_channel;

  mpi_shared_channel* channel_;
  call what_{};
  std::chrono::milliseconds limit_{};
  request message_;
};

/// The collectives of one rank, done in the order in which they were begun, and its messages.
class mpi_shared_channel {
 public:
  GRADUS_COLD mpi_shared_channel(mpi messages, mpi_process& process, bool world, std::size_t segment_bytes)
      : messages_{std::move(messages)},
        process_{&process},
        world_{world},
        rank_{messages_.rank()},
        size_{messages_.size()},
        window_{messages_.native(), segment_bytes},
        sources_(static_cast<std::size_t>(size_)) {}

  mpi_shared_channel(const mpi_shared_channel&) = delete;
  mpi_shared_channel& operator=(const mpi_shared_channel&) = delete;

  [[nodiscard]] mpi& messages() noexcept { return messages_; }
  [[nodiscard]] mpi_process& process() const noexcept { return *process_; }
  [[nodiscard]] bool world() const noexcept { return world_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] std::size_t segment_bytes() const noexcept { return window_.segment_bytes(); }

  request begin(const shared_task& task, std::chrono::milliseconds limit) {
    require_working(task.what);
    if (size_ == 1) {
      copy_own(task);
      return {};
    }
    shared_operation& mine = fresh(collectives_, idle_collectives_);
    mine.task_ = task;
    mine.packed_ = packed_call{task.what};
    mine.limit_ = limit;
    plan(mine);
    mine.complete_ = false;
    mine.agreed_ = false;
    mine.next_ = nullptr;
    if (head_ == nullptr) {
      head_ = &mine;
      start(mine);
      if (may_fill(mine)) {
        fill(mine);  // the others can go on while this rank computes
      }
    } else {
      tail_->next_ = &mine;
    }
    tail_ = &mine;
    return request{mine};
  }

  /// @param begin  begins the message of the MPI library
  template <class Begin>
  request begin_message(const call& what, std::chrono::milliseconds limit, const Begin& begin) {
    request message = begin();
    shared_message& mine = fresh(mails_, idle_mails_);
    mine.what_ = what;
    mine.limit_ = limit;
    mine.message_ = std::move(message);
    return request{mine};
  }

  void put_back(shared_operation& each) noexcept { idle_collectives_.push_back(&each); }  // within reserved capacity
  void put_back(shared_message& each) noexcept { idle_mails_.push_back(&each); }          //

  /// Moves the collectives as far as they go without waiting. True if something has moved.
  /// @throws communication_error if the ranks disagree
  bool advance(const std::source_location& where) {
    bool moved = false;
    while (head_ != nullptr && !process_->failed()) {
      shared_operation& mine = *head_;
      for (bool more = true; more;) {
        more = false;
        if (may_fill(mine)) {
          fill(mine);
          more = true;
        }
        if (may_combine(mine, where)) {
          combine(mine);
          more = true;
        }
        if (may_collect(mine)) {
          collect(mine);
          more = true;
        }
        moved = moved || more;
      }
      if ((mine.collects_ ? mine.collects_next_ : mine.combines_) != mine.end_) {
        break;
      }
      mine.complete_ = true;
      head_ = mine.next_;
      if (head_ != nullptr) {
        start(*head_);
      }
    }
    return moved;
  }

  /// Waits until complete() and moves the collectives meanwhile.
  template <class Complete>
  void wait_until(const call& what, std::chrono::milliseconds limit, const std::source_location& where,
                  const Complete& complete) {
    constexpr int looks_per_clock = 16;
    constexpr int looks_per_pump = 64;
    backoff rest{spins()};
    clock::time_point deadline{};
    for (int looks = 1;; ++looks) {
      const bool moved = advance(where);
      if (complete()) {
        return;
      }
      require_unfailed(what, where);
      if (looks % looks_per_clock == 0) {
        process_->glance_at_notices(what);
        const clock::time_point now = clock::now();
        if (deadline == clock::time_point{}) {
          deadline = now + limit;
        }
        if (now >= deadline) {
          raise_time_out(what, limit, where);
        }
        if (looks % looks_per_pump == 0) {
          pump();
        }
      }
      if (moved) {
        rest = backoff{spins()};
      } else {
        rest.pause();
      }
    }
  }

  /// @throws communication_error if the job has failed
  void require_unfailed(const call& what, const std::source_location& where) {
    if (broken_ || process_->failed()) {
      raise_failure(what, where);
    }
  }

  /// No collective moves any more: nobody touches the buffers of those under way.
  void give_up() noexcept {
    broken_ = true;
    head_ = nullptr;
  }

 private:
  // How many steps a rank fills ahead of what it has finished. When ranks share processors with other programs, each
  // goes so far before it has to wait for another to get its turn.
  static constexpr std::uint64_t ahead = 3;
  static_assert(ahead < mpi_shared_window::slots);

  /// Looks before a waiting rank gives its processor away: some ten microseconds. A rank waits for data that others
  /// copy at this moment, or for one that is not running, perhaps because this rank has its processor.
  [[nodiscard]] int spins() const noexcept { return std::min(process_->spins(), 300); }

  /// An operation in which nothing has begun. Nothing is allocated if one is idle.
  template <class Operation>
  Operation& fresh(gradus::detail::vector<std::unique_ptr<Operation>>& all, gradus::detail::vector<Operation*>& idle) {
    if (idle.empty()) {
      all.push_back(std::make_unique<Operation>(*this));
      idle.reserve(all.size());
      idle.push_back(all.back().get());
    }
    Operation& each = *idle.back();
    idle.pop_back();
    return each;
  }

  void require_working(const call& what) {
    process_->look_at_unfinished();
    process_->glance_at_notices(what);
    require_unfailed(what, std::source_location::current());
    if (process_->over()) {
      gradus::raise<communication_error>(what.describe(), "a running MPI", "one that has been finalised",
                                         "keep the mpi_environment until the end of main");
    }
  }

  [[noreturn]] GRADUS_COLD void raise_failure(const call& what, const std::source_location& where) {
    give_up();
    process_->look_at_unfinished();
    process_->raise(what, world_, where);
  }

  [[noreturn]] GRADUS_COLD void raise_time_out(const call& what, std::chrono::milliseconds limit,
                                               const std::source_location& where) {
    std::string reason = gradus::detail::text({"not complete within ", seconds_text(limit)});
    try {
      if (head_ != nullptr) {
        const gradus::detail::vector<int> late = late_ranks(*head_);
        if (!late.empty()) {
          gradus::detail::append(reason, {"; ", ranks_text(late), world_ ? "" : " of this communicator",
                                          " did not come to ", head_->task_.what.describe()});
        }
      }
      reason.append(process_->ask_others(what));
    } catch (...) {
      // What there is will do.
    }
    give_up();
    if (process_->failed()) {
      process_->raise(what, world_, where);  // another rank was faster
    }
    process_->fail(gradus::detail::text({what.describe(), ": ", reason}));
    gradus::raise<communication_error>(what.describe(), {}, reason, "set_time_limit allows longer waits", where);
  }

  /// The ranks for which a collective waits.
  [[nodiscard]] GRADUS_COLD gradus::detail::vector<int> late_ranks(const shared_operation& mine) const {
    gradus::detail::vector<int> late;
    for (int other = 0; other < size_; ++other) {
      const bool came = mine.combines_ < mine.fills_ ? filled(other, mine.combines_)
                        : mine.collects_ && mine.collects_next_ < mine.combines_
                            ? reduced(other, mine.collects_next_)
                            : window_.state(other).done.load(std::memory_order_acquire) >= mine.first_;
      if (other != rank_ && !came) {
        late.push_back(other);
      }
    }
    return late;
  }

  /// Lets MPI move messages and the collectives of other communicators while this rank waits in memory.
  void pump() noexcept {
    if (!process_->over()) {
      int present = 0;
      process_->enter(
          [&] { return MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, messages_.native(), &present, MPI_STATUS_IGNORE); });
    }
  }

  /// A collective of one rank.
  static void copy_own(const shared_task& task) noexcept {
    if (task.what.count > 0 && task.input != task.output) {
      std::memcpy(task.output, task.input, static_cast<std::size_t>(task.what.count * task.element_bytes));
    }
  }

  // ---- the steps

  /// Cuts the collective into steps.
  void plan(shared_operation& mine) const noexcept {
    const shared_task& task = mine.task_;
    const auto segment = static_cast<index_t>(window_.segment_bytes());
    const index_t bytes = task.what.count * task.element_bytes;
    mine.collects_ = false;
    index_t largest = segment;  // bytes of a step
    switch (task.what.kind) {
      case call_kind::all_reduce:
        mine.collects_ = bytes * size_ > whole_bytes;
        break;
      case call_kind::reduce_scatter:
        largest = segment / size_ / 64 * 64;
        break;
      default:
        break;
    }
    const index_t steps = std::max<index_t>((bytes + largest - 1) / largest, 1);
    mine.step_elements_ = largest / task.element_bytes;
    mine.first_ = 0;
    mine.end_ = static_cast<std::uint64_t>(steps);
  }

  /// The collective is the first in the queue: its steps get their numbers.
  void start(shared_operation& mine) noexcept {
    const std::uint64_t steps = mine.end_;
    mine.first_ = next_step_;
    mine.end_ = mine.first_ + steps;
    mine.fills_ = mine.combines_ = mine.collects_next_ = mine.first_;
    mine.seen_ = mine.seen_reduced_ = 0;
    next_step_ = mine.end_;
  }

  /// Elements [begin, begin + count) of the array or of each block.
  struct interval {
    index_t begin;
    index_t count;
  };

  [[nodiscard]] static interval elements_of(const shared_operation& mine, std::uint64_t step) noexcept {
    const index_t begin = static_cast<index_t>(step - mine.first_) * mine.step_elements_;
    return {begin, std::min(mine.step_elements_, mine.task_.what.count - begin)};
  }

  /// The part of a segment of `count` elements that rank `owner` reduces; parts begin on lines of the cache.
  [[nodiscard]] interval part_of(int owner, index_t count, index_t element_bytes) const noexcept {
    const index_t per_line = 64 / element_bytes;
    const index_t part = ((count + size_ - 1) / size_ + per_line - 1) / per_line * per_line;
    const index_t begin = std::min(owner * part, count);
    return {begin, std::min(part, count - begin)};
  }

  [[nodiscard]] bool filled(int other, std::uint64_t step) const noexcept {
    return window_.head(other, step).filled.load(std::memory_order_acquire) == step + 1;
  }
  [[nodiscard]] bool reduced(int other, std::uint64_t step) const noexcept {
    return window_.state(other).reduced.load(std::memory_order_acquire) > step;
  }

  /// All others are done with the step that had the slot before.
  bool may_fill(const shared_operation& mine) noexcept {
    const std::uint64_t finished = mine.collects_ ? mine.collects_next_ : mine.combines_;
    if (mine.fills_ == mine.end_ || mine.fills_ >= finished + ahead) {
      return false;
    }
    const std::uint64_t step = mine.fills_;
    if (known_done_ + mpi_shared_window::slots > step) {
      return true;
    }
    std::uint64_t least = step;
    for (int other = 0; other < size_; ++other) {
      if (other != rank_) {
        least = std::min(least, window_.state(other).done.load(std::memory_order_acquire));
      }
    }
    known_done_ = std::max(known_done_, least);
    return known_done_ + mpi_shared_window::slots > step;
  }

  void fill(shared_operation& mine) noexcept {
    const shared_task& task = mine.task_;
    const std::uint64_t step = mine.fills_++;
    const interval all = elements_of(mine, step);
    std::byte* const slot = window_.data(rank_, step);
    const index_t size = task.element_bytes;
    switch (task.what.kind) {
      case call_kind::all_reduce: {
        const std::byte* const from = task.input + all.begin * size;
        if (mine.collects_) {
          const interval own = part_of(rank_, all.count, size);
          copy(slot, from, own.begin * size);
          const index_t after = own.begin + own.count;
          copy(slot + after * size, from + after * size, (all.count - after) * size);
        } else {
          copy(slot, from, all.count * size);
        }
        break;
      }
      case call_kind::reduce_scatter:
        for (int owner = 0; owner < size_; ++owner) {
          if (owner != rank_) {
            copy(slot + owner * mine.step_elements_ * size, task.input + (owner * task.what.count + all.begin) * size,
                 all.count * size);
          }
        }
        break;
      case call_kind::all_gather: {
        const std::byte* const from = task.input + all.begin * size;
        std::byte* const own = task.output + (rank_ * task.what.count + all.begin) * size;
        copy(slot, from, all.count * size);
        if (own != from) {
          copy(own, from, all.count * size);
        }
        break;
      }
      case call_kind::broadcast:
        if (task.what.peer == rank_) {
          copy(slot, task.input + all.begin * size, all.count * size);
        }
        break;
      default:
        break;
    }
    mpi_shared_window::slot_head& head = window_.head(rank_, step);
    if (step == mine.first_) {
      head.call_head = mine.packed_.head;
      head.call_count = mine.packed_.count;
    }
    head.filled.store(step + 1, std::memory_order_release);
  }

  /// In the first step all ranks have come and agree; in later ones those have filled their slots whose data are
  /// needed.
  bool may_combine(shared_operation& mine, const std::source_location& where) {
    if (mine.combines_ == mine.fills_) {
      return false;
    }
    const std::uint64_t step = mine.combines_;
    if (!mine.agreed_) {
      for (; mine.seen_ < size_; ++mine.seen_) {
        if (mine.seen_ == rank_) {
          continue;
        }
        if (!filled(mine.seen_, step)) {
          return false;
        }
        const mpi_shared_window::slot_head& head = window_.head(mine.seen_, step);
        if (head.call_head != mine.packed_.head || head.call_count != mine.packed_.count) {
          refuse(mine, {head.call_head, head.call_count}, where);
        }
      }
      mine.agreed_ = true;
      known_done_ = std::max(known_done_, mine.first_);  // who has begun this collective is done with those before
      return true;
    }
    if (mine.task_.what.kind == call_kind::broadcast) {
      return mine.task_.what.peer == rank_ || filled(mine.task_.what.peer, step);
    }
    for (; mine.seen_ < size_; ++mine.seen_) {
      if (mine.seen_ != rank_ && !filled(mine.seen_, step)) {
        return false;
      }
    }
    return true;
  }

  [[noreturn]] GRADUS_COLD void refuse(const shared_operation& mine, const packed_call& theirs,
                                       const std::source_location& where) {
    const int other = mine.seen_;
    const std::string own_text = mine.packed_.describe();
    const std::string their_text = theirs.describe();
    const bool own_first = rank_ < other;
    const std::string reason =
        gradus::detail::text({"ranks disagree about a collective: rank ", own_first ? rank_ : other, " calls ",
                              own_first ? own_text : their_text, ", rank ", own_first ? other : rank_, " calls ",
                              own_first ? their_text : own_text});
    const std::string call_text = mine.task_.what.describe();
    give_up();
    process_->fail(reason);
    gradus::raise<communication_error>(call_text, {}, reason, {}, where);
  }

  void combine(shared_operation& mine) noexcept {
    const shared_task& task = mine.task_;
    const std::uint64_t step = mine.combines_++;
    mine.seen_ = 0;
    const interval all = elements_of(mine, step);
    const index_t size = task.element_bytes;
    switch (task.what.kind) {
      case call_kind::all_reduce:
        if (mine.collects_) {
          const interval own = part_of(rank_, all.count, size);
          std::byte* const place = task.output + (all.begin + own.begin) * size;
          reduce(task, place, place, step, own.begin * size, window_.data(rank_, step) + own.begin * size, own.count);
          window_.state(rank_).reduced.store(step + 1, std::memory_order_release);
          return;
        }
        reduce(task, task.output + all.begin * size, task.output + all.begin * size, step, 0, nullptr, all.count);
        break;
      case call_kind::reduce_scatter:
        reduce(task, task.input + (rank_ * task.what.count + all.begin) * size, task.output + all.begin * size, step,
               rank_ * mine.step_elements_ * size, nullptr, all.count);
        break;
      case call_kind::all_gather:
        for (int other = 0; other < size_; ++other) {
          if (other != rank_) {
            copy(task.output + (other * task.what.count + all.begin) * size, window_.data(other, step),
                 all.count * size);
          }
        }
        break;
      case call_kind::broadcast:
        if (task.what.peer != rank_) {
          copy(task.output + all.begin * size, window_.data(task.what.peer, step), all.count * size);
        }
        break;
      default:
        break;
    }
    say_done(mine, step);
  }

  bool may_collect(shared_operation& mine) const noexcept {
    if (!mine.collects_ || mine.collects_next_ == mine.combines_) {
      return false;
    }
    for (; mine.seen_reduced_ < size_; ++mine.seen_reduced_) {
      if (mine.seen_reduced_ != rank_ && !reduced(mine.seen_reduced_, mine.collects_next_)) {
        return false;
      }
    }
    return true;
  }

  void collect(shared_operation& mine) noexcept {
    const std::uint64_t step = mine.collects_next_++;
    mine.seen_reduced_ = 0;
    const index_t size = mine.task_.element_bytes;
    const interval all = elements_of(mine, step);
    for (int other = 0; other < size_; ++other) {
      if (other != rank_) {
        const interval part = part_of(other, all.count, size);
        copy(mine.task_.output + (all.begin + part.begin) * size, window_.data(other, step) + part.begin * size,
             part.count * size);
      }
    }
    say_done(mine, step);
  }

  /// After a collective of one step the others see it by this rank's next collective.
  void say_done(const shared_operation& mine, std::uint64_t step) noexcept {
    if (mine.end_ - mine.first_ > 1) {
      window_.state(rank_).done.store(step + 1, std::memory_order_release);
    }
  }

  /// Reduces the contributions in the order of the ranks: this rank's from `own`, the others' from their slots.
  void reduce(const shared_task& task, const std::byte* own, std::byte* result, std::uint64_t step, index_t offset,
              std::byte* copy_of_result, index_t count) noexcept {
    if (count <= 0) {
      return;
    }
    for (int other = 0; other < size_; ++other) {
      sources_[static_cast<std::size_t>(other)] = other == rank_ ? own : window_.data(other, step) + offset;
    }
    task.reduce(sources_.data(), size_, result, copy_of_result, count);
  }

  static void copy(std::byte* to, const std::byte* from, index_t bytes) noexcept {
    if (bytes > 0) {
      std::memcpy(to, from, static_cast<std::size_t>(bytes));
    }
  }

  /// Up to so many bytes of all ranks together every rank reduces the whole array: that saves a meeting.
  static constexpr index_t whole_bytes = 32 * 1024;

  mpi messages_;
  mpi_process* process_;
  bool world_;
  int rank_;
  int size_;
  mpi_shared_window window_;
  gradus::detail::vector<const std::byte*> sources_;
  std::uint64_t next_step_ = 0;   // the first that no collective has
  std::uint64_t known_done_ = 0;  // steps with which all others are done, as far as this rank knows
  bool broken_ = false;
  shared_operation* head_ = nullptr;  // the collectives under way, in the order in which they were begun
  shared_operation* tail_ = nullptr;  // meaningful while there is a head
  gradus::detail::vector<std::unique_ptr<shared_operation>> collectives_;
  gradus::detail::vector<shared_operation*> idle_collectives_;
  gradus::detail::vector<std::unique_ptr<shared_message>> mails_;
  gradus::detail::vector<shared_message*> idle_mails_;
};

inline bool shared_operation::test(const std::source_location& where) {
  channel_->advance(where);
  if (complete_) {
    return true;
  }
  channel_->require_unfailed(task_.what, where);
  channel_->process().glance_at_notices(task_.what);
  return false;
}

inline void shared_operation::wait(const std::source_location& where) {
  if (!complete_) {
    channel_->wait_until(task_.what, limit_, where, [this] { return complete_; });
  }
}

inline void shared_operation::abandon(bool unwinding) noexcept {
  mpi_process& process = channel_->process();
  if (complete_ || process.over()) {
    return;
  }
  if (unwinding || process.failed()) {
    channel_->give_up();
    process.leave_unfinished(task_.what);
    return;
  }
  try {
    wait(std::source_location::current());
  } catch (...) {
    // The process has failed; the next operation says so.
  }
}

inline void shared_operation::release() noexcept {
  channel_->put_back(*this);
}

inline bool shared_message::test(const std::source_location& where) {
  channel_->advance(where);
  return message_.test(where);
}

inline void shared_message::wait(const std::source_location& where) {
  channel_->wait_until(what_, limit_, where, [&] { return message_.test(where); });
}

inline void shared_message::abandon(bool unwinding) noexcept {
  if (unwinding || channel_->process().failed()) {
    message_.cancel();
    return;
  }
  try {
    wait(std::source_location::current());
  } catch (...) {
    // The process has failed; the next operation says so.
  }
}

inline void shared_message::release() noexcept {
  message_.cancel();  // complete, unless a wait has thrown
  channel_->put_back(*this);
}

}  // namespace gradus::comm::detail

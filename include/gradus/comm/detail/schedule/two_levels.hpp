// SPDX-License-Identifier: BSL-1.0
//
// Two-level all-reduces under way: three stages for each piece, with both levels at work at the same time.
#pragma once

#include <algorithm>        // std::max, std::min
#include <cstddef>          // std::byte, std::size_t
#include <exception>        // std::current_exception, std::exception_ptr, std::rethrow_exception
#include <source_location>  // std::source_location
#include <utility>          // std::move

#include "gradus/comm/detail/request/operation_pool.hpp"
#include "gradus/comm/reduction.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/comm/transfer.hpp"
#include "gradus/comm/wait.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"

namespace gradus::comm::detail {

enum class two_level_stage : unsigned char { gather_in, across, spread_out };

/// A range of the array, and the buffer for this rank's block of it; null if the node uses a leader.
struct two_level_segment {
  std::byte* data;
  index_t count;
  std::byte* block;
  index_t block_count;
};

struct two_level_task {
  std::byte* data = nullptr;
  index_t count = 0;
  const element_type* element = &bytes_to_move;
  reduction operation = reduction::sum;
  request (*begin)(void* owner, two_level_stage stage, const two_level_segment& segment,
                   const two_level_task& task) = nullptr;
};

class two_level_queue;

/// One all-reduce. Every rank of a node begins the stages in the same order, which follows from the number of pieces:
/// in(0), in(1), out(0), in(2), out(1), ...
class two_level_run final : public operation {
 public:
  explicit two_level_run(two_level_queue& queue) noexcept : queue_{&queue} {}

  bool test(const std::source_location& where) override;
  void wait(const std::source_location& where) override;
  void abandon(bool unwinding) noexcept override;
  void release() noexcept override;

 private:
  friend class two_level_queue;

  static constexpr index_t slots = 3;  // pieces under way

  struct slot {
    dynamic_array<std::byte> block;
    request in;
    request across;
    request out;
  };

  [[nodiscard]] slot& of(index_t segment) noexcept { return slots_[segment % slots]; }

  [[nodiscard]] two_level_segment segment(index_t k) noexcept {
    const index_t begin = k * segment_elements_;
    const index_t count =
        k < even_segments_ ? std::min(segment_elements_, even_elements_ - begin) : task_.count - even_elements_;
    std::byte* const data = task_.data + (k < even_segments_ ? begin : even_elements_) * task_.element->bytes;
    if (k < even_segments_ && blocks_ > 1) {
      return {data, count, of(k).block.data(), count / blocks_};
    }
    return {data, count, nullptr, 0};
  }

  /// True if the next action within the node is to begin a piece, not to end one.
  [[nodiscard]] bool begins_next() const noexcept { return ins_ < segments_ && ins_ < outs_ + slots - 1; }

  /// The request that must complete before this run can begin more stages, or end.
  [[nodiscard]] request& obstacle() noexcept {
    if (outs_ == segments_) {
      return of(over_).out;
    }
    if (begins_next()) {
      return of(ins_).out;  // of the piece that used the slot before
    }
    return acrosses_ > outs_ ? of(outs_).across : of(acrosses_).in;
  }

  two_level_queue* queue_;
  two_level_task task_{};
  int blocks_ = 1;
  index_t segment_elements_ = 1;
  index_t even_elements_ = 0;  // elements that are split into blocks, or all elements if the node uses a leader
  index_t even_segments_ = 0;
  index_t segments_ = 0;
  index_t ins_ = 0;  // pieces with begun first stage
  index_t acrosses_ = 0;
  index_t outs_ = 0;
  index_t over_ = 0;  // complete pieces
  slot slots_[slots];
  std::exception_ptr failure_;
  two_level_run* next_ = nullptr;
};

/// The all-reduces of a rank. Each begins its stages after the one before has begun all of its own.
class two_level_queue {
 public:
  explicit two_level_queue(void* owner) noexcept : owner_{owner} {}
  two_level_queue(const two_level_queue&) = delete;
  two_level_queue& operator=(const two_level_queue&) = delete;

  /// @param blocks         number of blocks into which a piece is split; 1: the node uses a leader
  /// @param segment_bytes  0: one piece
  request begin(const two_level_task& task, int blocks, index_t segment_bytes) {
    require_whole();
    two_level_run& run = runs_.idle(*this);
    run.task_ = task;
    run.blocks_ = blocks;
    run.even_elements_ = task.count / blocks * blocks;
    const index_t wanted = segment_bytes == 0 ? task.count : segment_bytes / task.element->bytes;
    run.segment_elements_ = std::max<index_t>(wanted / blocks, 1) * blocks;
    run.even_segments_ = (run.even_elements_ + run.segment_elements_ - 1) / run.segment_elements_;
    run.segments_ = run.even_segments_ + (run.even_elements_ < task.count || task.count == 0 ? 1 : 0);
    run.ins_ = run.acrosses_ = run.outs_ = run.over_ = 0;
    run.failure_ = nullptr;
    run.next_ = nullptr;
    if (blocks > 1) {
      const auto bytes = static_cast<std::size_t>(run.segment_elements_ / blocks * task.element->bytes);
      for (two_level_run::slot& each : run.slots_) {
        if (each.block.size() < bytes) {
          each.block = dynamic_array<std::byte>(bytes);
        }
      }
    }
    runs_.take();
    (head_ == nullptr ? head_ : tail_->next_) = &run;
    tail_ = &run;
    request pending{run};
    advance();
    return pending;
  }

  /// Begins all stages that can begin. True if there was progress.
  bool advance() noexcept {
    bool moved = false;
    while (head_ != nullptr) {
      two_level_run& run = *head_;
      moved = step(run) || moved;
      if (run.failure_ != nullptr || run.outs_ < run.segments_) {
        return moved;
      }
      head_ = run.next_;
    }
    return moved;
  }

  /// Makes progress in the run. True if it is over.
  /// @throws communication_error
  bool look(two_level_run& run, bool& moved) {
    moved = advance();
    require_whole();
    if (run.failure_ == nullptr && run.outs_ == run.segments_) {
      finish(run);
    }
    if (run.failure_ != nullptr) {
      give_up(run, run.failure_);
      std::rethrow_exception(run.failure_);
    }
    return run.over_ == run.segments_;
  }

  /// The run that all others wait for, or the run itself.
  [[nodiscard]] two_level_run& blocking(two_level_run& run) const noexcept {
    return run.outs_ == run.segments_ || head_ == nullptr ? run : *head_;
  }

  /// Abandons an incomplete run: its buffers are no longer in use, and no run progresses from now on, because the ranks
  /// of a node could take different steps.
  void give_up(two_level_run& run, std::exception_ptr reason) noexcept {
    for (two_level_run::slot& each : run.slots_) {
      each.in.cancel();
      each.across.cancel();
      each.out.cancel();
    }
    if (broken_ == nullptr) {
      broken_ = std::move(reason);
    }
    head_ = nullptr;
  }

  void put_back(two_level_run& run) noexcept { runs_.put_back(run); }

 private:
  /// @throws the exception of a failed run
  void require_whole() const {
    if (broken_ != nullptr) {
      std::rethrow_exception(broken_);
    }
  }

  /// Begins the stages that can begin.
  bool step(two_level_run& run) noexcept {
    bool moved = false;
    try {
      for (bool more = true; more && run.outs_ < run.segments_;) {
        more = false;
        if (run.acrosses_ < run.ins_ && run.of(run.acrosses_).in.test()) {
          run.of(run.acrosses_).across = begin_stage(run, two_level_stage::across, run.acrosses_);
          ++run.acrosses_;
          more = true;
        }
        if (run.begins_next()) {
          if (run.of(run.ins_).out.test()) {
            run.of(run.ins_).in = begin_stage(run, two_level_stage::gather_in, run.ins_);
            ++run.ins_;
            more = true;
          }
        } else if (run.outs_ < run.acrosses_ && run.of(run.outs_).across.test()) {
          run.of(run.outs_).out = begin_stage(run, two_level_stage::spread_out, run.outs_);
          ++run.outs_;
          more = true;
        }
        moved = moved || more;
      }
    } catch (...) {
      run.failure_ = std::current_exception();
    }
    return moved;
  }

  request begin_stage(two_level_run& run, two_level_stage stage, index_t k) {
    return run.task_.begin(owner_, stage, run.segment(k), run.task_);
  }

  /// All stages have begun: completes the last pieces.
  void finish(two_level_run& run) noexcept {
    try {
      run.over_ = std::max<index_t>(run.over_, run.segments_ - two_level_run::slots);
      while (run.over_ < run.segments_ && run.of(run.over_).out.test()) {
        ++run.over_;
      }
    } catch (...) {
      run.failure_ = std::current_exception();
    }
  }

  void* owner_;
  two_level_run* head_ = nullptr;  // the runs that have stages to begin, in the order in which they were begun
  two_level_run* tail_ = nullptr;  // valid only if head_ is not null
  std::exception_ptr broken_;
  operation_pool<two_level_run> runs_;
};

inline bool two_level_run::test(const std::source_location&) {
  bool moved = false;
  return queue_->look(*this, moved);
}

inline void two_level_run::wait(const std::source_location& where) {
  constexpr int spins = 200;
  constexpr int looks = 1000;  // polls of both levels, before a wait for one of them
  backoff rest{spins};
  for (int idle = 0;;) {
    bool moved = false;
    if (queue_->look(*this, moved)) {
      return;
    }
    if (moved) {
      idle = 0;
      rest = backoff{spins};
    } else if (++idle < looks) {
      rest.pause();
    } else {
      idle = 0;
      two_level_run& first = queue_->blocking(*this);
      try {
        first.obstacle().wait(where);  // it has its own time limit and detects failures of its ranks
      } catch (...) {
        first.failure_ = std::current_exception();
        queue_->give_up(first, first.failure_);
        throw;
      }
    }
  }
}

inline void two_level_run::abandon(bool unwinding) noexcept {
  if (over_ == segments_) {
    return;
  }
  std::exception_ptr reason;
  try {
    if (!unwinding) {
      wait(std::source_location::current());
      return;
    }
    gradus::raise<communication_error>("all_reduce", {},
                                       "an all-reduce was taken back because of an exception on this rank");
  } catch (...) {
    reason = std::current_exception();
  }
  queue_->give_up(*this, reason);
}

inline void two_level_run::release() noexcept {
  queue_->put_back(*this);
}

}  // namespace gradus::comm::detail

// SPDX-License-Identifier: BSL-1.0
//
// The collectives of ranks that share memory, step by step.
// Module: comm. Depends on: core, MPI. For mpi_shared.hpp; not for use by itself.
#pragma once

#include <mpi.h>

#include <algorithm>  // std::max, std::min
#include <atomic>     // std::atomic
#include <cstddef>    // std::byte, std::size_t
#include <cstdint>    // std::uint64_t
#include <cstring>    // std::memcpy

#include "gradus/comm/detail/call.hpp"        // call, call_kind
#include "gradus/comm/mpi_shared_window.hpp"  // mpi_shared_window, packed_call
#include "gradus/comm/reduction.hpp"          // reduce_contributions, reduction
#include "gradus/core/config.hpp"             // GRADUS_COLD
#include "gradus/core/index.hpp"              // index_t
#include "gradus/core/vector.hpp"             // vector

namespace gradus::comm::detail {

/// result[i] = sources[0][i] op ... op sources[ranks - 1][i] for i in [0, count), and the same to `copy` unless it is
/// null. The result may lie on one of the sources.
using shared_reduction = void (*)(reduction operation, const std::byte* const* sources, int ranks, std::byte* result,
                                  std::byte* copy, index_t count) noexcept;

template <class Element>
void reduce_shared(reduction operation, const std::byte* const* sources, int ranks, std::byte* result, std::byte* copy,
                   index_t count) noexcept {
  reduce_contributions<Element>(
      operation, ranks, 0, count, [=](int rank) { return reinterpret_cast<const Element*>(sources[rank]); },
      [=](index_t i, const Element* values, auto number) {
        const std::size_t bytes = static_cast<std::size_t>(number) * sizeof(Element);
        std::memcpy(reinterpret_cast<Element*>(result) + i, values, bytes);
        if (copy != nullptr) {
          std::memcpy(reinterpret_cast<Element*>(copy) + i, values, bytes);
        }
      });
}

/// What a rank hands over when it begins a collective.
struct shared_task {
  call what{};
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  index_t element_bytes = 1;
  shared_reduction reduce = nullptr;
};

/// How far one rank is in one collective.
struct shared_collective {
  shared_task task{};
  packed_call packed{0, 0};  // `task.what` as the other ranks see it
  index_t step_elements = 1;
  bool collects = false;    // has the third phase
  bool agreed = false;      // all ranks have begun it with the same arguments
  bool disagrees = false;   // rank `seen` has begun another
  int seen = 0;             // ranks, from 0, that the next combine or collect need not look at any more
  int seen_reduced = 0;     //
  std::uint64_t first = 0;  // step
  std::uint64_t end = 0;    // the step after the last
  std::uint64_t fills = 0;  // the next step to be filled, combined, collected
  std::uint64_t combines = 0;
  std::uint64_t collects_next = 0;

  [[nodiscard]] bool over() const noexcept { return (collects ? collects_next : combines) == end; }
};

/// Carries out collectives in steps, one collective after the other. All ranks take the same steps, because they follow
/// from the call and the segment size.
///
///   phase   | what a rank does
///   fill    | copies what others need of its segment into its slot
///   combine | when the slots are filled: takes or reduces its part, or all of it
///   collect | all_reduce of large arrays only, when the parts are reduced: copies the parts of the others
class shared_steps {
 public:
  GRADUS_COLD shared_steps(MPI_Comm ranks, int rank, int size, std::size_t segment_bytes)
      : window_{ranks, segment_bytes}, rank_{rank}, size_{size}, sources_(static_cast<std::size_t>(size)) {}

  [[nodiscard]] std::size_t segment_bytes() const noexcept { return window_.segment_bytes(); }

  /// Cuts the collective into steps and numbers them. Those before it are complete, or will be before it moves.
  void start(shared_collective& mine) noexcept {
    const shared_task& task = mine.task;
    const auto segment = static_cast<index_t>(window_.segment_bytes());
    const index_t bytes = task.what.count * task.element_bytes;
    const index_t largest =  // bytes of a step
        task.what.kind == call_kind::reduce_scatter ? segment / size_ / 64 * 64 : segment;
    const index_t steps = std::max<index_t>((bytes + largest - 1) / largest, 1);
    mine.collects = task.what.kind == call_kind::all_reduce && bytes * size_ > whole_bytes;
    mine.step_elements = largest / task.element_bytes;
    mine.first = next_step_;
    mine.end = next_step_ += static_cast<std::uint64_t>(steps);
    mine.fills = mine.combines = mine.collects_next = mine.first;
    mine.seen = mine.seen_reduced = 0;
    mine.agreed = false;
    mine.disagrees = false;
  }

  /// Puts down this rank's contribution to the first step, if its slot is free: the others can go on while this rank
  /// computes.
  void offer(shared_collective& mine) noexcept {
    if (may_fill(mine)) {
      fill(mine);
    }
  }

  /// Takes the steps that can be taken without waiting. True if there was one.
  /// @post if `mine.disagrees`, rank `mine.seen` has begun the collective begun_by_other(mine) instead
  bool advance(shared_collective& mine) noexcept {
    bool moved = false;
    for (bool more = true; more;) {
      more = false;
      if (may_fill(mine)) {
        fill(mine);
        more = true;
      }
      if (may_combine(mine)) {
        combine(mine);
        more = true;
      }
      if (may_collect(mine)) {
        collect(mine);
        more = true;
      }
      moved = moved || more;
    }
    return moved;
  }

  [[nodiscard]] packed_call begun_by_other(const shared_collective& mine) const noexcept {
    const mpi_shared_window::slot_head& head = window_.head(mine.seen, mine.first);
    return {head.call_head, head.call_count};
  }

  /// The ranks for which a collective waits.
  [[nodiscard]] GRADUS_COLD gradus::detail::vector<int> late_ranks(const shared_collective& mine) const {
    gradus::detail::vector<int> late;
    for (int other = 0; other < size_; ++other) {
      const bool came = mine.combines < mine.fills ? filled(other, mine.combines)
                        : mine.collects && mine.collects_next < mine.combines
                            ? reduced(other, mine.collects_next)
                            : window_.state(other).done.load(std::memory_order_acquire) >= mine.first;
      if (other != rank_ && !came) {
        late.push_back(other);
      }
    }
    return late;
  }

 private:
  // How many steps a rank fills ahead of what it has finished. When ranks share processors with other programs, each
  // goes so far before it has to wait for another to get its turn.
  static constexpr std::uint64_t ahead = 3;
  static_assert(ahead < mpi_shared_window::slots);

  /// Elements [begin, begin + count) of the array or of each block.
  struct interval {
    index_t begin;
    index_t count;
  };

  [[nodiscard]] static interval elements_of(const shared_collective& mine, std::uint64_t step) noexcept {
    const index_t begin = static_cast<index_t>(step - mine.first) * mine.step_elements;
    return {begin, std::min(mine.step_elements, mine.task.what.count - begin)};
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
  bool may_fill(const shared_collective& mine) noexcept {
    const std::uint64_t finished = mine.collects ? mine.collects_next : mine.combines;
    if (mine.fills == mine.end || mine.fills >= finished + ahead) {
      return false;
    }
    const std::uint64_t step = mine.fills;
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

  void fill(shared_collective& mine) noexcept {
    const shared_task& task = mine.task;
    const std::uint64_t step = mine.fills++;
    const interval all = elements_of(mine, step);
    std::byte* const slot = window_.data(rank_, step);
    const index_t size = task.element_bytes;
    switch (task.what.kind) {
      case call_kind::all_reduce: {
        const std::byte* const from = task.input + all.begin * size;
        if (mine.collects) {
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
            copy(slot + owner * mine.step_elements * size, task.input + (owner * task.what.count + all.begin) * size,
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
    if (step == mine.first) {
      head.call_head = mine.packed.head;
      head.call_count = mine.packed.count;
    }
    head.filled.store(step + 1, std::memory_order_release);
  }

  /// In the first step all ranks have come and agree; in later ones those have filled their slots whose data are
  /// needed.
  bool may_combine(shared_collective& mine) noexcept {
    if (mine.combines == mine.fills) {
      return false;
    }
    const std::uint64_t step = mine.combines;
    if (!mine.agreed) {
      for (; mine.seen < size_; ++mine.seen) {
        if (mine.seen == rank_) {
          continue;
        }
        if (!filled(mine.seen, step)) {
          return false;
        }
        const mpi_shared_window::slot_head& head = window_.head(mine.seen, step);
        if (head.call_head != mine.packed.head || head.call_count != mine.packed.count) {
          mine.disagrees = true;
          return false;
        }
      }
      mine.agreed = true;
      known_done_ = std::max(known_done_, mine.first);  // who has begun this collective is done with those before
      return true;
    }
    if (mine.task.what.kind == call_kind::broadcast) {
      return mine.task.what.peer == rank_ || filled(mine.task.what.peer, step);
    }
    for (; mine.seen < size_; ++mine.seen) {
      if (mine.seen != rank_ && !filled(mine.seen, step)) {
        return false;
      }
    }
    return true;
  }

  void combine(shared_collective& mine) noexcept {
    const shared_task& task = mine.task;
    const std::uint64_t step = mine.combines++;
    mine.seen = 0;
    const interval all = elements_of(mine, step);
    const index_t size = task.element_bytes;
    switch (task.what.kind) {
      case call_kind::all_reduce:
        if (mine.collects) {
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
               rank_ * mine.step_elements * size, nullptr, all.count);
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

  bool may_collect(shared_collective& mine) const noexcept {
    if (!mine.collects || mine.collects_next == mine.combines) {
      return false;
    }
    for (; mine.seen_reduced < size_; ++mine.seen_reduced) {
      if (mine.seen_reduced != rank_ && !reduced(mine.seen_reduced, mine.collects_next)) {
        return false;
      }
    }
    return true;
  }

  void collect(shared_collective& mine) noexcept {
    const std::uint64_t step = mine.collects_next++;
    mine.seen_reduced = 0;
    const index_t size = mine.task.element_bytes;
    const interval all = elements_of(mine, step);
    for (int other = 0; other < size_; ++other) {
      if (other != rank_) {
        const interval part = part_of(other, all.count, size);
        copy(mine.task.output + (all.begin + part.begin) * size, window_.data(other, step) + part.begin * size,
             part.count * size);
      }
    }
    say_done(mine, step);
  }

  /// After a collective of one step the others see it by this rank's next collective.
  void say_done(const shared_collective& mine, std::uint64_t step) noexcept {
    if (mine.end - mine.first > 1) {
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
    task.reduce(task.what.operation, sources_.data(), size_, result, copy_of_result, count);
  }

  static void copy(std::byte* to, const std::byte* from, index_t bytes) noexcept {
    if (bytes > 0) {
      std::memcpy(to, from, static_cast<std::size_t>(bytes));
    }
  }

  /// Up to so many bytes of all ranks together every rank reduces the whole array: that saves a meeting.
  static constexpr index_t whole_bytes = 32 * 1024;

  mpi_shared_window window_;
  int rank_;
  int size_;
  gradus::detail::vector<const std::byte*> sources_;
  std::uint64_t next_step_ = 0;   // the first that no collective has
  std::uint64_t known_done_ = 0;  // steps with which all others are done, as far as this rank knows
};

}  // namespace gradus::comm::detail

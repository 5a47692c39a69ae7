// SPDX-License-Identifier: BSL-1.0
//
// The steps of collectives of ranks that share memory.
#pragma once

#include <mpi.h>

#include <algorithm>  // std::max, std::min
#include <array>      // std::array
#include <atomic>     // std::atomic
#include <cstddef>    // std::byte, std::size_t
#include <cstdint>    // std::uint64_t
#include <cstring>    // std::memcpy
#include <memory>     // std::shared_ptr
#include <span>       // std::span
#include <utility>    // std::move

#include "gradus/comm/call.hpp"
#include "gradus/comm/detail/mpi/registered_memory.hpp"
#include "gradus/comm/detail/mpi_shared/memory.hpp"
#include "gradus/comm/detail/mpi_shared/window.hpp"
#include "gradus/comm/reduction.hpp"
#include "gradus/comm/transfer.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/index.hpp"

namespace gradus::comm::detail {

/// The arguments of a rank's collective.
struct shared_task {
  call_description what{};
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  const element_type* element = &bytes_to_move;
};

/// The progress of one rank in one collective.
struct shared_collective {
  shared_task task{};
  packed_call packed{0, 0, 0};  // `task.what` as the other ranks see it
  // Registered memory that contains the data on all ranks, from `offset` on.
  const mpi_registered_memory* memory = nullptr;
  index_t offset = 0;  // in bytes
  index_t step_elements = 1;
  bool collects = false;   // has the third phase
  bool agreed = false;     // all ranks have begun it with the same arguments
  bool disagrees = false;  // rank `seen` has begun a different collective
  int seen = 0;            // number of ranks, from 0, that the next combine or collect need not check again
  int seen_reduced = 0;
  std::uint64_t first = 0;  // first step
  std::uint64_t end = 0;    // the step after the last
  std::uint64_t fills = 0;  // the next step to fill, to combine, to collect
  std::uint64_t combines = 0;
  std::uint64_t collects_next = 0;

  [[nodiscard]] bool over() const noexcept { return (collects ? collects_next : combines) == end; }
};

/// Runs collectives in steps, one collective after the other. All ranks run the same steps, because they follow from
/// the call and the piece size.
///
///   phase   | action of a rank
///   fill    | copies the elements of its array that others need into its slot
///   combine | when the slots are filled: copies or reduces its part, or everything
///   collect | only for all_reduce of large arrays, when the parts are reduced: copies the parts of the others
///
/// A large array in registered memory is reduced in place, in one step. Only elements in pages that are not shared are
/// copied. The ranks take chunks of the array, first from their own part, until none is left.
class shared_steps {
 public:
  shared_steps(MPI_Comm ranks, int rank, int size, std::size_t segment_bytes, std::shared_ptr<mpi_shared_pool> pool,
               const mpi_blocking_calls& call)
      : window_{ranks, rank, segment_bytes, std::move(pool), call},
        rank_{rank},
        size_{size},
        sources_(static_cast<std::size_t>(size)),
        results_(static_cast<std::size_t>(size)) {}

  [[nodiscard]] std::size_t segment_bytes() const noexcept { return window_.segment_bytes(); }
  [[nodiscard]] const std::shared_ptr<mpi_shared_pool>& pool() const noexcept { return window_.pool(); }

  /// True if a collective runs in place when its data are in registered memory.
  [[nodiscard]] bool goes_directly(const call_description& what, index_t element_bytes) const noexcept {
    return what.kind == call_kind::all_reduce && what.count * element_bytes * size_ > direct_bytes;
  }

  /// Splits the collective into steps and numbers them. Earlier collectives are complete, or will be before this one
  /// moves.
  void start(shared_collective& mine) noexcept {
    const shared_task& task = mine.task;
    const auto segment = static_cast<index_t>(window_.segment_bytes());
    const index_t bytes = task.what.count * task.element->bytes;
    const index_t largest =  // bytes of a step
        task.what.kind == call_kind::reduce_scatter ? segment / size_ / 64 * 64 : segment;
    const index_t steps = mine.memory != nullptr ? 1 : std::max<index_t>((bytes + largest - 1) / largest, 1);
    mine.collects = mine.memory != nullptr || (task.what.kind == call_kind::all_reduce && bytes * size_ > whole_bytes);
    mine.step_elements = mine.memory != nullptr ? task.what.count : largest / task.element->bytes;
    mine.first = next_step_;
    mine.end = next_step_ += static_cast<std::uint64_t>(steps);
    mine.fills = mine.combines = mine.collects_next = mine.first;
    mine.seen = mine.seen_reduced = 0;
    mine.agreed = false;
    mine.disagrees = false;
  }

  /// Writes this rank's contribution to the first step, if its slot is free, so that the others can proceed while this
  /// rank computes.
  void offer(shared_collective& mine) noexcept {
    if (may_fill(mine)) {
      fill(mine);
    }
  }

  /// Runs the steps that need no waiting. True if there was one.
  /// @post if `mine.disagrees`, rank `mine.seen` has begun the different collective begun_by_other(mine)
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
    return {head.call_head, head.call_count, head.call_location};
  }

  /// The ranks for which a collective waits.
  [[nodiscard]] dynamic_array<int> late_ranks(const shared_collective& mine) const {
    dynamic_array<int> late;
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
  // How many steps ahead of the last complete one a rank fills. If ranks share processors with other programs, each
  // gets this far before it has to wait until another rank runs.
  static constexpr std::uint64_t ahead = 3;
  static_assert(ahead < mpi_shared_window::slots);

  /// Elements [begin, begin + count) of the array or of each rank's part.
  struct interval {
    index_t begin;
    index_t count;
  };

  [[nodiscard]] static interval elements_of(const shared_collective& mine, std::uint64_t step) noexcept {
    const index_t begin = static_cast<index_t>(step - mine.first) * mine.step_elements;
    return {begin, std::min(mine.step_elements, mine.task.what.count - begin)};
  }

  /// The part of a piece of `count` elements that rank `owner` reduces; parts begin at cache lines.
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

  /// True if all other ranks are done with the step that used the slot before.
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
    const index_t size = task.element->bytes;
    switch (task.what.kind) {
      case call_kind::all_reduce: {
        const std::byte* const from = task.input + all.begin * size;
        if (mine.memory != nullptr) {
          const interval shared = shared_part(mine);
          const index_t after = shared.begin + shared.count;
          copy(slot, from, shared.begin * size);
          copy(slot + shared.begin * size, from + after * size, (all.count - after) * size);
          window_.state(rank_).taken.store(0, std::memory_order_relaxed);
        } else if (mine.collects) {
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
      head.call_location = mine.packed.location;
    }
    head.filled.store(step + 1, std::memory_order_release);
  }

  /// In the first step: true if all ranks have arrived and agree. In later steps: true if the ranks with the needed
  /// data have filled their slots.
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
        if (packed_call{head.call_head, head.call_count, head.call_location} != mine.packed) {
          mine.disagrees = true;
          return false;
        }
      }
      mine.agreed = true;
      // A rank that has begun this collective is done with those before.
      known_done_ = std::max(known_done_, mine.first);
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
    const index_t size = task.element->bytes;
    switch (task.what.kind) {
      case call_kind::all_reduce:
        if (mine.collects) {
          if (mine.memory != nullptr) {
            reduce_in_place(mine, step);
          } else {
            const interval own = part_of(rank_, all.count, size);
            std::byte* const own_block = task.output + (all.begin + own.begin) * size;
            reduce(task, own_block, own_block, step, own.begin * size, window_.data(rank_, step) + own.begin * size,
                   own.count);
          }
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
    const index_t size = mine.task.element->bytes;
    const interval all = elements_of(mine, step);
    for (int other = 0; other < size_ && mine.memory == nullptr; ++other) {
      if (other != rank_) {
        const interval part = part_of(other, all.count, size);
        copy(mine.task.output + (all.begin + part.begin) * size, window_.data(other, step) + part.begin * size,
             part.count * size);
      }
    }
    say_done(mine, step);
  }

  /// Marks the step as done. After a collective of one step this is unnecessary: the rank's next collective shows it.
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
    const std::array results{result, copy_of_result};
    task.element->combine(task.what.operation, all_sources(), 0, count,
                          std::span{results}.first(copy_of_result == nullptr ? 1 : 2), 0);
  }

  /// The elements of an array in registered memory that are in shared pages on all ranks.
  [[nodiscard]] static interval shared_part(const shared_collective& mine) noexcept {
    const index_t size = mine.task.element->bytes;
    const index_t count = mine.task.what.count;
    const index_t first = (std::max<index_t>(mine.memory->first() - mine.offset, 0) + size - 1) / size;
    const index_t last = std::min((mine.memory->last() - mine.offset) / size, count);
    return {first, last - first};
  }

  /// Reduces chunks that no other rank has taken, in the memory of all ranks, and separately the elements that are not
  /// shared.
  void reduce_in_place(const shared_collective& mine, std::uint64_t step) noexcept {
    const shared_task& task = mine.task;
    const index_t size = task.element->bytes;
    const interval shared = shared_part(mine);
    const index_t after = shared.begin + shared.count;
    reduce(task, task.output, task.output, step, 0, nullptr, shared.begin);
    std::byte* const rest = task.output + after * size;
    reduce(task, rest, rest, step, shared.begin * size, nullptr, task.what.count - after);
    const index_t piece = piece_bytes / size;
    for (int k = 0; k < size_; ++k) {
      const int owner = (rank_ + k) % size_;
      const interval part = part_of(owner, shared.count, size);
      const index_t pieces = (part.count + piece - 1) / piece;
      for (index_t i = take_piece(owner, pieces); i < pieces; i = take_piece(owner, pieces)) {
        const index_t begin = shared.begin + part.begin + i * piece;
        for (int rank = 0; rank < size_; ++rank) {
          std::byte* const data = rank == rank_ ? task.output : mine.memory->origin(rank) + mine.offset;
          sources_[static_cast<std::size_t>(rank)] = results_[static_cast<std::size_t>(rank)] = data + begin * size;
        }
        task.element->combine(task.what.operation, all_sources(), 0, std::min(piece, part.count - i * piece),
                              {results_.data(), results_.size()}, 0);
      }
    }
  }

  /// Takes the next chunk of a rank's part; returns its index, which is at least `pieces` if none is left.
  [[nodiscard]] index_t take_piece(int owner, index_t pieces) noexcept {
    mpi_shared_window::word& taken = window_.state(owner).taken;
    const auto all = static_cast<std::uint64_t>(pieces);
    return taken.load(std::memory_order_relaxed) >= all
               ? pieces
               : static_cast<index_t>(taken.fetch_add(1, std::memory_order_relaxed));
  }

  [[nodiscard]] std::span<const std::byte* const> all_sources() const noexcept {
    return {sources_.data(), sources_.size()};
  }

  static void copy(std::byte* to, const std::byte* from, index_t bytes) noexcept {
    if (bytes > 0) {
      std::memcpy(to, from, static_cast<std::size_t>(bytes));
    }
  }

  /// Up to this many bytes over all ranks, every rank reduces the whole array: that saves a synchronization.
  static constexpr index_t whole_bytes = 32 * 1024;
  /// The same limit for registered memory; larger arrays are reduced in place.
  static constexpr index_t direct_bytes = 16 * 1024;
  /// Bytes of a chunk of an array in registered memory.
  static constexpr index_t piece_bytes = 256 * 1024;

  mpi_shared_window window_;
  int rank_;
  int size_;
  dynamic_array<const std::byte*> sources_;
  dynamic_array<std::byte*> results_;
  std::uint64_t next_step_ = 0;   // the first step that belongs to no collective yet
  std::uint64_t known_done_ = 0;  // steps that all other ranks have done, as far as this rank knows
};

}  // namespace gradus::comm::detail

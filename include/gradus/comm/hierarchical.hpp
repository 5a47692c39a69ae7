// SPDX-License-Identifier: BSL-1.0
//
// All-reduce in two levels: within nodes, and between nodes.
#pragma once

#include <chrono>           // std::chrono::milliseconds
#include <concepts>         // std::same_as
#include <cstddef>          // std::byte, std::size_t
#include <cstdint>          // std::int64_t
#include <memory>           // std::make_unique, std::unique_ptr
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string_view>      // std::string_view
#include <utility>          // std::move

#include "gradus/comm/communicator.hpp"
#include "gradus/comm/detail/schedule/two_levels.hpp"
#include "gradus/comm/forwarding.hpp"
#include "gradus/comm/transfer.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"

namespace gradus::comm {

/// Options of `hierarchical`.
struct hierarchical_options {
  /// Arrays pass through the levels in pieces of this many bytes, so that the levels work at the same time. The same on
  /// all ranks; 0: one piece.
  index_t segment_bytes = 2 * 1024 * 1024;
  /// For arrays up to this size in bytes one leader per node sends the whole array: fewer messages.
  index_t leader_bytes = 32 * 1024;
};

/// The ranks of a job on several nodes, with an all-reduce in two levels. First each rank of a node reduces its block
/// of a piece within the node. Then the ranks with the same index on their nodes all-reduce their blocks between the
/// nodes, all at the same time. At last the node gathers the blocks. So a node sends each element once, shared among
/// its ranks, and the inner level runs at the speed of `Local`. Small arrays, elements that do not fill a block for
/// every rank, and nodes with different numbers of ranks use a leader instead: the node reduces, its first rank
/// all-reduces with those of the other nodes, and broadcasts the result in the node.
///
/// The order in which contributions are combined depends only on the placement of the ranks, so all ranks get the same
/// bits. Messages and the other collectives are those of `Whole`.
///
/// @tparam Local   communicator of the ranks of a node, e.g. mpi_shared
/// @tparam Across  communicator of the ranks of all nodes with the same index in Local, e.g. mpi or collectives<mpi>
/// @tparam Whole   communicator of all ranks
///
/// @code
///   comm::mpi_environment environment{argc, argv};
///   auto nodes = comm::mpi_shared::split_by_node(environment);
///   comm::hierarchical world{std::move(nodes.local), std::move(nodes.across), comm::mpi{environment}};
/// @endcode
template <class Local, class Across, class Whole>
class hierarchical : public forwarding<hierarchical<Local, Across, Whole>> {
  static_assert(explain_communicator<Local>());
  static_assert(explain_communicator<Across>());
  static_assert(explain_communicator<Whole>());

 public:
  /// The name of the communicator in messages.
  static constexpr std::string_view name = "hierarchical";
  /// True if elements of this type can be sent and reduced.
  template <class Element>
  static constexpr bool supports =
      Local::template supports<Element>&& Across::template supports<Element>&& Whole::template supports<Element>;

  /// Called by all ranks.
  /// @throws configuration_error if the parts do not belong to one job, or options are invalid or differ
  hierarchical(Local local, Across across, Whole whole, hierarchical_options options = {},
               std::source_location where = std::source_location::current())
      : parts_{std::make_unique<parts>(std::move(local), std::move(across), std::move(whole), options)} {
    check(where);
  }

  /// Refuses a copy at compile time: a communicator is moved or duplicated.
  template <class Argument>
  requires std::same_as<Argument, hierarchical&> hierarchical(Argument&& world) : hierarchical{std::move(world)} {
    static_assert(detail::explain_not_copied<Argument>());
  }

  /// This rank, counted from 0.
  [[nodiscard]] int rank() const noexcept { return parts_ == nullptr ? 0 : parts_->whole.rank(); }
  /// The number of ranks; 0 after a move.
  [[nodiscard]] int size() const noexcept { return parts_ == nullptr ? 0 : parts_->whole.size(); }

  /// The communicator of this node. @pre not moved from
  [[nodiscard]] Local& local() noexcept { return parts_->local; }
  /// The communicator of all ranks, in one level. @pre not moved from
  [[nodiscard]] Whole& whole() noexcept { return parts_->whole; }

  /// How long a wait takes at most.
  [[nodiscard]] std::chrono::milliseconds time_limit() const noexcept {
    return parts_ == nullptr ? default_time_limit : parts_->whole.time_limit();
  }
  /// Sets the time limit of later waits. @throws configuration_error unless it is above 0
  void set_time_limit(std::chrono::milliseconds limit) {
    detail::require_open(detail::caller{*this}, "set_time_limit", std::source_location::current());
    parts_->whole.set_time_limit(limit);
    parts_->local.set_time_limit(limit);
    parts_->across.set_time_limit(limit);
  }

  /// Begins a transfer; see `transfer`.
  [[nodiscard]] request begin(const transfer& one) {
    parts& p = *parts_;
    if (one.what.kind != call_kind::all_reduce) {
      return comm::begin(p.whole, one);
    }
    if (p.local.size() == p.whole.size()) {
      return comm::begin(p.local, one);
    }
    if (p.across.size() == p.whole.size()) {
      return comm::begin(p.across, one);
    }
    const detail::two_level_task task{.data = static_cast<std::byte*>(one.output),
                                      .count = one.what.count,
                                      .element = one.element,
                                      .operation = one.what.operation,
                                      .begin = &begin_stage};
    return p.queue.begin(task, p.blocks(task.count * task.element->bytes), p.options.segment_bytes);
  }

  /// Registers an array with Local if all ranks are on one node. Otherwise does nothing, because elements are copied
  /// between nodes anyway. See comm::register_memory.
  template <transferable Element>
  [[nodiscard]] registration_of<Local, Element> register_memory(std::span<Element> data) {
    detail::require_open(detail::caller{*this}, "register_memory", std::source_location::current());
    if (parts_->local.size() < parts_->whole.size()) {
      return {};
    }
    return comm::register_memory(parts_->local, data);
  }

  /// A communicator of the same ranks with separate messages. Called by all ranks.
  [[nodiscard]] hierarchical duplicate() {
    detail::require_open(detail::caller{*this}, "duplicate", std::source_location::current());
    hierarchical copy;
    copy.parts_ = std::make_unique<parts>(parts_->local.duplicate(), parts_->across.duplicate(),
                                          parts_->whole.duplicate(), parts_->options);
    copy.parts_->even = parts_->even;
    return copy;
  }

  /// Reports to all other ranks that this one has failed, and why.
  void fail(std::string_view reason) noexcept {
    if (parts_ != nullptr) {
      parts_->whole.fail(reason);
      parts_->local.fail(reason);
      parts_->across.fail(reason);
    }
  }

 private:
  friend class forwarding<hierarchical>;

  [[nodiscard]] Whole& inner() noexcept { return parts_->whole; }
  [[nodiscard]] const Whole& inner() const noexcept { return parts_->whole; }

  struct parts {
    parts(Local l, Across a, Whole w, const hierarchical_options& o)
        : local{std::move(l)}, across{std::move(a)}, whole{std::move(w)}, options{o}, queue{this} {}

    /// The number of blocks into which a piece of an array of `bytes` is split; 1 if the node uses a leader.
    [[nodiscard]] int blocks(index_t bytes) const noexcept {
      return even && bytes > options.leader_bytes ? local.size() : 1;
    }

    Local local;
    Across across;
    Whole whole;
    hierarchical_options options;
    bool even = true;  // true if all nodes have the same number of ranks
    detail::two_level_queue queue;
  };

  hierarchical() noexcept = default;

  /// Begins one stage of one piece.
  static request begin_stage(void* owner, detail::two_level_stage stage, const detail::two_level_segment& segment,
                             const detail::two_level_task& task) {
    parts& p = *static_cast<parts*>(owner);
    const bool by_leader = segment.block == nullptr;
    const transfer whole{.what = {.operation = task.operation, .count = segment.count, .element = task.element->name},
                         .input = segment.data,
                         .output = segment.data,
                         .element = task.element};
    transfer block = whole;
    block.what.count = segment.block_count;
    const auto as = [](transfer one, call_kind kind) {
      one.what.kind = kind;
      one.what.operation =
          kind == call_kind::broadcast || kind == call_kind::all_gather ? reduction::sum : one.what.operation;
      return one;
    };
    switch (stage) {
      case detail::two_level_stage::gather_in:
        if (by_leader) {
          return comm::begin(p.local, as(whole, call_kind::all_reduce));
        }
        block.output = segment.block;
        return comm::begin(p.local, as(block, call_kind::reduce_scatter));
      case detail::two_level_stage::across:
        if (by_leader) {
          return p.local.rank() == 0 ? comm::begin(p.across, as(whole, call_kind::all_reduce)) : request{};
        }
        block.input = block.output = segment.block;
        return comm::begin(p.across, as(block, call_kind::all_reduce));
      case detail::two_level_stage::spread_out:
        break;
    }
    if (by_leader) {
      return comm::begin(p.local, as(whole, call_kind::broadcast));
    }
    block.input = segment.block;
    return comm::begin(p.local, as(block, call_kind::all_gather));
  }

  void check(const std::source_location& where) {
    parts& p = *parts_;
    const auto largest = [&](std::int64_t value) {
      std::int64_t values[1] = {value};
      p.whole.all_reduce(std::span<std::int64_t>{values}, reduction::maximum).wait(where);
      return values[0];
    };
    const auto least = [&](std::int64_t value) { return -largest(-value); };
    // The number of leaders must be the number of nodes; the size of `across` the number of nodes with this index.
    std::int64_t nodes[1] = {p.local.rank() == 0 ? 1 : 0};
    p.whole.all_reduce(std::span<std::int64_t>{nodes}, reduction::sum).wait(where);
    const bool fits = p.local.size() >= 1 && p.across.size() >= 1 && p.across.size() <= nodes[0] &&
                      (p.local.rank() != 0 || p.across.size() == nodes[0]);
    if (least(fits ? 1 : 0) == 0) {
      gradus::raise<configuration_error>(
          name,
          {"`across` with the ranks of all nodes that have the same index in `local`; there are ", nodes[0], " nodes"},
          {"rank ", p.local.rank(), " of ", p.local.size(), " on its node, ", p.across.size(),
           " ranks across, on rank ", p.whole.rank()},
          "mpi_shared::split_by_node makes both", where);
    }
    p.even = least(p.local.size()) == largest(p.local.size());
    // nvcc rejects the list in the loop.
    const std::int64_t options[] = {p.options.segment_bytes, p.options.leader_bytes};
    for (const std::int64_t option : options) {
      const std::int64_t low = least(option);
      const std::int64_t high = largest(option);
      if (low != high || low < 0) {
        gradus::raise<configuration_error>(name, "the same options on all ranks, not negative",
                                           {low, low == high ? "" : " on one rank and a different number on another"},
                                           {}, where);
      }
    }
  }

  std::unique_ptr<parts> parts_;
};

}  // namespace gradus::comm

// SPDX-License-Identifier: BSL-1.0
//
// Collective algorithms of the library on top of the messages of any communicator.
#pragma once

#include <algorithm>        // std::max
#include <bit>              // std::has_single_bit
#include <chrono>           // std::chrono::milliseconds
#include <concepts>         // std::same_as
#include <cstddef>          // std::byte, std::size_t
#include <cstdint>          // std::uint64_t, std::uint8_t
#include <cstring>          // std::memcpy
#include <memory>           // std::make_shared, std::make_unique, std::shared_ptr, std::unique_ptr
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string>           // std::string
#include <string_view>      // std::string_view
#include <utility>          // std::as_const, std::move
#include <vector>           // std::vector

#include "gradus/comm/agreement.hpp"
#include "gradus/comm/all_reduce_rule.hpp"
#include "gradus/comm/call.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/detail/schedule/collectives.hpp"
#include "gradus/comm/detail/schedule/run.hpp"
#include "gradus/comm/forwarding.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/random.hpp"
#include "gradus/core/text.hpp"

namespace gradus::comm {

/// Options of `collectives`, the same on all ranks.
struct collectives_options {
  /// Algorithms of all_reduce by size. The default suits a network with latencies of some microseconds and bandwidths
  /// of gigabytes a second; see tune_all_reduce.
  std::vector<all_reduce_rule> all_reduce{
      {.algorithm = all_reduce_algorithm::recursive_doubling, .largest_bytes = 16 * 1024},
      {.algorithm = all_reduce_algorithm::binary_blocks, .largest_bytes = 1024 * 1024},
      {.algorithm = all_reduce_algorithm::ring}};
  /// Largest size of a message in bytes; long arrays are split so that receiving and combining overlap.
  index_t segment_bytes = 1024 * 1024;
  /// The node of each rank, counted from 0, for the hierarchical algorithms; empty: all ranks are on one node. See
  /// nodes_of_ranks.
  std::vector<int> node_of_rank{};
  /// Reduce-scatters add in pairs of neighbors, then pairs of these, and so on, as halving_doubling does, in place of a
  /// ring. The number of ranks has to be a power of two. See tree_ordered.
  bool scatter_in_pairs = false;
};

namespace detail {

/// The message schedules of a communicator's collectives, made on first use.
class schedule_book {
 public:
  struct key {
    call_kind kind = call_kind::barrier;
    all_reduce_algorithm algorithm = all_reduce_algorithm::native;
    int rings = 1;
    int root = 0;
    index_t count = 0;     ///< elements of the whole array
    index_t segment = 1;   ///< elements
    bool to_root = false;  ///< true: reduce; false: broadcast

    friend bool operator==(const key&, const key&) = default;
  };

  /// @throws configuration_error if node_of_rank does not have one node for each rank
  schedule_book(int rank, int size, std::span<const int> node_of_rank) : self_{rank} {
    for (int i = 0; i < size; ++i) {
      ranks_.push_back(i);
    }
    if (!node_of_rank.empty() && node_of_rank.size() != static_cast<std::size_t>(size)) {
      raise<configuration_error>("comm::collectives", {"a node for each of ", size, " ranks"}, {node_of_rank.size()});
    }
    dynamic_array<int> numbers;  // node numbers, in the order of their first ranks
    for (int i = 0; i < size; ++i) {
      const int node = node_of_rank.empty() ? 0 : node_of_rank[static_cast<std::size_t>(i)];
      std::size_t at = 0;
      while (at < numbers.size() && numbers[at] != node) {
        ++at;
      }
      if (at == numbers.size()) {
        numbers.push_back(node);
        nodes_.nodes.push_back({});
      }
      if (i == rank) {
        nodes_.own_node = static_cast<int>(at);
        nodes_.own_place = static_cast<int>(nodes_.nodes[at].size());
      }
      nodes_.nodes[at].push_back(i);
    }
  }

  [[nodiscard]] std::shared_ptr<const schedule> find(const key& wanted) {
    for (const entry& each : entries_) {
      if (each.what == wanted) {
        return each.plan;
      }
    }
    if (entries_.size() == most_entries) {
      entries_.clear();  // operations under way own their schedules
    }
    auto plan = std::make_shared<schedule>();
    plan->clear(wanted.segment);
    write(wanted, *plan);
    entries_.push_back({wanted, plan});
    return plan;
  }

 private:
  struct entry {
    key what;
    std::shared_ptr<const schedule> plan;
  };

  static constexpr std::size_t most_entries = 1024;
  static constexpr index_t short_array = 1 << 16;  // elements; above that, trees take longer than a ring

  void write(const key& wanted, schedule& plan) const {
    const rank_group all{{ranks_.data(), ranks_.size()}, self_};
    const element_range whole{0, wanted.count};
    switch (wanted.kind) {
      case call_kind::all_reduce:
        write_all_reduce(wanted, plan, all, whole);
        break;
      case call_kind::broadcast:
        if (wanted.to_root) {
          wanted.count > short_array&& all.size() > 2 ? add_gathered_reduce(plan, all, whole, wanted.root)
                                                      : add_tree_reduce(plan, all, whole, wanted.root);
        } else {
          wanted.count > short_array&& all.size() > 2 ? add_scattered_broadcast(plan, all, whole, wanted.root)
                                                      : add_tree_broadcast(plan, all, whole, wanted.root);
        }
        break;
      case call_kind::reduce_scatter:
        wanted.algorithm == all_reduce_algorithm::halving_doubling ? add_paired_reduce_scatter(plan, all, whole)
                                                                   : add_ring_reduce_scatter(plan, all, whole);
        break;
      case call_kind::all_gather:
        add_ring_all_gather(plan, all, whole);
        break;
      default:
        add_dissemination_barrier(plan, all);
        break;
    }
  }

  void write_all_reduce(const key& wanted, schedule& plan, const rank_group& all, const element_range& whole) const {
    switch (wanted.algorithm) {
      case all_reduce_algorithm::native:
      case all_reduce_algorithm::ring:
        add_ring_all_reduce(plan, all, whole, wanted.rings);
        break;
      case all_reduce_algorithm::halving_doubling:
        add_halving_doubling(plan, all, whole);
        break;
      case all_reduce_algorithm::binary_blocks:
        add_binary_blocks(plan, all, whole);
        break;
      case all_reduce_algorithm::recursive_doubling:
        add_recursive_doubling(plan, all, whole);
        break;
      case all_reduce_algorithm::tree:
        add_tree_reduce(plan, all, whole, 0);
        add_tree_broadcast(plan, all, whole, 0);
        break;
      case all_reduce_algorithm::hierarchical_ring:
        add_hierarchical(plan, nodes_, whole, true);
        break;
      case all_reduce_algorithm::hierarchical_halving_doubling:
        add_hierarchical(plan, nodes_, whole, false);
        break;
    }
  }

  int self_;
  dynamic_array<int> ranks_;
  node_map nodes_;
  dynamic_array<entry> entries_;
};

}  // namespace detail

/// Replaces the collectives of another communicator by algorithms over its send and receive. So the algorithm is known
/// and does not depend on that communicator's collectives.
///
///   collective     | algorithm
///   all_reduce     | by size: ring, halving-doubling, recursive doubling, hierarchical, ...; see all_reduce_algorithm
///   reduce_scatter | ring
///   all_gather     | ring
///   broadcast      | binomial tree; long arrays: scatter and ring
///   reduce         | binomial tree; long arrays: ring reduce-scatter and gather
///   barrier        | dissemination
///
/// For a given number of ranks and elements, the result is the same bits on all ranks and in every run. A collective
/// makes progress while its rank waits for or tests a collective of the same object. After the first of its size it
/// allocates nothing. If the base is a comm::recorded, its recorder receives the collectives and their messages.
///
/// @code
///   comm::collectives world{comm::mpi{environment}, {.all_reduce = comm::parse_all_reduce_spec("xring")}};
///   comm::all_reduce(world, gradients).wait();
/// @endcode
template <class Communicator>
class collectives : public forwarding<collectives<Communicator>> {
  static_assert(explain_communicator<Communicator>());

 public:
  /// The name of the communicator in messages.
  static constexpr std::string_view name = "collectives";
  /// True if elements of this type can be sent and reduced.
  template <class Element>
  static constexpr bool supports = transferable<Element>&& Communicator::template supports<Element>;

  /// Called by all ranks. Messages of collectives use a duplicate of the communicator.
  /// @throws configuration_error if options are invalid or differ between ranks
  explicit collectives(Communicator base, collectives_options options = {})
      : base_{std::move(base)}, options_{std::move(options)} {
    require_all_reduce_rules(options_.all_reduce);
    if (options_.segment_bytes < 1) {
      raise<configuration_error>("comm::collectives", "segment_bytes of at least 1", {options_.segment_bytes});
    }
    std::string nodes;
    for (const int each : options_.node_of_rank) {
      append_text(nodes, {nodes.empty() ? "" : " ", each});
    }
    require_agreement(base_, "comm::collectives",
                      {{"all_reduce", describe(options_.all_reduce)},
                       {"segment_bytes", std::to_string(options_.segment_bytes)},
                       {"node_of_rank", nodes}});
    if (options_.scatter_in_pairs && !std::has_single_bit(static_cast<unsigned>(base_.size()))) {
      raise<configuration_error>("comm::collectives", "a power of two of ranks to add in pairs", {base_.size()});
    }
    own_ = std::make_unique<parts>(base_.duplicate(), options_);
  }

  /// Refuses a copy at compile time: a communicator is moved or duplicated.
  template <class Argument>
  requires std::same_as<Argument, collectives&> collectives(Argument&& world) : collectives{std::move(world)} {
    static_assert(detail::explain_not_copied<Argument>());
  }

  /// The options of the constructor.
  [[nodiscard]] const collectives_options& options() const noexcept { return options_; }
  /// The underlying communicator.
  [[nodiscard]] Communicator& base() noexcept { return base_; }
  /// The recorder of the underlying communicator, if it has one.
  [[nodiscard]] auto& recorder() noexcept requires requires(Communicator& base) { base.recorder(); }
  { return base_.recorder(); }

  /// Sets the time limit of later waits. @throws configuration_error unless it is above 0
  void set_time_limit(std::chrono::milliseconds limit) {
    base_.set_time_limit(limit);
    own_->messages.set_time_limit(limit);
  }

  /// Begins an all-reduce; see comm::all_reduce.
  template <transferable Element>
  [[nodiscard]] request all_reduce(std::span<Element> data, reduction operation) {
    const auto count = static_cast<index_t>(data.size());
    const all_reduce_rule& rule = choose(options_.all_reduce, count, sizeof(Element));
    if (base_.size() == 1 || rule.algorithm == all_reduce_algorithm::native) {
      return base_.all_reduce(data, operation);
    }
    return begin<Element>(
        {.kind = call_kind::all_reduce, .operation = operation, .count = count},
        {.kind = call_kind::all_reduce, .algorithm = rule.algorithm, .rings = rule.rings, .count = count}, data.data(),
        own_->runs.idle());
  }

  /// Begins a broadcast; see comm::broadcast.
  template <transferable Element>
  [[nodiscard]] request broadcast(std::span<Element> data, int root) {
    if (base_.size() == 1) {
      return base_.broadcast(data, root);
    }
    const auto count = static_cast<index_t>(data.size());
    return begin<Element>({.kind = call_kind::broadcast, .peer = root, .count = count},
                          {.kind = call_kind::broadcast, .root = root, .count = count}, data.data(), own_->runs.idle());
  }

  /// Reduces the arrays of all ranks to rank `root`. On other ranks `output` is unchanged and may be empty.
  template <transferable Element>
  [[nodiscard]] request reduce(std::span<const Element> input, std::span<Element> output, int root,
                               reduction operation) {
    const detail::caller by{*this};
    detail::require_root(by, "reduce", root, std::source_location::current());
    const auto count = static_cast<index_t>(input.size());
    if (base_.rank() == root && output.size() != input.size()) {
      raise<shape_error>("comm::collectives.reduce", {"an output of ", count, " elements"}, {output.size()});
    }
    detail::schedule_run& run = own_->runs.idle();
    Element* const target =
        base_.rank() == root ? output.data() : reinterpret_cast<Element*>(run.staging(input.size_bytes()));
    copy(target, input);
    if (base_.size() == 1) {
      return base_.broadcast(output, 0);
    }
    return begin<Element>({.kind = call_kind::broadcast, .operation = operation, .peer = root, .count = count},
                          {.kind = call_kind::broadcast, .root = root, .count = count, .to_root = true}, target, run);
  }

  /// Begins a reduce-scatter; see comm::reduce_scatter.
  template <transferable Element>
  [[nodiscard]] request reduce_scatter(std::span<const Element> input, std::span<Element> output, reduction operation) {
    if (base_.size() == 1) {
      return base_.reduce_scatter(input, output, operation);
    }
    const auto count = static_cast<index_t>(input.size());
    detail::schedule_run& run = own_->runs.idle();
    auto* const work = reinterpret_cast<Element*>(run.staging(input.size_bytes()));
    copy(work, input);
    return begin<Element>(
        {.kind = call_kind::reduce_scatter, .operation = operation, .count = static_cast<index_t>(output.size())},
        {.kind = call_kind::reduce_scatter,
         .algorithm = options_.scatter_in_pairs ? all_reduce_algorithm::halving_doubling : all_reduce_algorithm::native,
         .count = count},
        work, run,
        {.to = output.data(),
         .from = work + static_cast<std::size_t>(base_.rank()) * output.size(),
         .bytes = output.size_bytes()});
  }

  /// Begins an all-gather; see comm::all_gather.
  template <transferable Element>
  [[nodiscard]] request all_gather(std::span<const Element> input, std::span<Element> output) {
    if (base_.size() == 1) {
      return base_.all_gather(input, output);
    }
    copy(output.data() + static_cast<std::size_t>(base_.rank()) * input.size(), input);
    return begin<Element>({.kind = call_kind::all_gather, .count = static_cast<index_t>(input.size())},
                          {.kind = call_kind::all_gather, .count = static_cast<index_t>(output.size())}, output.data(),
                          own_->runs.idle());
  }

  /// Begins a barrier; see comm::barrier.
  [[nodiscard]] request barrier() {
    if (base_.size() == 1) {
      return base_.barrier();
    }
    return begin<std::uint8_t>({.kind = call_kind::barrier}, {}, static_cast<std::uint8_t*>(nullptr),
                               own_->runs.idle());
  }

  /// A communicator of the same ranks and options with separate messages. Called by all ranks.
  [[nodiscard]] collectives duplicate() { return collectives{base_.duplicate(), options_}; }

 private:
  friend class forwarding<collectives>;

  [[nodiscard]] Communicator& inner() noexcept { return base_; }
  [[nodiscard]] const Communicator& inner() const noexcept { return base_; }

  struct parts {
    parts(Communicator own, const collectives_options& options)
        : messages{std::move(own)}, book{messages.rank(), messages.size(), options.node_of_rank} {}

    Communicator messages;
    detail::byte_channel_of<Communicator> channel{messages};
    detail::schedule_runs runs{channel};
    detail::schedule_book book;
  };

  template <class Element>
  request begin(call_description what, detail::schedule_book::key key, Element* data, detail::schedule_run& run,
                const detail::final_copy& result = {}) {
    what.element = element_name<Element>;
    key.segment = std::max<index_t>(options_.segment_bytes / static_cast<index_t>(sizeof(Element)), 1);
    auto* const bytes = reinterpret_cast<std::byte*>(data);
    const auto begin_run = [&, this] {
      return run.begin(what, own_->book.find(key), bytes, detail::arithmetic_of<Element>(), base_.time_limit(), result);
    };
    const std::span<const std::byte> memory{bytes, static_cast<std::size_t>(key.count) * sizeof(Element)};
    if constexpr (requires { own_->messages.template watch<Element>(what, memory, begin_run); }) {
      return own_->messages.template watch<Element>(what, memory, begin_run);
    } else {
      return begin_run();
    }
  }

  template <class Element>
  static void copy(Element* to, std::span<const Element> from) noexcept {
    if (!from.empty() && to != from.data()) {
      std::memcpy(to, from.data(), from.size_bytes());
    }
  }

  Communicator base_;
  collectives_options options_;
  std::unique_ptr<parts> own_;
};
static_assert(communicator<collectives<self>>);

/// A number for each rank, the same for ranks with the same text `node` (e.g. the host name). Called by all ranks.
template <class Communicator>
[[nodiscard]] std::vector<int> nodes_of_ranks(Communicator& communicator, std::string_view node) {
  const std::uint64_t own = gradus::detail::hash_text(node);
  std::vector<std::uint8_t> bytes(sizeof(own) * static_cast<std::size_t>(communicator.size()));
  std::uint8_t mine[sizeof(own)];
  std::memcpy(mine, &own, sizeof(own));
  comm::all_gather(communicator, std::span{std::as_const(mine)}, bytes).wait();
  std::vector<int> nodes(static_cast<std::size_t>(communicator.size()));
  int count = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    nodes[i] = -1;
    for (std::size_t j = 0; j < i && nodes[i] < 0; ++j) {
      if (std::memcmp(&bytes[sizeof(own) * i], &bytes[sizeof(own) * j], sizeof(own)) == 0) {
        nodes[i] = nodes[j];
      }
    }
    if (nodes[i] < 0) {
      nodes[i] = count++;
    }
  }
  return nodes;
}

}  // namespace gradus::comm

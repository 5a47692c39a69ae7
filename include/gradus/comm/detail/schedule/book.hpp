// SPDX-License-Identifier: BSL-1.0
//
// The message schedules of the collectives of some ranks of a communicator.
#pragma once

#include <cstddef>  // std::size_t
#include <memory>   // std::make_shared, std::shared_ptr
#include <span>     // std::span
#include <utility>  // std::move

#include "gradus/comm/all_reduce_rule.hpp"
#include "gradus/comm/call.hpp"
#include "gradus/comm/detail/schedule/collectives.hpp"
#include "gradus/comm/detail/schedule/schedule.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/index.hpp"

namespace gradus::comm::detail {

/// The message schedules of the collectives of some ranks of a communicator, made on first use.
class schedule_book {
 public:
  struct key {
    call_kind kind = call_kind::barrier;
    all_reduce_algorithm algorithm = all_reduce_algorithm::native;
    int rings = 1;
    int root = 0;          ///< a position
    index_t count = 0;     ///< elements of the whole array
    index_t segment = 1;   ///< elements
    bool to_root = false;  ///< true: reduce; false: broadcast

    friend bool operator==(const key&, const key&) = default;
  };

  /// @param ranks         the ranks of the communicator that take part, in their order
  /// @param self          the position of this rank among them
  /// @param node_of_rank  the node of each of them; empty: all are on one node
  schedule_book(dynamic_array<int> ranks, int self, std::span<const int> node_of_rank);

  /// The number of ranks that take part.
  [[nodiscard]] int size() const noexcept { return static_cast<int>(ranks_.size()); }
  /// The position of this rank among them.
  [[nodiscard]] int self() const noexcept { return self_; }
  /// The rank of the communicator at a position.
  [[nodiscard]] int rank(int position) const noexcept { return ranks_[static_cast<std::size_t>(position)]; }

  [[nodiscard]] std::shared_ptr<const schedule> find(const key& wanted);

 private:
  struct entry {
    key what;
    std::shared_ptr<const schedule> plan;
  };

  static constexpr std::size_t most_entries = 1024;
  static constexpr index_t short_array = 1 << 16;  // elements; above that, trees take longer than a ring

  void write(const key& wanted, schedule& plan) const;

  void write_all_reduce(const key& wanted, schedule& plan, const rank_group& all, const element_range& whole) const;

  int self_;
  dynamic_array<int> ranks_;
  node_map nodes_;
  dynamic_array<entry> entries_;
};

}  // namespace gradus::comm::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::comm::detail {

GRADUS_INLINE_CONSTRUCTOR schedule_book::schedule_book(dynamic_array<int> ranks, int self,
                                                       std::span<const int> node_of_rank)
    : self_{self}, ranks_{std::move(ranks)} {
  dynamic_array<int> numbers;  // node numbers, in the order of their first ranks
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const int node = node_of_rank.empty() ? 0 : node_of_rank[i];
    std::size_t at = 0;
    while (at < numbers.size() && numbers[at] != node) {
      ++at;
    }
    if (at == numbers.size()) {
      numbers.push_back(node);
      nodes_.nodes.push_back({});
    }
    if (static_cast<int>(i) == self) {
      nodes_.own_node = static_cast<int>(at);
      nodes_.own_position = static_cast<int>(nodes_.nodes[at].size());
    }
    nodes_.nodes[at].push_back(ranks_[i]);
  }
}

GRADUS_INLINE std::shared_ptr<const schedule> schedule_book::find(const key& wanted) {
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

GRADUS_INLINE void schedule_book::write(const key& wanted, schedule& plan) const {
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

GRADUS_INLINE void schedule_book::write_all_reduce(const key& wanted, schedule& plan, const rank_group& all,
                                                   const element_range& whole) const {
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

}  // namespace gradus::comm::detail
#endif

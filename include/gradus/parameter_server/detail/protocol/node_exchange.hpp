// SPDX-License-Identifier: BSL-1.0
//
// The workers of a node: their gradients are added, and the first of them hands values to the others.
#pragma once

#include <chrono>           // std::chrono::milliseconds
#include <cstddef>          // std::size_t
#include <cstdint>          // std::int32_t, std::uint8_t
#include <source_location>  // std::source_location
#include <span>             // std::as_writable_bytes, std::span
#include <vector>           // std::vector

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/reduction.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/index.hpp"

namespace gradus::parallel::detail {

/// The node of each rank, counted in the order of their first ranks. Called by all ranks.
/// @pre the communicator knows its nodes
[[nodiscard]] inline std::vector<int> nodes_of_ranks(comm::link& all) {
  const auto size = static_cast<std::size_t>(all.size());
  std::int32_t first[1] = {all.rank()};
  all.node()->broadcast(std::as_writable_bytes(std::span{first}), 0);
  dynamic_array<std::int32_t> firsts(size);
  all.all_gather({reinterpret_cast<const std::uint8_t*>(first), sizeof(first)},
                 {reinterpret_cast<std::uint8_t*>(firsts.data()), size * sizeof(first)});
  std::vector<int> nodes;
  int known = 0;
  for (std::size_t rank = 0; rank < size; ++rank) {
    const auto leader = static_cast<std::size_t>(firsts[rank]);
    nodes.push_back(leader < rank ? nodes[leader] : known++);
  }
  return nodes;
}

/// The workers of one node, of which the first leads. A rank that needs another one waits longer than that one does, so
/// that all ranks report the rank that is missing: the leader waits for its node for half the time limit, the others
/// for twice the limit.
///
/// Through the node's own communicator, e.g. shared memory, all ranks of the node add at the same time. Where the
/// communicator does not know its nodes, the leader adds the gradients in the order of the workers, which send them.
template <class Element>
class node_exchange {
 public:
  /// Called by the workers; where the communicator does not know its nodes by all ranks, servers alone included
  /// (`join_without`).
  /// @param mates     the node's workers, by rank; empty on a rank that is none
  /// @param elements  of the gradients
  /// @pre the ranks of the communicator's node, if it knows them, are `mates`, in this order
  node_exchange(comm::any_communicator& communicator, std::span<const int> mates, std::size_t elements)
      : together_{communicator.link().properties().knows_nodes},
        channel_{together_ ? communicator.link().node() : communicator.link().duplicate()},
        leads_{together_ ? channel_.rank() == 0 : !mates.empty() && mates.front() == communicator.rank()} {
    for (const int each : mates) {
      mates_.push_back(each);
    }
    if (!together_ && leads_ && mates_.size() > 1) {
      incoming_ = dynamic_array<Element>(elements);
    }
    const std::chrono::milliseconds limit = channel_.time_limit();
    channel_.set_time_limit(leads_ ? (limit + std::chrono::milliseconds{1}) / 2 : limit * 2);
  }

  /// What a rank calls that is no worker, when the others make a node_exchange.
  static void join_without(comm::any_communicator& communicator) {
    if (!communicator.link().properties().knows_nodes) {
      static_cast<void>(communicator.duplicate());
    }
  }

  [[nodiscard]] bool leads() const noexcept { return leads_; }

  /// The leader's gradients become the node's sums.
  void add(std::span<Element> gradients, const std::source_location& where) {
    if (together_) {
      comm::all_reduce(channel_, gradients, comm::reduction::sum, where).wait(where);
      return;
    }
    if (!leads_) {
      comm::send(channel_, mates_[0], gradients, 0, where).wait(where);
      return;
    }
    for (std::size_t i = 1; i < mates_.size(); ++i) {
      comm::receive(channel_, mates_[i], std::span{incoming_.data(), incoming_.size()}, 0, where).wait(where);
      comm::detail::accumulate(comm::reduction::sum, gradients.data(), incoming_.data(),
                               static_cast<index_t>(gradients.size()));
    }
  }

  /// All get the leader's values.
  void hand_out(std::span<Element> values, const std::source_location& where) {
    if (together_) {
      comm::broadcast(channel_, values, 0, where).wait(where);
      return;
    }
    if (!leads_) {
      comm::receive(channel_, mates_[0], values, 1, where).wait(where);
      return;
    }
    for (std::size_t i = 1; i < mates_.size(); ++i) {
      comm::send(channel_, mates_[i], values, 1, where).wait(where);
    }
  }

 private:
  bool together_;  // the channel has the ranks of the node, else all ranks
  comm::any_communicator channel_;
  dynamic_array<int> mates_;
  dynamic_array<Element> incoming_;  // another worker's gradients
  bool leads_;
};

}  // namespace gradus::parallel::detail

// SPDX-License-Identifier: BSL-1.0
//
// The workers of a node: their gradients are added, and the first of them hands values to the others.
#pragma once

#include <chrono>           // std::chrono::milliseconds
#include <cstddef>          // std::size_t
#include <cstdint>          // std::int32_t
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string_view>      // std::string_view
#include <type_traits>      // std::remove_reference_t
#include <utility>          // std::declval
#include <vector>           // std::vector

#include "gradus/comm/communicator.hpp"
#include "gradus/comm/reduction.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/index.hpp"

namespace gradus::parallel::detail {

/// A communicator that knows its nodes, as comm::hierarchical does: local() has the ranks of this node, whole() all.
template <class Communicator>
concept has_nodes = requires(Communicator& communicator) {
  communicator.local().rank();
  communicator.whole().rank();
};

template <class Communicator>
concept names_nodes = requires {
  &Communicator::local;
}
|| requires {
  &Communicator::whole;
};

/// The communicator among all ranks.
template <class Communicator>
[[nodiscard]] auto& whole_of(Communicator& communicator) noexcept {
  static_assert(!names_nodes<Communicator> || has_nodes<Communicator>,
                "gradus: the nodes of this communicator would not be used: give it both local(), the communicator of "
                "this rank's node, and whole(), that of all ranks");
  if constexpr (has_nodes<Communicator>) {
    return communicator.whole();
  } else {
    return communicator;
  }
}

template <class Communicator>
using whole_type = std::remove_reference_t<decltype(whole_of(std::declval<Communicator&>()))>;

/// The node of each rank, counted in the order of their first ranks. Called by all ranks.
template <has_nodes Communicator>
[[nodiscard]] std::vector<int> nodes_of_ranks(Communicator& communicator) {
  std::int32_t first[1] = {communicator.whole().rank()};
  comm::broadcast(communicator.local(), first, 0).wait();
  std::vector<std::int32_t> firsts(static_cast<std::size_t>(communicator.whole().size()));
  comm::all_gather(communicator.whole(), std::span<const std::int32_t>{first}, firsts).wait();
  std::vector<int> nodes;
  int known = 0;
  for (std::size_t rank = 0; rank < firsts.size(); ++rank) {
    const auto leader = static_cast<std::size_t>(firsts[rank]);
    nodes.push_back(leader < rank ? nodes[leader] : known++);
  }
  return nodes;
}

/// The workers of one node, of which the first leads. A rank that needs another one waits longer than that one does, so
/// that all ranks report the rank that is missing: the leader waits for its node for half the time limit, the others
/// for twice the limit.
/// Messages between any two: the leader adds the gradients in the order of the workers.
template <class Element, class Communicator>
class node_exchange {
 public:
  /// Called by all ranks, servers alone included (`join_without`).
  /// @param mates     the node's workers, by rank; empty on a rank that is none
  /// @param elements  of the gradients
  node_exchange(Communicator& communicator, std::span<const int> mates, std::size_t elements)
      : channel_{communicator.duplicate()}, leads_{!mates.empty() && mates.front() == communicator.rank()} {
    for (const int each : mates) {
      mates_.push_back(each);
    }
    if (leads_ && mates_.size() > 1) {
      incoming_ = dynamic_array<Element>(elements);
    }
    set_limit(channel_, leads_);
  }

  /// What a rank calls that is no worker, when the others make a node_exchange.
  static void join_without(Communicator& communicator) { static_cast<void>(communicator.duplicate()); }

  [[nodiscard]] bool leads() const noexcept { return leads_; }

  /// The leader's gradients become the node's sums.
  void add(std::span<Element> gradients, const std::source_location& where) {
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
    if (!leads_) {
      comm::receive(channel_, mates_[0], values, 1, where).wait(where);
      return;
    }
    for (std::size_t i = 1; i < mates_.size(); ++i) {
      comm::send(channel_, mates_[i], values, 1, where).wait(where);
    }
  }

  template <class Channel>
  static void set_limit(Channel& channel, bool leads) {
    const std::chrono::milliseconds limit = channel.time_limit();
    channel.set_time_limit(leads ? (limit + std::chrono::milliseconds{1}) / 2 : limit * 2);
  }

 private:
  Communicator channel_;
  dynamic_array<int> mates_;
  dynamic_array<Element> incoming_;  // another worker's gradients
  bool leads_;
};

/// Through the node's own communicator, e.g. shared memory: all ranks of the node add at the same time.
template <class Element, has_nodes Communicator>
class node_exchange<Element, Communicator> {
 public:
  /// Called by the workers. @pre the node's ranks are `mates`, in this order
  node_exchange(Communicator& communicator, std::span<const int> /*mates*/, std::size_t /*elements*/)
      : node_{communicator.local().duplicate()} {
    node_exchange<Element, whole_type<Communicator>>::set_limit(node_, leads());
  }

  static void join_without(Communicator& /*communicator*/) noexcept {}

  [[nodiscard]] bool leads() const noexcept { return node_.rank() == 0; }

  void add(std::span<Element> gradients, const std::source_location& where) {
    comm::all_reduce(node_, gradients, comm::reduction::sum, where).wait(where);
  }

  void hand_out(std::span<Element> values, const std::source_location& where) {
    comm::broadcast(node_, values, 0, where).wait(where);
  }

 private:
  std::remove_reference_t<decltype(std::declval<Communicator&>().local())> node_;
};

}  // namespace gradus::parallel::detail

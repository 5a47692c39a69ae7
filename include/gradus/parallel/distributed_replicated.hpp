// SPDX-License-Identifier: BSL-1.0
//
// Parameter servers for nodes of several workers: gradients are added on a node before they travel.
// Module: parallel. Depends on: optim, comm.
#pragma once

#include <cstddef>          // std::size_t
#include <cstdint>          // std::uint8_t
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string>           // std::string
#include <string_view>      // std::string_view
#include <vector>           // std::vector

#include "gradus/comm/any_group.hpp"                // any_group
#include "gradus/comm/communicator.hpp"             // communicator
#include "gradus/comm/reduction.hpp"                // detail::accumulate
#include "gradus/core/config.hpp"                   // GRADUS_COLD, GRADUS_NEVER_INLINE
#include "gradus/core/error.hpp"                    // configuration_error, raise
#include "gradus/core/index.hpp"                    // index_t
#include "gradus/core/text.hpp"                     // append
#include "gradus/core/vector.hpp"                   // vector
#include "gradus/parallel/detail/server_links.hpp"  // messages_on
#include "gradus/parallel/detail/worker_group.hpp"  // worker_group
#include "gradus/parallel/parameter_server.hpp"     // parameter_server, serve
#include "gradus/parallel/roles.hpp"                // roles
#include "gradus/parallel/synchronization.hpp"      // flat_parameters, synchronization

namespace gradus::parallel {

namespace detail {

template <class Element, class Communicator>
class distributed_replicated_state;

}  // namespace detail

/// Every worker keeps a copy of the variables, servers hold the master and the optimizer's state. The gradients of the
/// workers of a node are added by the first of them, which alone speaks with the servers, and hands their values to the
/// others: a node's gradients and values cross the network once, however many workers it has.
///
/// Servers, placement, modes and failures are those of parameter_server, of which the first worker of each node is a
/// worker; in modes that survive lost workers a node is lost as a whole, and a push is the mean over a node's examples
/// if all nodes have as many workers. Synchronous, it is the update of one process.
///
/// A rank that is a server alone calls `serve`, as with parameter_server.
struct distributed_replicated {
  static constexpr std::string_view name = "distributed_replicated";

  /// Of the servers. Its `who`, if given, names all workers; overlap_forward is not for this strategy.
  parameter_server master{};
  /// The node of each rank: nodes_of of parallel/hosts.hpp makes it. Empty: ranks_per_node of them after each other.
  std::vector<int> node_of_rank{};
  int ranks_per_node = 1;

  /// All workers and the servers. @throws configuration_error when it does not fit
  [[nodiscard]] GRADUS_COLD roles roles_among(int ranks) const {
    if (ranks_per_node < 1 || (!node_of_rank.empty() && node_of_rank.size() != static_cast<std::size_t>(ranks))) {
      raise<configuration_error>("parallel::distributed_replicated",
                                 {"the node of each of ", ranks, " ranks, or ranks_per_node of at least 1"},
                                 {node_of_rank.size(), " nodes and ", ranks_per_node, " ranks_per_node"});
    }
    return master.roles_among(ranks);
  }

  [[nodiscard]] int node_of(int rank) const {
    return node_of_rank.empty() ? rank / ranks_per_node : node_of_rank[static_cast<std::size_t>(rank)];
  }

  /// The workers of a worker's node; the first of them speaks with the servers.
  [[nodiscard]] GRADUS_COLD std::vector<int> node_mates(const roles& who, int rank) const {
    std::vector<int> mates;
    for (const int each : who.workers) {
      if (node_of(each) == node_of(rank)) {
        mates.push_back(each);
      }
    }
    return mates;
  }

  /// The servers' view: the first worker of each node is a worker.
  [[nodiscard]] GRADUS_COLD parameter_server of_nodes(int ranks) const {
    const roles who = roles_among(ranks);
    parameter_server result = master;
    result.who = {.workers = {}, .servers = who.servers};
    for (const int each : who.workers) {
      if (node_mates(who, each).front() == each) {
        result.who.workers.push_back(each);
      }
    }
    return result;
  }

  /// Whether this rank is a server and no worker: it calls `serve` and makes no trainer.
  template <class Communicator>
  [[nodiscard]] bool is_server_only(const Communicator& communicator) const {
    return roles_among(communicator.size()).worker_index(communicator.rank()) < 0;
  }

  template <class Element, class Communicator>
  using state = detail::distributed_replicated_state<Element, Communicator>;
};

namespace detail {

/// @throws configuration_error when options do not go together
[[nodiscard]] GRADUS_COLD inline distributed_replicated checked(const distributed_replicated& options,
                                                                const roles& who) {
  if (options.master.overlap_forward) {
    raise<configuration_error>("parallel::distributed_replicated", "a master without overlap_forward",
                               "one with overlap_forward", "a node's values come together; staged hides their way");
  }
  for (const int server : who.servers) {
    if (who.worker_index(server) >= 0 && options.node_mates(who, server).front() != server) {
      raise<configuration_error>("parallel::distributed_replicated",
                                 "servers on ranks of their own, or beside the first worker of a node",
                                 {"one beside rank ", server}, "name them by master.who");
    }
  }
  return options;
}

template <class Element, class Communicator>
class distributed_replicated_state {
 public:
  /// Called by all ranks: workers here, servers of their own in `serve`.
  /// @throws configuration_error when options make no sense
  distributed_replicated_state(const distributed_replicated& options, Communicator& communicator,
                               const flat_parameters<Element>& parameters)
      : who_{options.roles_among(communicator.size())},
        options_{checked(options, who_)},
        parameters_{parameters},
        mates_{options_.node_mates(who_, communicator.rank())},
        node_{communicator.duplicate()},
        group_channel_{communicator.duplicate()},
        group_{group_channel_, who_},
        leads_{!mates_.empty() && mates_.front() == communicator.rank()},
        incoming_(leads_ && mates_.size() > 1 ? parameters.gradients.size() : 0),
        master_{options_.of_nodes(communicator.size()), communicator, parameters, true} {}

  template <class Rule>
  void use_rule(const Rule& rule) {
    master_.use_rule(rule);
  }

  void start() {
    master_.start();
    hand_out_values();
    if (options_.master.settings().survives_lost_workers()) {
      group_.set_independent();
    }
  }

  void gradients_ready(std::size_t /*first*/, std::size_t /*count*/) noexcept {}

  /// The node's gradients are added and go to the servers.
  GRADUS_NEVER_INLINE void end_of_step(double learning_rate,
                                       std::source_location where = std::source_location::current()) {
    if (!leads_) {
      node_.send(mates_.front(), as_bytes(parameters_.gradients), 0).wait(where);
      return;
    }
    for (std::size_t i = 1; i < mates_.size(); ++i) {
      node_.receive(mates_[i], as_bytes(std::span{incoming_.data(), incoming_.size()}), 0).wait(where);
      comm::detail::accumulate(comm::reduction::sum, parameters_.gradients.data(), incoming_.data(),
                               static_cast<index_t>(incoming_.size()));
    }
    master_.gradients_ready(0, parameters_.segments.size());
    master_.end_of_step(learning_rate, where);
  }

  /// Waits for the values; the update has been made elsewhere.
  template <class Update>
  void finish(const Update& update) {
    if (leads_) {
      master_.finish(update);
    }
    hand_out_values();
  }

  /// The values become the newest that were asked for. Called by all workers.
  void complete() {
    if (options_.master.staged && stale_) {
      if (leads_) {
        master_.complete();
      }
      hand_out_values();
      stale_ = false;
    }
  }

  /// All workers.
  [[nodiscard]] comm::any_group& group() noexcept { return group_; }
  [[nodiscard]] const parameter_server_plan& plan() const noexcept { return master_.plan(); }

  /// What each server has done so far. For a worker that is the first of its node, between steps.
  [[nodiscard]] std::vector<server_summary> summary() { return master_.summary(); }

  [[nodiscard]] GRADUS_COLD std::string describe() const {
    std::string text = gradus::detail::text({distributed_replicated::name, ", nodes of workers:"});
    for (const int each : who_.workers) {
      gradus::detail::append(text, {" ", options_.node_of(each)});
    }
    gradus::detail::append(text, {"\n", master_.describe()});
    return text;
  }

 private:
  static std::span<std::uint8_t> as_bytes(std::span<Element> elements) noexcept {
    return {reinterpret_cast<std::uint8_t*>(elements.data()), elements.size_bytes()};
  }

  void hand_out_values(const std::source_location& where = std::source_location::current()) {
    stale_ = true;
    if (!leads_) {
      node_.receive(mates_.front(), as_bytes(parameters_.values), 1).wait(where);
      return;
    }
    for (std::size_t i = 1; i < mates_.size(); ++i) {
      node_.send(mates_[i], as_bytes(parameters_.values), 1).wait(where);
    }
  }

  roles who_;
  distributed_replicated options_;
  flat_parameters<Element> parameters_;
  std::vector<int> mates_;                   // workers of this node
  messages_on<Communicator> node_;           // of a node's workers
  messages_on<Communicator> group_channel_;  // of all workers
  worker_group group_;
  bool leads_;
  bool stale_ = false;                        // staged: a step has been made since the newest values came
  gradus::detail::vector<Element> incoming_;  // another worker's gradients
  parameter_server_state<Element, Communicator> master_;
};

}  // namespace detail

static_assert(synchronization<distributed_replicated>);

/// As serve of parameter_server, for a rank that is a server alone.
template <class Element, class Communicator, class Rule>
GRADUS_COLD server_summary serve(Communicator& communicator, const Rule& rule, const distributed_replicated& options) {
  const Communicator of_nodes{communicator.duplicate()};  // workers use them without this rank
  const Communicator of_workers{communicator.duplicate()};
  return serve<Element>(communicator, rule, options.of_nodes(communicator.size()));
}

}  // namespace gradus::parallel

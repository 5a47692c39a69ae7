// SPDX-License-Identifier: BSL-1.0
//
// Parameter servers for nodes of several workers: gradients are added on a node before they travel.
#pragma once

#include <cstddef>          // std::size_t
#include <cstdint>          // std::uint64_t
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string>           // std::string
#include <string_view>      // std::string_view
#include <vector>           // std::vector

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/parallel/strategy.hpp"
#include "gradus/parameter_server/detail/protocol/links.hpp"
#include "gradus/parameter_server/detail/protocol/node_exchange.hpp"
#include "gradus/parameter_server/detail/protocol/star_communicator.hpp"
#include "gradus/parameter_server/parameter_server.hpp"
#include "gradus/parameter_server/roles.hpp"
#include "gradus/parameter_server/summary.hpp"

namespace gradus::parallel {

namespace detail {

template <class Element>
class distributed_replicated_state;

}  // namespace detail

/// Every worker keeps a copy of the variables, servers hold the master and the optimizer's state. The gradients of the
/// workers of a node are added by the first of them. Only this one exchanges messages with the servers, and it gives
/// the values to the others: a node's gradients and values cross the network once, however many workers it has.
///
/// A communicator that knows its nodes, comm::hierarchical, adds and hands out by its local one, e.g. in shared memory;
/// servers on ranks of their own are then nodes of their own. With any other a node's ranks exchange messages.
///
/// Servers, placement, modes and failures (a worker waits for the first one of its node twice as long as that waits for
/// the servers) are those of parameter_server, of which the first worker of each node is a worker; in modes that
/// survive lost workers a node is lost as a whole, and a push is the mean over a node's examples if all nodes have as
/// many workers. Synchronous, it is the update of one process.
///
/// A rank that is only a server calls `serve`, as with parameter_server.
struct distributed_replicated {
  /// The name of the strategy in messages.
  static constexpr std::string_view name = "distributed_replicated";

  /// Of the servers. Its `who`, if given, names all workers; overlap_forward is not for this strategy.
  parameter_server master{};
  /// The node of each rank: comm::nodes_of_ranks makes it. Empty: ranks_per_node of them after each other, or those of
  /// the communicator, if it knows its nodes.
  std::vector<int> node_of_rank{};
  /// Without node_of_rank: rank r is on node r / ranks_per_node. Stays 1 with a communicator that knows its nodes.
  int ranks_per_node = 1;

  /// All workers and the servers. @throws configuration_error when it does not fit
  [[nodiscard]] roles roles_among(int ranks) const {
    if (ranks_per_node < 1 || (!node_of_rank.empty() && node_of_rank.size() != static_cast<std::size_t>(ranks))) {
      raise<configuration_error>("parallel::distributed_replicated",
                                 {"the node of each of ", ranks, " ranks, or ranks_per_node of at least 1"},
                                 {node_of_rank.size(), " nodes and ", ranks_per_node, " ranks_per_node"});
    }
    return master.roles_among(ranks);
  }

  /// The index of a rank's node. @pre node_of_rank is empty or has an entry for the rank
  [[nodiscard]] int node_of(int rank) const {
    return node_of_rank.empty() ? rank / ranks_per_node : node_of_rank[static_cast<std::size_t>(rank)];
  }

  /// The workers of a worker's node; the first of them speaks with the servers.
  [[nodiscard]] std::vector<int> node_mates(const roles& who, int rank) const {
    std::vector<int> mates;
    for (const int each : who.workers) {
      if (node_of(each) == node_of(rank)) {
        mates.push_back(each);
      }
    }
    return mates;
  }

  /// The servers' view: the first worker of each node is a worker.
  [[nodiscard]] parameter_server of_nodes(int ranks) const {
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
  [[nodiscard]] bool is_server_only(const comm::any_communicator& communicator) const {
    return roles_among(communicator.size()).worker_index(communicator.rank()) < 0;
  }

  /// The object of one rank that brings its gradients together; see gradient_strategy.
  template <class Element>
  using state = detail::distributed_replicated_state<Element>;
};

namespace detail {

/// @throws configuration_error when options do not go together
[[nodiscard]] inline distributed_replicated checked(const distributed_replicated& options, const roles& who) {
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

/// The options with the nodes of the communicator, if it knows them. Called by all ranks.
/// @throws configuration_error when options and communicator do not go together
[[nodiscard]] inline distributed_replicated with_nodes(distributed_replicated options,
                                                       comm::any_communicator& communicator) {
  if (const std::string_view name = communicator.link().properties().name;
      communicator.link().properties().knows_nodes) {
    if (!options.node_of_rank.empty() || options.ranks_per_node != 1) {
      raise<configuration_error>(
          "parallel::distributed_replicated",
          {"no node_of_rank and no ranks_per_node with '", name, "', which knows its nodes"},
          {options.node_of_rank.size(), " nodes and ", options.ranks_per_node, " ranks_per_node"});
    }
    options.node_of_rank = nodes_of_ranks(communicator.link());
    const roles who = options.roles_among(communicator.size());
    for (const int server : who.servers) {
      if (who.worker_index(server) < 0 && !options.node_mates(who, server).empty()) {
        raise<configuration_error>(
            "parallel::distributed_replicated", {"servers alone in nodes of their own, with '", name, "'"},
            {"server rank ", server, " in the node of worker ", options.node_mates(who, server).front()},
            "split their ranks from the node's communicator, or place them beside workers");
      }
    }
  }
  return options;
}

template <class Element>
class distributed_replicated_state final : public server_strategy<Element> {
 public:
  /// Called by all ranks: workers here, servers of their own in `serve`.
  /// @throws configuration_error when options make no sense
  distributed_replicated_state(const distributed_replicated& options, comm::any_communicator communicator,
                               const flat_parameters<Element>& parameters)
      : who_{options.roles_among(communicator.size())},
        options_{checked(with_nodes(options, communicator), who_)},
        parameters_{parameters},
        node_{communicator, options_.node_mates(who_, communicator.rank()), parameters.gradients.size()},
        group_channel_{communicator.duplicate()},
        group_{group_channel_.link(), who_},
        master_{options_.of_nodes(communicator.size()), communicator, parameters, true} {}

  void use(optim::parameter_update<Element>& rule) override { master_.use(rule); }

  void start() override {
    master_.start();
    hand_out_values();
    if (options_.master.settings().survives_lost_workers()) {
      group_.set_independent();
    }
  }

  /// The node's gradients are added and go to the servers.
  void end_of_step(double learning_rate) override {
    node_.add(parameters_.gradients, std::source_location::current());
    if (node_.leads()) {
      master_.gradients_ready(0, parameters_.segments.size());
      master_.end_of_step(learning_rate);
    }
  }

  /// Waits for the values; the update has been made elsewhere.
  void finish(const update_call& update) override {
    if (node_.leads()) {
      master_.finish(update);
    }
    hand_out_values();
  }

  /// The values become the newest that were asked for. Called by all workers.
  void complete() override {
    if (options_.master.staged && stale_) {
      if (node_.leads()) {
        master_.complete();
      }
      hand_out_values();
      stale_ = false;
    }
  }

  /// Staged values that are under way arrive. Called by all workers.
  void settle() override { complete(); }
  void fetch_from_servers(std::size_t buffer, std::span<Element> to) override {
    master_.fetch_from_servers(buffer, to);
  }
  void store_on_servers(std::size_t buffer, std::span<const Element> from, std::uint64_t updates) override {
    master_.store_on_servers(buffer, from, updates);
  }
  [[nodiscard]] std::uint64_t updates_of_servers() override { return master_.updates_of_servers(); }

  /// As parameter_server; each worker gets the gradient of its node from the first one.
  [[nodiscard]] double gather_gradients() override {
    if (node_.leads()) {
      static_cast<void>(master_.gather_gradients());
    }
    node_.hand_out(parameters_.gradients, std::source_location::current());
    return options_.master.settings().sums_all_workers() ? 1.0 : static_cast<double>(plan().who.workers.size());
  }

  [[nodiscard]] bool replicates() const noexcept override { return options_.master.settings().sums_all_workers(); }

  /// The servers sum the squares.
  [[nodiscard]] bool sums_totals() const noexcept override { return true; }

  /// All workers.
  [[nodiscard]] comm::link* group() noexcept override { return &group_; }
  [[nodiscard]] const parameter_server_plan& plan() const noexcept { return master_.plan(); }

  /// As parameter_server: what the first worker of a node sends and receives.
  [[nodiscard]] dynamic_array<transfer_buffer> transfer_buffers() const override { return master_.transfer_buffers(); }

  /// What each server has done so far. For a worker that is the first of its node, between steps.
  [[nodiscard]] std::vector<server_summary> summary() { return master_.summary(); }

  [[nodiscard]] std::string describe() const override {
    std::string text = gradus::join(
        {distributed_replicated::name, " by ", group_channel_.link().properties().name, ", nodes of workers:"});
    for (const int each : who_.workers) {
      append_text(text, {" ", options_.node_of(each)});
    }
    append_text(text, {"\n", master_.describe()});
    return text;
  }

 private:
  void hand_out_values(const std::source_location& where = std::source_location::current()) {
    stale_ = true;
    node_.hand_out(parameters_.values, where);
  }

  roles who_;
  distributed_replicated options_;
  flat_parameters<Element> parameters_;
  node_exchange<Element> node_;
  comm::any_communicator group_channel_;  // of all workers
  star_communicator group_;
  bool stale_ = false;  // staged: a step has been made since the newest values came
  parameter_server_state<Element> master_;
};

}  // namespace detail

static_assert(gradient_strategy<distributed_replicated>);

/// As serve of parameter_server, for a rank that is only a server.
template <class Element, class Rule>
server_summary serve(comm::any_communicator communicator, const Rule& rule, const distributed_replicated& options,
                     error_location where = error_location::current()) {
  return at_call(where, [&] {
    const distributed_replicated with_nodes = detail::with_nodes(options, communicator);
    detail::node_exchange<Element>::join_without(communicator);
    const comm::any_communicator of_workers = communicator.duplicate();  // they use it without this rank
    return serve<Element>(communicator, rule, with_nodes.of_nodes(communicator.size()));
  });
}

}  // namespace gradus::parallel

GRADUS_COMPILED_STRATEGY(::gradus::parallel::distributed_replicated)

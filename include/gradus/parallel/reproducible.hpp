// SPDX-License-Identifier: BSL-1.0
//
// Training that reaches the same bits on any number of ranks: sums of gradients over virtual workers.
#pragma once

#include <bit>          // std::has_single_bit
#include <concepts>     // std::derived_from
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint64_t
#include <memory>       // std::make_unique, std::unique_ptr
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/pairwise_sums.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/detail/reproducible/exact_norm.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/parallel/strategy.hpp"

namespace gradus::train::detail {

template <class Network>
class worker_execution;  // gradus/train/reproducible.hpp

}  // namespace gradus::train::detail

namespace gradus::parallel {

namespace detail {

/// A strategy of servers, which can add gradients in pairs.
template <class Strategy>
concept sums_on_servers = requires(Strategy& options) {
  options.pairwise_sums;
};

/// A strategy that brings gradients together by sums of its communicator only.
template <class Strategy>
concept sums_by_communicator = requires {
  requires Strategy::sums_by_communicator;
};

}  // namespace detail

/// A strategy around another one: the weights are the same bits on 1, 2, 4, ... ranks, with any number of threads, over
/// any communicator, by any algorithm of its all-reduce, and by each of the strategies
/// parallel::all_reduce, parallel::sharded_update and parallel::parameter_server (synchronous).
///
/// @code
///   #include <gradus/train/reproducible.hpp>
///   net.compile({.max_batch_size = train::worker_batch_size(64), .seed = 1});  // of batches of 64 examples
///   train::trainer trainer{net, optim::sgd{.momentum = 0.9}, world, parallel::reproducible{parallel::all_reduce{}}};
/// @endcode
///
/// Each batch is divided among `virtual_workers`, which are not ranks: a rank computes the gradients of virtual_workers
/// / ranks neighboring ones, one after another, so that each is computed in the same way wherever it is. They are added
/// in one binary tree, neighbors first: ((g0 + g1) + (g2 + g3)) + ((g4 + g5) + (g6 + g7)). A rank has a subtree of it,
/// and sums over ranks follow the rest of the tree: comm::pairwise_sums, or the servers. Statistics of batch
/// normalization are those of a virtual worker's examples.
///
/// What else is summed over ranks is summed without rounding (exact_sum): the losses of epochs and evaluations, and the
/// squares of the gradients where they are clipped by their norm. Each virtual worker has its own running
/// statistics; at the end of an epoch they become their mean on all ranks.
///
/// A step costs virtual_workers / ranks small passes instead of one, and additions of gradients. The network is
/// compiled for the examples of one virtual worker, so its values take less memory, and log2(virtual_workers / ranks)
/// copies of the gradients take more. For a trainer that makes its strategy, and for devices in host memory.
template <class Strategy = all_reduce>
struct reproducible {
  static_assert(detail::sums_by_communicator<Strategy> || detail::sums_on_servers<Strategy>,
                "gradus: parallel::reproducible adds gradients in a fixed order by parallel::all_reduce, "
                "parallel::sharded_update or parallel::parameter_server; other strategies depend on the ranks");

  /// The name of the strategy in messages.
  static constexpr std::string_view name = "reproducible";

  Strategy strategy{};  ///< how gradients travel
  /// A power of two, at least the number of ranks. Trainings with the same number reach the same weights.
  int virtual_workers = 8;

  /// @param ranks  that train
  /// @throws configuration_error unless the virtual workers can be divided among the ranks
  void check(int ranks) const {
    constexpr int most = 1 << 16;
    if (virtual_workers < 1 || virtual_workers > most || !std::has_single_bit(static_cast<unsigned>(virtual_workers))) {
      raise<configuration_error>("parallel::reproducible",
                                 {"1, 2, 4, 8 or another power of two of virtual_workers, at most ", most},
                                 {virtual_workers});
    }
    if (virtual_workers % ranks != 0) {
      std::string valid = "1";
      for (int each = 2; each <= virtual_workers; each *= 2) {
        append_text(valid, {2 * each > virtual_workers ? " or " : ", ", each});
      }
      raise<configuration_error>(
          "parallel::reproducible",
          {valid, " ranks that train, among which ", virtual_workers, " virtual workers can be divided"},
          {ranks, " ranks"}, "start one of these numbers, or choose other virtual_workers");
    }
    if constexpr (detail::sums_on_servers<Strategy>) {
      if (!strategy.settings().sums_all_workers()) {
        raise<configuration_error>("parallel::reproducible", "synchronous servers without backup workers",
                                   strategy.settings().describe(), "in other modes a step depends on who comes first");
      }
    }
  }

  /// Whether this rank is a server and no worker: it calls `serve` and makes no trainer.
  [[nodiscard]] bool is_server_only(
      const comm::any_communicator& communicator) const requires detail::sums_on_servers<Strategy> {
    return strategy.is_server_only(communicator);
  }

  /// The state of the strategy within, over sums in the order of the tree; see gradient_strategy.
  template <class Element>
  using state = strategy_state<Strategy, Element>;
  /// Makes it. Called by all ranks.
  /// @throws configuration_error when the virtual workers cannot be divided among the ranks, or options make no sense
  template <class Element>
  [[nodiscard]] static std::unique_ptr<state<Element>> make(const reproducible& options, comm::any_communicator ranks,
                                                            const flat_parameters<Element>& parameters) {
    Strategy inner = options.strategy;
    if constexpr (detail::sums_on_servers<Strategy>) {
      options.check(static_cast<int>(inner.roles_among(ranks.size()).workers.size()));
      inner.pairwise_sums = true;
      return make_strategy<Element>(inner, std::move(ranks), parameters);
    } else {
      options.check(ranks.size());
      return make_strategy<Element>(
          inner, comm::any_communicator{std::make_unique<comm::pairwise_sums_link>(ranks.duplicate())}, parameters);
    }
  }
  /// What is computed in place of the rule: where it clips by the norm, squares are summed without rounding.
  template <class Element>
  [[nodiscard]] static std::unique_ptr<optim::parameter_update<Element>> rule_of(
      std::unique_ptr<optim::parameter_update<Element>> rule) {
    if (!rule->clips_norm()) {
      return rule;
    }
    return std::make_unique<detail::exact_norm<Element>>(std::move(rule));
  }
  /// How a rank computes its part of a batch: for one virtual worker after another; see train::execution.
  template <class Network>
  using execution = train::detail::worker_execution<Network>;
};

template <class Strategy>
reproducible(Strategy) -> reproducible<Strategy>;
template <class Strategy>
reproducible(Strategy, int) -> reproducible<Strategy>;

/// As serve of the strategy within: for a rank that is only a server, while the others train by
/// parallel::reproducible{servers}.
/// @throws configuration_error when options make no sense, or ranks differ
template <class Element, class Rule, detail::sums_on_servers Strategy>
auto serve(comm::any_communicator communicator, const Rule& rule, const reproducible<Strategy>& options,
           error_location where = error_location::current()) {
  return at_call(where, [&] {
    options.check(static_cast<int>(options.strategy.roles_among(communicator.size()).workers.size()));
    Strategy servers = options.strategy;
    servers.pairwise_sums = true;
    cpu device{{.intra_op_threads = 1}};
    std::unique_ptr<optim::parameter_update<Element>> applied;
    if constexpr (std::derived_from<Rule, optim::parameter_update<Element>>) {
      applied = rule.with_state_on(device, 0);
    } else {
      applied = optim::make_parameter_update<Element>(device, rule, 0);
    }
    if (applied->clips_norm()) {
      applied = std::make_unique<detail::exact_norm<Element>>(std::move(applied));
    }
    return serve<Element>(std::move(communicator), *applied, servers, where);
  });
}

static_assert(gradient_strategy<reproducible<>>);

}  // namespace gradus::parallel

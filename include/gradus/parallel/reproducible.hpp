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
#include <type_traits>  // std::conditional_t, std::is_same_v
#include <utility>      // std::move

#include "gradus/comm/link.hpp"
#include "gradus/comm/tree_ordered.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/detail/reproducible/exact_norm.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/parallel/strategy.hpp"

namespace gradus::parallel {

namespace detail {

/// A strategy of servers, which can add gradients in pairs.
template <class Strategy>
concept sums_on_servers = requires(Strategy& options) {
  options.pairwise_sums;
};

/// A strategy that brings gradients together by sums of its communicator only.
template <class Strategy>
inline constexpr bool sums_by_communicator =
    std::is_same_v<Strategy, all_reduce> || std::is_same_v<Strategy, sharded_update>;

template <class Strategy, class Element, class Communicator>
class reproducible_state;

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
/// and sums over ranks follow the rest of the tree: comm::tree_ordered, or the servers. Statistics of batch
/// normalization are those of a virtual worker's examples.
///
/// What else is summed over ranks is summed without rounding (exact_sum): the losses of epochs and evaluations, and the
/// squares of the gradients where the rule is an optim::clipped_norm. Each virtual worker has its own running
/// statistics; at the end of an epoch they become their mean on all ranks.
///
/// A step costs virtual_workers / ranks small passes instead of one, and additions of gradients. The network is
/// compiled for the examples of one virtual worker, so its values take less memory, and log2(virtual_workers / ranks)
/// copies of the gradients take more. For train::trainer, not for step_trainer, and for devices in host memory.
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
  template <class Communicator>
  requires detail::sums_on_servers<Strategy>
  [[nodiscard]] bool is_server_only(const Communicator& communicator) const {
    return strategy.is_server_only(communicator);
  }

  /// The object of one rank that brings its gradients together; see gradient_strategy.
  template <class Element, class Communicator>
  using state = detail::reproducible_state<Strategy, Element, Communicator>;
};

template <class Strategy>
reproducible(Strategy) -> reproducible<Strategy>;
template <class Strategy>
reproducible(Strategy, int) -> reproducible<Strategy>;

namespace detail {

/// A strategy around one of servers, for checkpoints.
template <class Element>
class strategy_around_servers : public server_strategy<Element> {
 public:
  void fetch_from_servers(std::size_t buffer, std::span<Element> to) override {
    servers_->fetch_from_servers(buffer, to);
  }
  void store_on_servers(std::size_t buffer, std::span<const Element> from, std::uint64_t updates) override {
    servers_->store_on_servers(buffer, from, updates);
  }
  [[nodiscard]] std::uint64_t updates_of_servers() override { return servers_->updates_of_servers(); }

 protected:
  server_strategy<Element>* servers_ = nullptr;  // the strategy within
};

/// What a strategy around one of servers, of ranks that update parts, or of another one derives from.
template <class Element, update_scope scope>
struct base_for_scope {
  using type = strategy<Element>;
};
template <class Element>
struct base_for_scope<Element, update_scope::parts> {
  using type = partial_strategy<Element>;
};
template <class Element>
struct base_for_scope<Element, update_scope::elsewhere> {
  using type = strategy_around_servers<Element>;
};

template <class Strategy>
inline constexpr update_scope scope_of = sums_on_servers<Strategy>
                                             ? update_scope::elsewhere
                                             : (std::is_same_v<Strategy, sharded_update> ? update_scope::parts
                                                                                         : update_scope::all);

/// The strategy over a communicator whose sums are in the order of the tree, or with servers that add in this order.
template <class Strategy, class Element, class Communicator>
class reproducible_state final : public base_for_scope<Element, scope_of<Strategy>>::type {
  static constexpr bool on_servers = sums_on_servers<Strategy>;
  using channel_type = std::conditional_t<on_servers, Communicator, comm::tree_ordered<Communicator>>;
  using inner_state = strategy_state<Strategy, Element, channel_type>;

 public:
  /// Called by all ranks.
  /// @throws configuration_error when the virtual workers cannot be divided among the ranks, or options make no sense
  reproducible_state(const reproducible<Strategy>& options, Communicator& communicator,
                     const flat_parameters<Element>& parameters)
      : virtual_workers_{options.virtual_workers},
        channel_{channel_of(options, communicator)},
        inner_{options_of_inner(options), channel_, parameters} {
    if constexpr (on_servers) {
      this->servers_ = &inner_;
    }
  }

  /// What a trainer calls in place of the rule: where the rule clips by the norm, squares are summed without rounding.
  [[nodiscard]] optim::parameter_update<Element>& rule_of_step(optim::parameter_update<Element>& rule) {
    if (!rule.clips_norm() || rule.scales_loss()) {
      return rule;
    }
    norm_ = std::make_unique<exact_norm<Element>>(rule);
    return *norm_;
  }

  [[nodiscard]] std::string describe() const override {
    return gradus::join({"reproducible for ", virtual_workers_, " virtual workers, ", inner_.describe()});
  }
  void start() override { inner_.start(); }
  void finish(const update_call& update) override { inner_.finish(update); }
  void gradients_ready(std::size_t first, std::size_t count) override { inner_.gradients_ready(first, count); }
  void end_of_step(double learning_rate) override { inner_.end_of_step(learning_rate); }
  [[nodiscard]] bool may_be_late() const noexcept override { return inner_.may_be_late(); }
  bool finish_until(std::size_t first, std::size_t count, const update_call& update) override {
    return inner_.finish_until(first, count, update);
  }
  void complete() override { inner_.complete(); }
  void settle() override { inner_.settle(); }
  void use(optim::parameter_update<Element>& update) override { inner_.use(update); }
  void gather_state() override { inner_.gather_state(); }
  void fetch_state() override { inner_.fetch_state(); }
  [[nodiscard]] double gather_gradients() override { return inner_.gather_gradients(); }
  [[nodiscard]] bool replicates() const noexcept override { return inner_.replicates(); }
  [[nodiscard]] bool sums_squares() const noexcept override { return inner_.sums_squares(); }
  [[nodiscard]] comm::link* group() noexcept override { return inner_.group(); }
  [[nodiscard]] dynamic_array<travelling_memory> travelling() const override { return inner_.travelling(); }

  /// The state of the strategy within.
  [[nodiscard]] inner_state& inner() noexcept { return inner_; }

 private:
  static channel_type channel_of(const reproducible<Strategy>& options, Communicator& communicator) {
    if constexpr (on_servers) {
      options.check(static_cast<int>(options.strategy.roles_among(communicator.size()).workers.size()));
      return communicator.duplicate();
    } else {
      options.check(communicator.size());
      return channel_type{communicator.duplicate()};
    }
  }

  static Strategy options_of_inner(const reproducible<Strategy>& options) {
    Strategy inner = options.strategy;
    if constexpr (on_servers) {
      inner.pairwise_sums = true;
    }
    return inner;
  }

  int virtual_workers_;
  channel_type channel_;  // outlives the strategy
  std::unique_ptr<exact_norm<Element>> norm_;
  inner_state inner_;
};

}  // namespace detail

/// As serve of the strategy within: for a rank that is only a server, while the others train by
/// parallel::reproducible{servers}.
/// @throws configuration_error when options make no sense, or ranks differ
template <class Element, class Communicator, class Rule, detail::sums_on_servers Strategy>
auto serve(Communicator& communicator, const Rule& rule, const reproducible<Strategy>& options,
           error_location where = error_location::current()) {
  return at_call(where, [&] {
    options.check(static_cast<int>(options.strategy.roles_among(communicator.size()).workers.size()));
    Communicator channel{communicator.duplicate()};  // as workers do
    Strategy servers = options.strategy;
    servers.pairwise_sums = true;
    cpu device{{.intra_op_threads = 1}};
    std::unique_ptr<optim::parameter_update<Element>> applied;
    if constexpr (std::derived_from<Rule, optim::parameter_update<Element>>) {
      applied = rule.with_state_on(device, 0);
    } else {
      applied = std::make_unique<optim::parameter_update_of<Rule, Element>>(device, rule, 0);
    }
    if (applied->clips_norm() && !applied->scales_loss()) {
      applied = std::make_unique<detail::exact_norm<Element>>(std::move(applied));
    }
    return serve<Element>(channel, *applied, servers, where);
  });
}

static_assert(gradient_strategy<reproducible<>>);

}  // namespace gradus::parallel

// SPDX-License-Identifier: BSL-1.0
//
// Data parallelism with parameter servers: variables and optimizer state live on them.
#pragma once

#include <algorithm>        // std::max
#include <concepts>         // std::derived_from
#include <cstddef>          // std::byte, std::size_t
#include <cstdint>          // std::uint64_t, std::uint8_t
#include <memory>           // std::make_unique, std::unique_ptr
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string>           // std::string
#include <string_view>      // std::string_view
#include <utility>          // std::move
#include <vector>           // std::vector

#include "gradus/comm/agreement.hpp"
#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/parallel/strategy.hpp"
#include "gradus/parameter_server/detail/protocol/exchange.hpp"
#include "gradus/parameter_server/detail/protocol/links.hpp"
#include "gradus/parameter_server/detail/protocol/loop.hpp"
#include "gradus/parameter_server/detail/protocol/messages.hpp"
#include "gradus/parameter_server/detail/protocol/segment_list.hpp"
#include "gradus/parameter_server/detail/protocol/star_communicator.hpp"
#include "gradus/parameter_server/detail/protocol/totals_exchange.hpp"
#include "gradus/parameter_server/detail/protocol/variable_store.hpp"
#include "gradus/parameter_server/detail/protocol/worker_side.hpp"
#include "gradus/parameter_server/mode.hpp"
#include "gradus/parameter_server/placement.hpp"
#include "gradus/parameter_server/plan.hpp"
#include "gradus/parameter_server/roles.hpp"
#include "gradus/parameter_server/summary.hpp"

namespace gradus::parallel {

namespace detail {

template <class Element>
class parameter_server_state;

}  // namespace detail

/// Variables and optimizer state live on servers; workers push gradients and pull values, a part of a variable at a
/// time: gradients behind backward, values as servers have made them.
///
/// Servers are ranks of their own, the last ones, or stand beside workers on the first ranks (`colocate`), in the
/// thread that carries the rank's messages. A rank that is only a server calls `serve`; all others make a trainer:
///
/// @code
///   const parallel::parameter_server servers{.servers = 1};
///   if (servers.is_server_only(world)) {
///     parallel::serve<float>(world, rule, servers);
///   } else {
///     data::loader loader{device, set, {.global_batch_size = 64}};  // the trainer shares batches among the workers
///     train::trainer trainer{net, rule, world, servers};
///     trainer.fit(loader, {.epochs = 5, .learning_rate = 0.05});
///   }
/// @endcode
///
/// `synchronous` computes the update that one process would compute on the batches of all workers, to rounding, with
/// any rule, number of servers and placement; server_mode has the others. The trainer's reports are those of all
/// workers, but in modes in which a worker may be lost (asynchronous, bounded staleness, backup workers) they are each
/// worker's own, because no worker waits for the others.
///
/// Where gradients are clipped by their norm (optim::update) synchronous servers begin a step when all gradients have
/// come, and first send each other the sum of squares of their variables' gradients. In other modes, and with backup
/// workers, servers never have the gradients of one step together, and refuse. They refuse a loss that is scaled, too.
/// The norm is not in the reports of the workers.
///
/// A server adds what comes in the order of the workers, one optimizer step a part. It keeps a buffer of its variables
/// for each worker. The optimizer's state is not in trainer.update_state().
///
/// Who is missing: a rank that has not come within the time limit of the communicator is named on all ranks, with the
/// operation and the variable. With backup workers, bounded staleness or asynchronous pushes a worker that is silent
/// for three quarters of the limit is counted as lost, and the others go on; a server must not be lost. Under MPI a job
/// that has lost a process cannot finalize MPI: it ends by MPI_Abort when all is done, see mpi_environment.
struct parameter_server {
  /// The name of the strategy in messages.
  static constexpr std::string_view name = "parameter_server";

  /// How many servers; 0 with `colocate`: all ranks.
  int servers = 1;
  /// Servers beside workers, not on ranks of their own.
  bool colocate = false;
  /// Who is what, in place of `servers` and `colocate`, if it is not empty: see roles_of.
  roles who{};
  /// When servers apply gradients and hand out values.
  server_mode mode = server_mode::synchronous;
  /// Of synchronous: a step takes the first (workers - backup_workers) gradients and goes on; later ones are dropped
  /// (Chen et al., "Revisiting distributed synchronous SGD", 2016). This many workers may die.
  int backup_workers = 0;
  /// Of bounded_staleness: steps that a worker may be ahead of the slowest.
  int staleness_bound = 0;
  /// Of asynchronous and bounded_staleness: the learning rate of a push is divided by 1 + its staleness.
  bool scale_by_staleness = false;
  /// Parts under way at most between a worker and a server, in each direction. A small number keeps the order of pulls,
  /// and lets values travel between gradients; a larger one hides the time between messages.
  int window = 4;
  /// Which variables live where.
  placement_options placed{};
  /// A server adds the gradients of its workers in pairs of neighbors, then pairs of these, and so on, in place of one
  /// after another: the order of parallel::reproducible, which sets it.
  bool pairwise_sums = false;
  /// Computes a step with the values from before the last one while the new ones travel: gradients are one step late.
  /// Every epoch begins with the newest values.
  bool staged = false;
  /// The next forward pass waits for a layer's values when it comes to the layer. As in all_reduce.
  bool overlap_forward = false;
  /// One priority a parameter, in the order of the network's trained_parameters(): of the values that are ready the one
  /// with the smallest comes first. Empty: as they become ready. From parallel/transfer_order/order.hpp:
  /// priorities_of_parameters(net.structure(), tic(...)). Servers use the priorities of worker 0.
  std::vector<std::size_t> pull_priorities{};

  /// The roles of `ranks` ranks. @throws configuration_error if the options need another number
  [[nodiscard]] roles roles_among(int ranks) const {
    if (who.workers.empty() && who.servers.empty()) {
      return roles_of(ranks, servers, colocate);
    }
    for (const std::vector<int>* const list : {&who.workers, &who.servers}) {
      for (std::size_t i = 0; i < list->size(); ++i) {
        bool twice = false;
        for (std::size_t k = 0; k < i; ++k) {
          twice = twice || (*list)[k] == (*list)[i];
        }
        if ((*list)[i] < 0 || (*list)[i] >= ranks || twice) {
          raise<configuration_error>("parallel::parameter_server",
                                     {"ranks from 0 to ", ranks - 1, " as workers and servers, each once"},
                                     who.describe());
        }
      }
    }
    if (who.workers.empty() || who.servers.empty()) {
      raise<configuration_error>("parallel::parameter_server", "at least one worker and one server", who.describe());
    }
    return who;
  }

  /// The options that say how servers work.
  [[nodiscard]] server_settings settings() const noexcept {
    return {.mode = mode,
            .backup_workers = backup_workers,
            .staleness_bound = staleness_bound,
            .scale_by_staleness = scale_by_staleness,
            .window = window};
  }

  /// Whether this rank is a server and no worker: it calls `serve` and makes no trainer.
  [[nodiscard]] bool is_server_only(const comm::any_communicator& communicator) const {
    return roles_among(communicator.size()).worker_index(communicator.rank()) < 0;
  }

  /// The object of one rank that brings its gradients together; see gradient_strategy.
  template <class Element>
  using state = detail::parameter_server_state<Element>;
};

namespace detail {

/// @throws configuration_error when options make no sense
[[nodiscard]] inline parameter_server_plan checked_plan(const parameter_server& options, const roles& who,
                                                        std::span<const optim::segment> segments,
                                                        std::span<const std::size_t> pull_priorities,
                                                        index_t element_bytes) {
  options.settings().check(static_cast<int>(who.workers.size()));
  if (options.staged && options.overlap_forward) {
    raise<configuration_error>("parallel::parameter_server", "staged or overlap_forward", "both",
                               "staged values travel behind forward and backward");
  }
  return make_server_plan(segments, element_bytes, who, options.placed, pull_priorities);
}

/// @throws configuration_error where only threads of the program may use the communicator
inline void require_threads(const comm::any_communicator& communicator) {
  if (communicator.one_thread()) {
    raise<configuration_error>(
        "parallel::parameter_server", "a communicator that threads of the library may use",
        "MPI below MPI_THREAD_MULTIPLE in a program that has begun it",
        "begin MPI by MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided), or train by all_reduce, "
        "sharded_update or hybrid");
  }
}

[[nodiscard]] inline std::string describe(const parameter_server& options, std::string_view communicator,
                                          const parameter_server_plan& plan) {
  return gradus::join({parameter_server::name, " by ", communicator, ", ", options.settings().describe(),
                       options.pairwise_sums ? ", sums in pairs" : "", options.staged ? ", staged" : "",
                       options.overlap_forward ? ", pulls behind forward" : "", ", placement ",
                       name_of(options.placed.policy), "\n", plan.describe()});
}

/// Compared by all ranks, workers and servers.
template <class Element>
void require_same_plan(comm::link& ranks, const std::string& plan, const std::string& rule) {
  const comm::property properties[] = {
      {"element type", std::string{element_name<Element>}}, {"update rule", rule}, {"plan", plan}};
  comm::require_agreement(ranks, "parameter_server", properties);
}

/// What a worker does with its gradients; the rank may be a server too.
template <class Element>
class parameter_server_state final : public server_strategy<Element> {
 public:
  /// Called by all ranks: workers here, servers of their own in `serve`.
  /// @param may_stand_by  the rank may be neither: then it compares the plan in `start`, and does nothing else
  /// @throws configuration_error when options make no sense, or the rank is no worker
  parameter_server_state(const parameter_server& options, comm::any_communicator communicator,
                         const flat_parameters<Element>& parameters, bool may_stand_by = false)
      : options_{options},
        parameters_{parameters},
        who_{worker_roles(options, communicator, may_stand_by)},
        channel_{communicator.duplicate()},
        group_channel_{communicator.duplicate()},
        all_{communicator.duplicate()},
        group_{group_channel_.link(), who_},
        plan_{checked_plan(options, who_, parameters.segments, options.pull_priorities, sizeof(Element))},
        links_{channel_.link(), message_tag::count(plan_.parts.size())},
        worker_{links_, plan_, bytes_of(parameters), options.staged, options.window} {
    static_cast<void>(broadcast_text(all_.link(),
                                     pack(parameters.segments, options.pull_priorities, parameters.flush_denormals),
                                     who_.workers.front()));
  }

  /// Tells the servers that this worker leaves. A rank that is a server too goes on until the others have left.
  ~parameter_server_state() override = default;

  /// The rule that servers apply. Once, before start.
  void use(optim::parameter_update<Element>& rule) override {
    require_rule_of_servers(options_.settings(), rule);
    rule_ = rule.description();
    if (who_.worker_index(channel_.rank()) < 0) {
      return;
    }
    const int server = who_.server_index(channel_.rank());
    if (server >= 0) {
      store_ = std::make_unique<variables_of<Element>>(plan_, server, parameters_.segments, who_.workers.size(), rule,
                                                       options_.pairwise_sums, parameters_.flush_denormals);
      loop_ = std::make_unique<server_loop>(links_, plan_, server, options_.settings(), *store_);
    }
    exchange_ = std::make_unique<server_exchange>(links_, worker_, loop_.get(), parameters_.segments.size(),
                                                  options_.staged, parameters_.flush_denormals);
  }

  /// Makes the values those of worker 0, on servers and workers.
  void start() override {
    require_same_plan<Element>(all_.link(), describe(), rule_);
    if (group_.rank() < 0) {
      return;
    }
    require_rule();
    exchange_->start(group_.rank() == 0);
    if (options_.settings().survives_lost_workers()) {
      group_.set_independent();
    }
  }

  void gradients_ready(std::size_t /*first*/, std::size_t count) override { exchange_->segments_ready(count); }

  /// All gradients are there; servers apply them at this learning rate.
  void end_of_step(double learning_rate) override {
    require_rule();
    exchange_->finish(learning_rate, std::source_location::current());
  }

  /// Waits for the values; the update has been made elsewhere.
  void finish(const update_call& update) override { finish_until(0, parameters_.segments.size(), update); }

  [[nodiscard]] bool has_deferred_update() const noexcept override { return options_.overlap_forward; }

  /// Waits for the values of segments [first, first + count). Returns whether all are there.
  bool finish_until(std::size_t first, std::size_t count, const update_call& /*update*/) override {
    return options_.staged || exchange_->wait_for_values(first, count, std::source_location::current());
  }

  /// The values become the newest that were asked for.
  void complete() override { exchange_->complete(std::source_location::current()); }

  /// Staged values that are under way arrive.
  void settle() override { complete(); }
  void fetch_from_servers(std::size_t buffer, std::span<Element> to) override {
    exchange_->fetch(buffer, {reinterpret_cast<std::uint8_t*>(to.data()), to.size_bytes()},
                     std::source_location::current());
  }
  void store_on_servers(std::size_t buffer, std::span<const Element> from, std::uint64_t updates) override {
    auto* const bytes = const_cast<std::uint8_t*>(reinterpret_cast<const std::uint8_t*>(from.data()));
    exchange_->store(buffer, updates, {bytes, from.size_bytes()}, std::source_location::current());
    static_cast<void>(summary());  // answered when the servers have stored it
  }
  [[nodiscard]] std::uint64_t updates_of_servers() override {
    std::uint64_t most = 0;
    for (const server_summary& each : summary()) {
      most = std::max(most, each.steps);
    }
    return most;
  }

  /// Synchronous servers have the sums until all workers have pushed again. In other modes, and with backup workers, a
  /// worker has the gradient of its own push.
  [[nodiscard]] double gather_gradients() override {
    if (!options_.settings().sums_all_workers()) {
      return static_cast<double>(who_.workers.size());
    }
    fetch_from_servers(variable_store::gradient_sums, parameters_.gradients);
    return 1;
  }

  [[nodiscard]] bool replicates() const noexcept override { return options_.settings().sums_all_workers(); }

  /// The servers sum the squares.
  [[nodiscard]] bool sums_totals() const noexcept override { return true; }

  /// The workers.
  [[nodiscard]] comm::link* group() noexcept override { return &group_; }

  [[nodiscard]] const parameter_server_plan& plan() const noexcept { return plan_; }

  /// The gradients and the values of every part, by the name of the parameter or its part.
  [[nodiscard]] dynamic_array<transfer_buffer> transfer_buffers() const override {
    dynamic_array<transfer_buffer> result;
    worker_.visit_parts([&](std::string_view name, std::span<const std::byte> memory) {
      result.push_back({.name = std::string{name}, .bytes = memory});
    });
    return result;
  }

  /// What each server has done so far, by its index. Asks the servers; for any worker, between steps.
  [[nodiscard]] std::vector<server_summary> summary() {
    exchange_->ask_for_summaries(std::source_location::current());
    return {worker_.summaries().begin(), worker_.summaries().end()};
  }

  [[nodiscard]] std::string describe() const override {
    return detail::describe(options_, channel_.link().properties().name, plan_);
  }

 private:
  static roles worker_roles(const parameter_server& options, const comm::any_communicator& communicator,
                            bool may_stand_by) {
    require_threads(communicator);
    roles who = options.roles_among(communicator.size());
    if (who.worker_index(communicator.rank()) < 0 && !may_stand_by) {
      raise<configuration_error>("parallel::parameter_server", {"a worker, of ", who.describe()},
                                 {"rank ", communicator.rank()},
                                 "a rank that is only a server calls parallel::serve and makes no trainer");
    }
    return who;
  }

  static flat_bytes bytes_of(const flat_parameters<Element>& parameters) {
    const auto bytes = [](std::span<Element> elements) {
      return std::span{reinterpret_cast<std::uint8_t*>(elements.data()), elements.size_bytes()};
    };
    return {.values = bytes(parameters.values), .gradients = bytes(parameters.gradients)};
  }

  void require_rule() const {
    if (exchange_ == nullptr) {
      raise<configuration_error>("parallel::parameter_server", "use(rule) before start", "no update rule",
                                 "train::trainer calls it");
    }
  }

  parameter_server options_;
  flat_parameters<Element> parameters_;
  roles who_;
  comm::any_communicator channel_;        // of the exchange
  comm::any_communicator group_channel_;  // of the workers
  comm::any_communicator all_;
  star_communicator group_;
  parameter_server_plan plan_;
  server_links links_;
  worker_side worker_;
  std::string rule_;
  std::unique_ptr<variable_store> store_;
  std::unique_ptr<server_loop> loop_;
  std::unique_ptr<server_exchange> exchange_;
};

}  // namespace detail

static_assert(gradient_strategy<parameter_server>);

/// Serves until all workers have left or are lost: for a rank that is only a server, while the others train. It learns
/// from worker 0 which parameters there are, and compares plan and rule with all ranks.
///
/// @tparam Element  of the network's parameters
/// @param rule  an update rule, or an optim::parameter_update<Element> whose rule is known when the program runs
/// @return  what the server has done
/// @throws configuration_error when options make no sense, or ranks differ
/// @throws communication_error if a rank fails, a rank that is needed does not come, or no rank sends anything
///         within twice the time limit
template <class Element, class Rule>
server_summary serve(comm::any_communicator communicator, const Rule& rule, const parameter_server& options,
                     error_location where = error_location::current()) {
  return at_call(where, [&] {
    detail::require_threads(communicator);
    const roles who = options.roles_among(communicator.size());
    const int server = who.server_index(communicator.rank());
    if (server < 0 || who.worker_index(communicator.rank()) >= 0) {
      raise<configuration_error>("parallel::serve", {"a rank that is only a server, of ", who.describe()},
                                 {"rank ", communicator.rank()}, "workers make a trainer");
    }
    comm::any_communicator channel = communicator.duplicate();
    const comm::any_communicator of_workers = communicator.duplicate();  // they use it without this rank
    comm::any_communicator all = communicator.duplicate();
    const detail::segment_list variables =
        detail::unpack_segments(detail::broadcast_text(all.link(), std::string{}, who.workers.front()));
    const std::span<const optim::segment> segments{variables.segments.data(), variables.segments.size()};
    const parameter_server_plan plan = detail::checked_plan(
        options, who, segments, {variables.pull_priorities.data(), variables.pull_priorities.size()}, sizeof(Element));
    detail::server_links links{channel.link(), detail::message_tag::count(plan.parts.size())};
    const auto serve_by = [&](const optim::parameter_update<Element>& applied) {
      detail::require_rule_of_servers(options.settings(), applied);
      detail::variables_of<Element> store{
          plan, server, segments, who.workers.size(), applied, options.pairwise_sums, variables.flush_denormals};
      detail::server_loop loop{links, plan, server, options.settings(), store};
      detail::require_same_plan<Element>(all.link(), detail::describe(options, channel.link().properties().name, plan),
                                         applied.description());
      const floating_point_scope arithmetic{variables.flush_denormals};
      detail::serve_to_the_end(loop, channel.link());
      return loop.summary();
    };
    if constexpr (std::derived_from<Rule, optim::parameter_update<Element>>) {
      return serve_by(rule);
    } else {
      cpu device{{.intra_op_threads = 1}};
      return serve_by(*optim::make_parameter_update<Element>(device, rule, 0));
    }
  });
}

}  // namespace gradus::parallel

GRADUS_COMPILED_STRATEGY(::gradus::parallel::parameter_server)

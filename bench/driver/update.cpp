// SPDX-License-Identifier: BSL-1.0
//
// The ranks of a measurement, and what ends their steps.
#include "update.hpp"

#include <concepts>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <type_traits>

#include "gradus/comm/all_reduce_rule.hpp"
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/recorded.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/parallel/compressed_all_reduce.hpp"
#include "gradus/parallel/int8_blocks.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/parameter_server/distributed_replicated.hpp"
#include "gradus/parameter_server/parameter_server.hpp"
#include "gradus/pipeline/strategy.hpp"
#include "gradus/trace/rule_watch.hpp"
#include "gradus/trace/transfers.hpp"
#include "pipeline.hpp"
#include "rules_on.hpp"

namespace driver {

namespace {

/// The CPU that a rank computes with.
class cpu_of_rank final : public rank_device {
 public:
  explicit cpu_of_rank(const settings& chosen)
      : device_{{.intra_op_threads = chosen.threads, .flush_denormals = chosen.flush_denormals}} {}

  std::unique_ptr<training> make_training(const settings& chosen, const input_set& input, const batches& plan,
                                          gradus::trace::recorder& recorder) override {
    return driver::make_training(chosen, device_, input, plan, recorder);
  }
  std::unique_ptr<rule> make_rule(const settings& chosen, index_t elements) override {
    return driver::make_rule(chosen, device_, elements);
  }
  int threads() const override { return device_.threads(); }

 private:
  gradus::cpu device_;
};

/// Calls use(options) with the strategy that was asked for, of those with servers.
template <class Use>
auto with_servers(const settings& chosen, const std::vector<int>& node_of_rank,
                  const std::vector<std::size_t>& priorities, const Use& use) {
  namespace parallel = gradus::parallel;
  parallel::parameter_server servers;
  servers.servers = chosen.servers;
  servers.colocate = chosen.colocate_servers;
  servers.placed.policy = placement_of(chosen.placement);
  servers.mode = chosen.server_mode == "asynchronous"        ? parallel::server_mode::asynchronous
                 : chosen.server_mode == "compat"            ? parallel::server_mode::compat
                 : chosen.server_mode == "bounded_staleness" ? parallel::server_mode::bounded_staleness
                                                             : parallel::server_mode::synchronous;
  servers.placed.parts_per_server = chosen.parts_per_server;
  servers.backup_workers = chosen.backup_workers;
  servers.staleness_bound = chosen.staleness_bound;
  servers.staged = chosen.staged;
  servers.window = chosen.messages_under_way;
  servers.pull_priorities = priorities;
  if (chosen.update == variable_update::distributed_replicated) {
    parallel::distributed_replicated replicated;
    replicated.master = servers;
    replicated.node_of_rank = node_of_rank;
    return use(replicated);
  }
  servers.overlap_forward = !priorities.empty();
  return use(servers);
}

/// Called by all ranks that are only servers.
void serve_to_the_end(gradus::comm::any_communicator& communicator, const settings& chosen,
                      const std::vector<int>& node_of_rank, const rule& updates) {
  // Of the order of pulls a server needs to know whether there is one; worker 0 tells it which.
  const std::vector<std::size_t> some(chosen.order == transfer_order::none ? 0 : 1);
  with_servers(chosen, node_of_rank, some, [&](const auto& options) {
    auto serving = options;
    if constexpr (std::is_same_v<decltype(serving), gradus::parallel::parameter_server>) {
      serving.pull_priorities.clear();
    } else {
      serving.master.pull_priorities.clear();
    }
    const gradus::parallel::server_summary done = gradus::parallel::serve<float>(communicator, updates, serving);
    std::printf("server on rank %d: %s\n", communicator.rank(), describe(done).c_str());
  });
}

/// Whether algorithms of the library sum over all ranks: not where ranks reduce in levels, which have one algorithm,
/// and of which one rank has none.
bool reduces_by_algorithm(const settings& chosen) {
  return chosen.device == "cpu" && !chosen.all_reduce_spec.empty() && chosen.all_reduce_spec != levels_spec;
}

}  // namespace

std::unique_ptr<rank_device> make_cpu(const settings& chosen) {
  return std::make_unique<cpu_of_rank>(chosen);
}

std::unique_ptr<rule> make_rule(const settings& chosen, gradus::cpu& device, index_t elements) {
  return make_rule_on(chosen, device, elements);
}

ranks::ranks(const parts& own, const settings& chosen) : own_{own}, chosen_{chosen} {
  const int size = own_.gradients.size();
  if (uses_servers(chosen.update)) {
    roles_ = gradus::parallel::roles_of(size, chosen.servers, chosen.colocate_servers);
  }
  if (chosen.update == variable_update::hybrid) {
    require_whole_replicas(chosen, size);
  }
  if (chosen.update == variable_update::distributed_replicated) {
    node_of_rank_ = gradus::comm::nodes_of_ranks(own_.gradients);
  }
}

gradus::data::shard ranks::shard() const {
  if (chosen_.update == variable_update::independent) {
    return {.rank = 0, .ranks = 1};
  }
  const int rank = own_.gradients.rank();
  const int size = own_.gradients.size();
  if (chosen_.update == variable_update::hybrid) {
    return {.rank = rank / chosen_.stages, .ranks = size / chosen_.stages};
  }
  return roles_.workers.empty()
             ? gradus::data::shard{.rank = rank, .ranks = size}
             : gradus::data::shard{.rank = roles_.worker_index(rank), .ranks = static_cast<int>(roles_.workers.size())};
}

bool ranks::serve() {
  if (shard().rank >= 0) {
    return false;
  }
  serve_to_the_end(own_.gradients, chosen_, node_of_rank_, *own_.device.make_rule(chosen_, 0));
  return true;
}

gradus::parallel::network_stages ranks::compile_stages(training& trained) {
  return trained.compile_stages(pipeline_options(chosen_), own_.gradients);
}

std::unique_ptr<step_parts> ranks::make_optimizer_step(trained_parameters trained, const transfer_plan& plan) {
  // `all` has the ranks of `over`.
  const auto end_with = [&, this](gradus::comm::any_communicator& over, gradus::comm::link& all, const auto& options) {
    using state = gradus::parallel::strategy_state<std::remove_cvref_t<decltype(options)>, float>;
    constexpr bool on_servers = std::derived_from<state, gradus::parallel::server_strategy<float>>;
    auto made =
        std::make_unique<step_parts>(std::move(trained), std::make_unique<gradus::trace::rule_watch>(own_.recorder));
    made->updates =
        own_.device.make_rule(chosen_, on_servers ? index_t{0} : static_cast<index_t>(made->parameters.values.size()));
    made->strategy = gradus::parallel::make_strategy<float>(options, over, made->parameters.flat());
    made->end.emplace(made->parameters, *made->updates, *made->strategy, all, &made->timer);
    return made;
  };
  const auto end_of_all = [&, this](const auto& options) { return end_with(own_.gradients, group(), options); };
  if (chosen_.update == variable_update::independent) {
    alone_.emplace(gradus::comm::recorded<gradus::comm::self, gradus::trace::transfers>{
        gradus::comm::self{}, std::make_shared<gradus::trace::transfers>(own_.recorder)});
    return end_with(*alone_, alone_->link(), gradus::parallel::all_reduce{});
  }
  if (chosen_.update == variable_update::replicated && !own_.in_process) {
    throw std::invalid_argument{
        "--variable-update: replicated is for ranks in one process (--ranks N); under mpiexec use all_reduce"};
  }
  if (uses_servers(chosen_.update)) {
    return with_servers(chosen_, node_of_rank_, plan.pull_priorities, end_of_all);
  }
  if (reduces_by_algorithm(chosen_)) {
    gradus::comm::collectives_options algorithms{
        .all_reduce = gradus::comm::parse_all_reduce_spec(chosen_.all_reduce_spec),
        .node_of_rank = gradus::comm::nodes_of_ranks(own_.gradients)};
    collectives_.emplace(
        gradus::comm::collectives<gradus::comm::any_communicator>{own_.gradients.duplicate(), std::move(algorithms)});
    return end_with(*collectives_, group(), plan.gradients);
  }
  switch (chosen_.update) {
    case variable_update::compressed_all_reduce:
      if (chosen_.compression == "int8") {
        return end_of_all(gradus::parallel::compressed_all_reduce<gradus::parallel::int8_blocks>{plan.gradients});
      }
      if (chosen_.compression == "float16") {
        return end_of_all(gradus::parallel::compressed_all_reduce<gradus::float16>{plan.gradients});
      }
      return end_of_all(gradus::parallel::compressed_all_reduce<>{plan.gradients});
    case variable_update::hybrid: {
      gradus::parallel::hybrid options = pipeline_options(chosen_);
      options.gradients = plan.gradients;
      return end_of_all(options);
    }
    case variable_update::model_averaging:
      return end_of_all(averaging_of(chosen_));
    case variable_update::sharded_update:
      return end_of_all(gradus::parallel::sharded_update{.bucket_bytes = plan.gradients.bucket_bytes,
                                                         .first_bucket_bytes = plan.gradients.first_bucket_bytes});
    default:
      return end_of_all(plan.gradients);
  }
}

void ranks::write_behind(gradus::train::checkpoints& saves) {
  if (chosen_.update == variable_update::independent) {
    saves.write_behind(self_);
  } else {
    saves.write_behind(own_.hosts);
  }
}

gradus::parallel::placement_policy placement_of(const std::string& name) {
  namespace parallel = gradus::parallel;
  for (const auto each : {parallel::placement_policy::round_robin, parallel::placement_policy::greedy,
                          parallel::placement_policy::longest_first}) {
    if (name == parallel::name_of(each)) {
      return each;
    }
  }
  return parallel::placement_policy::partitioned;
}

gradus::parallel::model_averaging averaging_of(const settings& chosen) {
  namespace optim = gradus::optim;
  gradus::parallel::model_averaging options{.every_steps = chosen.average_every};
  if (chosen.outer_optimizer == "none") {
    return options;
  }
  options.outer_learning_rate = chosen.outer_learning_rate;
  if (chosen.outer_optimizer == "adam") {
    options.outer = optim::adam{};
  } else {
    options.outer = optim::sgd{.momentum = chosen.outer_optimizer == "sgd" ? 0.0 : chosen.outer_momentum,
                               .nesterov = chosen.outer_optimizer == "nesterov"};
  }
  return options;
}

transfer_plan plan_transfers(const settings& chosen, const gradus::nn::graph& network,
                             const gradus::parallel::step_profile& profile, gradus::comm::link& group) {
  transfer_plan plan = transfer_plan_of(chosen, network, profile, uses_servers(chosen.update), group.size());
  if (!plan.gradients.order.empty()) {
    group.broadcast(std::as_writable_bytes(std::span{plan.gradients.order}), 0);  // times differ from rank to rank
  }
  return plan;
}

}  // namespace driver

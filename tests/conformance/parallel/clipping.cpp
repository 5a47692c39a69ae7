// SPDX-License-Identifier: BSL-1.0
//
// Clipped gradients on ranks: every strategy takes the steps of one process, and reports its norms.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <concepts>
#include <string>
#include <string_view>
#include <vector>

#include "../../support/training_runs.hpp"
#include "../../support/update_state.hpp"
#include "../../support/waiting.hpp"
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/lamb.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/parallel/model_averaging.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/parameter_server/distributed_replicated.hpp"
#include "gradus/parameter_server/parameter_server.hpp"
#include "gradus/train/trainer.hpp"

namespace clipped_training {

namespace optim = gradus::optim;
namespace parallel = gradus::parallel;
namespace train = gradus::train;
using gradus_test::contains;
using gradus_test::largest_difference;

using norm_rule = optim::update<optim::sgd>;
using value_rule = optim::update<optim::sgd>;
constexpr optim::sgd momentum{.momentum = 0.9, .nesterov = true, .weight_decay = 0.01};
constexpr norm_rule by_norm{.rule = momentum, .max_norm = 1};
constexpr value_rule by_value{.rule = momentum, .clip_value = 0.02};

/// What a rank has at the end.
struct outcome {
  std::vector<double> weights;
  std::vector<double> averages;  // of the weights, if there are any
  std::vector<double> norms;     // of all steps
  train::epoch_report epoch;     // the last
  bool trains = true;
  bool come_back = true;  // the weights, after they were exchanged with the averages twice
};

struct setup {
  gradus::index_t micro_batch_size = 0;
  int threads = 1;
};

template <class Element = double, class Communicator, class Rule, class Strategy>
outcome run(Communicator& world, const Rule& rule, const Strategy& strategy, const setup& how = {}) {
  namespace nn = gradus::nn;
  outcome result;
  if constexpr (requires { strategy.is_server_only(world); }) {
    if (strategy.is_server_only(world)) {
      static_cast<void>(parallel::serve<double>(world, rule, strategy));
      result.trains = false;
      return result;
    }
  }
  gradus::cpu device{{.intra_op_threads = how.threads}};
  gradus::data::loader<Element, gradus::nhwc> loader{
      device, gradus_test::small_dataset(), {.global_batch_size = 8, .seed = 11}};
  nn::network<Element, gradus::nhwc> net{device, {2, 9, 8}};
  gradus_test::build_training_network(net);
  net.compile({.max_batch_size = 8, .seed = 11, .micro_batch_size = how.micro_batch_size});
  train::trainer trainer{net, rule, world, strategy};
  struct recorder {
    outcome* result;
    void on_step(const train::step_report& step) {
      if (step.gradient_norm) {
        result->norms.push_back(*step.gradient_norm);
      }
    }
    void on_epoch(const train::epoch_report& epoch) { result->epoch = epoch; }
  };
  trainer.fit(loader, {.epochs = 3, .learning_rate = 0.1}, recorder{&result});
  result.weights.assign(net.values().begin(), net.values().end());
  if constexpr (requires { rule.average; }) {
    if (rule.average &&
        !std::derived_from<parallel::strategy_state<Strategy, double>, parallel::server_strategy<double>>) {
      trainer.swap_average();
      result.averages.assign(net.values().begin(), net.values().end());
      trainer.swap_average();
      result.come_back = std::equal(result.weights.begin(), result.weights.end(), net.values().begin());
    }
  }
  return result;
}

template <class Rule>
outcome run_alone(const Rule& rule, const setup& how = {}) {
  gradus::comm::self alone;
  return run(alone, rule, parallel::all_reduce{}, how);
}

/// @param norms  whether ranks know the norm
void require_same(const std::vector<outcome>& ranks, const outcome& want, std::string_view strategy, bool norms) {
  for (const outcome& rank : ranks) {
    if (!rank.trains) {
      continue;
    }
    BOOST_TEST_CONTEXT(strategy << " on " << ranks.size() << " ranks") {
      BOOST_TEST(largest_difference(rank.weights, want.weights) < 1e-9);
      BOOST_TEST((rank.weights == ranks.front().weights));  // the same bits on all ranks
      BOOST_TEST(largest_difference(rank.averages, want.averages) < 1e-9);
      BOOST_TEST(rank.come_back);
      if (norms) {
        BOOST_TEST(largest_difference(rank.norms, want.norms) < 1e-9);
        BOOST_TEST(rank.epoch.gradient_norm.value().clipped_steps == want.epoch.gradient_norm.value().clipped_steps);
        BOOST_TEST(std::abs(rank.epoch.gradient_norm->mean - want.epoch.gradient_norm->mean) < 1e-10);
      } else {
        BOOST_TEST(rank.norms.empty());
        BOOST_TEST(!rank.epoch.gradient_norm.has_value());
      }
    }
  }
}

template <class Rule>
void check_strategies(const Rule& rule) {
  const bool norms = rule.max_norm.has_value();
  const outcome want = run_alone(rule);
  const auto check = [&](int count, const auto& strategy, std::string_view name) {
    require_same(gradus::comm::run_ranks(count, [&](auto& world) { return run(world, rule, strategy); }), want, name,
                 norms);
  };
  for (const int count : {1, 2, 3, 4}) {
    check(count, parallel::all_reduce{}, "all_reduce");
    check(count, parallel::all_reduce{.bucket_bytes = 64, .first_bucket_bytes = 64, .overlap_forward = true},
          "all_reduce behind forward");
    if constexpr (Rule::elementwise) {
      check(count, parallel::sharded_update{}, "sharded_update in memory");
      require_same(gradus::comm::run_ranks(count,
                                           [&](gradus::comm::threads& world) {
                                             gradus::comm::collectives around{world.duplicate()};
                                             return run(around, rule,
                                                        parallel::sharded_update{.bucket_bytes = 500,
                                                                                 .first_bucket_bytes = 500});
                                           }),
                   want, "sharded_update by messages", norms);
    }
  }
  check(3, parallel::model_averaging{.synchronous_steps = 1000}, "model_averaging, synchronous");
}

template <class Rule>
void check_servers(const Rule& rule) {
  const outcome want = run_alone(rule);
  const auto check = [&](int count, const auto& strategy, std::string_view name) {
    require_same(gradus::comm::run_ranks(count, [&](auto& world) { return run(world, rule, strategy); }), want, name,
                 false);
  };
  using parallel::parameter_server;
  check(1, parameter_server{.colocate = true}, "a server beside its worker");
  check(2, parameter_server{.servers = 1}, "one server");
  check(4, parameter_server{.servers = 2}, "two servers");
  check(3, parameter_server{.servers = 0, .colocate = true}, "servers beside all workers");
  check(3, parameter_server{.servers = 0, .colocate = true, .overlap_forward = true}, "pulls behind forward");
  check(6, parameter_server{.servers = 3, .placed = {.policy = parallel::placement_policy::partitioned}},
        "three servers");
  check(6, parallel::distributed_replicated{.master = {.servers = 2}, .ranks_per_node = 2}, "distributed_replicated");
}

BOOST_AUTO_TEST_SUITE(clipped_training_on_ranks)

BOOST_AUTO_TEST_CASE(some_steps_are_clipped_and_some_are_not) {
  const outcome one = run_alone(by_norm);
  BOOST_TEST(one.norms.size() == 21U);
  int clipped = 0;
  for (const double norm : one.norms) {
    clipped += norm > 1 ? 1 : 0;
  }
  BOOST_TEST(clipped > 3);
  BOOST_TEST(clipped < 18);
  BOOST_TEST(one.epoch.gradient_norm.value().steps == 7);
  BOOST_TEST(one.epoch.gradient_norm->last == one.norms.back());
  BOOST_TEST(largest_difference(one.weights, run_alone(norm_rule{.rule = momentum, .max_norm = 1e9}).weights) > 1e-3);
  BOOST_TEST(largest_difference(run_alone(by_value).weights, run_alone(momentum).weights) > 1e-3);
  BOOST_TEST(run_alone(momentum).norms.empty());
}

BOOST_AUTO_TEST_CASE(ranks_clip_by_the_norm_of_one_process) {
  check_strategies(by_norm);
}
BOOST_AUTO_TEST_CASE(ranks_clip_by_the_value_of_one_process) {
  check_strategies(by_value);
}
BOOST_AUTO_TEST_CASE(ranks_clip_for_rules_of_moments) {
  check_strategies(optim::update<optim::adam>{.max_norm = 0.5});
  check_strategies(optim::update<optim::lamb>{.max_norm = 0.5});
}
BOOST_AUTO_TEST_CASE(servers_clip_by_the_norm_of_one_process) {
  check_servers(by_norm);
}
BOOST_AUTO_TEST_CASE(servers_clip_by_the_value_of_one_process) {
  check_servers(by_value);
}

BOOST_AUTO_TEST_CASE(threads_and_parts_of_a_batch_change_nothing) {
  const outcome want = run_alone(by_norm);
  const outcome threads = run_alone(by_norm, {.threads = 3});
  BOOST_TEST((threads.weights == want.weights));
  BOOST_TEST((threads.norms == want.norms));
  for (const gradus::index_t part : {1, 3, 4}) {  // the norm is that of the accumulated gradients
    const outcome parts = run_alone(by_norm, {.micro_batch_size = part});
    BOOST_TEST(largest_difference(parts.weights, want.weights) < 1e-9);
    BOOST_TEST(largest_difference(parts.norms, want.norms) < 1e-9);
  }
}

// Whatever is done around the rule: the weights, the averages and the norms are those of one process.
BOOST_AUTO_TEST_CASE(every_combination_goes_with_every_strategy) {
  const optim::update<optim::sgd> every_part{.rule = momentum,
                                             .max_norm = 1,
                                             .clip_value = 0.05,
                                             .loss_scaling = {.initial = 1024, .growth_interval = 5},
                                             .average = 0.9};
  for (int chosen = 0; chosen < gradus_test::all_combinations; ++chosen) {
    const optim::update<optim::sgd> rule = gradus_test::with_parts(every_part, chosen);
    const outcome want = run_alone(rule);
    const auto check = [&](int count, const auto& strategy, std::string_view name) {
      require_same(gradus::comm::run_ranks(count, [&](auto& world) { return run(world, rule, strategy); }), want,
                   std::string{name} + ", combination " + std::to_string(chosen), rule.max_norm.has_value());
    };
    check(2, parallel::all_reduce{.bucket_bytes = 500, .first_bucket_bytes = 500, .overlap_forward = true},
          "all_reduce");
    check(3, parallel::sharded_update{}, "sharded_update in memory");
    require_same(
        gradus::comm::run_ranks(2,
                                [&](gradus::comm::threads& world) {
                                  gradus::comm::collectives around{world.duplicate()};
                                  return run(around, rule,
                                             parallel::sharded_update{.bucket_bytes = 500, .first_bucket_bytes = 500});
                                }),
        want, "sharded_update by messages", rule.max_norm.has_value());
    check(2, parallel::model_averaging{.synchronous_steps = 1000}, "model_averaging, synchronous");
    if (!rule.loss_scaling.enabled) {
      outcome of_servers = want;
      of_servers.averages.clear();  // they are on the servers, and so are the norms
      require_same(gradus::comm::run_ranks(
                       1, [&](auto& world) { return run(world, rule, parallel::parameter_server{.colocate = true}); }),
                   of_servers, "a server beside its worker, combination " + std::to_string(chosen), false);
    }
  }
}

BOOST_AUTO_TEST_CASE(servers_refuse_a_scaled_loss) {
  const optim::update<optim::sgd> rule{.loss_scaling = {}};
  for (const int ranks : {1, 3}) {
    BOOST_CHECK_EXCEPTION(
        gradus::comm::run_ranks(ranks,
                                [&](auto& world) {
                                  return run(world, rule,
                                             parallel::parameter_server{.servers = 1, .colocate = world.size() == 1});
                                }),
        gradus::configuration_error, [](const gradus::configuration_error& failure) {
          return contains(failure.what(), "scale") && contains(failure.what(), "parallel::sharded_update");
        });
  }
}

// With 16 bits and a scaled loss: the same bits on all ranks, and norms of gradients without the scale.
BOOST_AUTO_TEST_CASE(scaled_losses_are_clipped_alike_on_all_ranks) {
  const norm_rule rule{.rule = momentum, .max_norm = 1, .loss_scaling = {.initial = 1024, .dynamic = false}};
  gradus::comm::self alone;
  const outcome want = run<gradus::float16>(alone, by_norm, parallel::all_reduce{});
  const outcome one = run<gradus::float16>(alone, rule, parallel::all_reduce{});
  BOOST_TEST(one.norms.size() == want.norms.size());
  BOOST_TEST(std::abs(one.norms.front() - want.norms.front()) < 1e-2 * want.norms.front());
  const auto ranks = gradus::comm::run_ranks(
      3, [&](auto& world) { return run<gradus::float16>(world, rule, parallel::all_reduce{.bucket_bytes = 64}); });
  for (const outcome& rank : ranks) {
    BOOST_TEST((rank.weights == ranks.front().weights));
    BOOST_TEST((rank.norms == ranks.front().norms));
    BOOST_TEST(std::abs(rank.norms.front() - one.norms.front()) < 1e-2 * one.norms.front());
  }
}

// Between averages a rank clips its own gradient: the norms differ.
BOOST_AUTO_TEST_CASE(with_model_averaging_a_rank_clips_its_own_gradient) {
  const auto ranks = gradus::comm::run_ranks(
      2, [](auto& world) { return run(world, by_norm, parallel::model_averaging{.every_steps = 1}); });
  BOOST_TEST((ranks[0].weights == ranks[1].weights));
  BOOST_TEST(ranks[0].norms.size() == 21U);
  BOOST_TEST((ranks[0].norms != ranks[1].norms));
}

BOOST_AUTO_TEST_CASE(servers_that_never_have_one_step_together_refuse_the_norm) {
  using parallel::parameter_server;
  using parallel::server_mode;
  const auto message_of = [](const parameter_server& options, int ranks) {
    try {
      gradus::comm::run_ranks(ranks, [&](auto& world) { return run(world, by_norm, options); });
    } catch (const gradus::configuration_error& failure) {
      return std::string{failure.what()};
    }
    return std::string{};
  };
  for (const server_mode mode : {server_mode::asynchronous, server_mode::bounded_staleness, server_mode::compat}) {
    const std::string message = message_of({.servers = 1, .mode = mode}, 2);
    BOOST_TEST(contains(message, "synchronous servers without backup workers"), message);
    BOOST_TEST(contains(message, ".clip_value of optim::update clips in every mode"), message);
  }
  BOOST_TEST(contains(message_of({.servers = 1, .backup_workers = 1}, 3), "without backup workers"));
  const auto ranks = gradus::comm::run_ranks(2, [](auto& world) {
    return run(world, by_value, parameter_server{.servers = 1, .mode = server_mode::asynchronous});
  });
  BOOST_TEST(!ranks[0].weights.empty());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace clipped_training

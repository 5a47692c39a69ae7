// SPDX-License-Identifier: BSL-1.0
//
// Parameter servers: synchronous training computes what one process computes; other modes do what they say.
#include "gradus/parameter_server/parameter_server.hpp"
#include "gradus/comm/any_communicator.hpp"

#include <atomic>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <mutex>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "../../support/standard_error.hpp"
#include "../../support/training_runs.hpp"
#include "../../support/waiting.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/lamb.hpp"
#include "gradus/parallel/model_averaging.hpp"
#include "gradus/parameter_server/distributed_replicated.hpp"

namespace {

using gradus::parallel::parameter_server;
using gradus::parallel::placement_policy;
using gradus::parallel::server_mode;
using gradus::parallel::server_summary;
using gradus_test::comes_true;
using gradus_test::contains;
using gradus_test::largest_difference;
using gradus_test::training_result;
using gradus_test::training_setup;

/// A check on a rank: Boost.Test is for one thread at a time.
void check(bool holds, std::string_view what) {
  static std::mutex mutex;
  const std::scoped_lock lock{mutex};
  BOOST_CHECK_MESSAGE(holds, what);
}

constexpr gradus::optim::sgd plain{.momentum = 0.0, .weight_decay = 0.0};

const training_result& one_process() {
  static const training_result result = [] {
    gradus::comm::self alone;
    return gradus_test::run_training<gradus::nhwc>(alone);
  }();
  return result;
}

constexpr std::uint64_t parts = 6;   // of the network, unless they are cut
constexpr std::uint64_t steps = 35;  // of a training

struct outcome {
  training_result training;
  std::vector<server_summary> servers;  // as worker 0 has asked for them at the end, or what a server returns
  bool worker = false;
};

/// What one rank does, worker or server.
template <class Strategy>
outcome train_or_serve(gradus::comm::threads& world, const Strategy& options, const training_setup& setup = {}) {
  outcome result;
  if (options.is_server_only(world)) {
    result.servers.push_back(gradus::parallel::serve<double>(world, setup.rule, options));
    return result;
  }
  const gradus::parallel::roles who = options.roles_among(world.size());
  result.worker = true;
  result.training = gradus_test::run_training_with<gradus::nhwc>(
      world, setup, options, {.rank = who.worker_index(world.rank()), .ranks = static_cast<int>(who.workers.size())},
      [&](auto& trainer) {
        if (world.rank() == who.workers.front()) {
          result.servers = trainer.template strategy<std::remove_cvref_t<decltype(options)>>().summary();
        }
      });
  return result;
}

template <class Strategy>
std::vector<outcome> train(int ranks, const Strategy& options, const training_setup& setup = {}) {
  return gradus::comm::run_ranks(ranks, [&](auto& world) { return train_or_serve(world, options, setup); });
}

std::uint64_t pushes_of(const server_summary& server) {
  return std::accumulate(std::begin(server.staleness), std::end(server.staleness), std::uint64_t{0});
}

void require_weights(const std::vector<outcome>& results, const training_result& want) {
  for (const outcome& rank : results) {
    if (rank.worker) {
      BOOST_TEST(largest_difference(rank.training.weights, want.weights) < 1e-9);
    }
  }
}

/// A callback of one worker: `before` is called before its first step, `after` with the number of each step done.
template <class Before, class After>
struct watcher {
  const Before& before;
  const After& after;
  void on_start(const gradus::train::run_information& run) const { before(run.rank); }
  void on_step(const gradus::train::step_report& step) const { after(static_cast<int>(step.step) + 1); }
};

/// Trains the small network on a worker whose steps are watched. Returns the weights.
template <class Strategy, class Before, class After>
outcome train_watched(gradus::comm::threads& world, const Strategy& options, const Before& before, const After& after) {
  outcome result;
  const gradus::parallel::roles who = options.roles_among(world.size());
  if (options.is_server_only(world)) {
    result.servers.push_back(gradus::parallel::serve<double>(world, plain, options));
    return result;
  }
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::data::loader<double, gradus::nhwc> loader{
      device,
      gradus_test::small_dataset(),
      {.global_batch_size = 8,
       .seed = 11,
       .shard = {.rank = who.worker_index(world.rank()), .ranks = static_cast<int>(who.workers.size())}}};
  gradus::nn::network<double, gradus::nhwc> net{device, {2, 9, 8}};
  gradus_test::build_training_network(net);
  net.compile({.max_batch_size = loader.local_batch_size(), .seed = 11});
  gradus::train::trainer trainer{net, plain, world, options};
  trainer.fit(loader, {.epochs = 5, .learning_rate = 0.05}, watcher<Before, After>{before, after});
  result.worker = true;
  result.training.weights.assign(net.values().begin(), net.values().end());
  return result;
}

/// What one rank of a training with another rule has at the end; a server has no weights.
template <class Rule>
std::vector<std::vector<double>> weights_with(const Rule& rule, const parameter_server& options) {
  const gradus_test::training_setup_with<Rule> setup{.epochs = 2, .learning_rate = 0.01, .rule = rule};
  return gradus::comm::run_ranks(3, [&](gradus::comm::threads& world) {
    if (options.is_server_only(world)) {
      static_cast<void>(gradus::parallel::serve<double>(world, rule, options));
      return std::vector<double>{};
    }
    const gradus::parallel::roles who = options.roles_among(world.size());
    return gradus_test::run_training_with<gradus::nhwc>(
               world, setup, options,
               {.rank = who.worker_index(world.rank()), .ranks = static_cast<int>(who.workers.size())})
        .weights;
  });
}

/// One process whose gradients are one step late: what staged workers compute.
struct late_gradients {
  static constexpr std::string_view name = "late_gradients";

  template <class Element>
  class state final : public gradus::parallel::strategy<Element> {
   public:
    state(const late_gradients&, const gradus::comm::any_communicator&,
          const gradus::parallel::flat_parameters<Element>& parameters)
        : parameters_{parameters} {}
    void start() override { newest_.assign(parameters_.values.begin(), parameters_.values.end()); }
    void finish(const gradus::parallel::update_call& update) override {
      const std::vector<Element> before = newest_;
      std::copy(before.begin(), before.end(), parameters_.values.begin());
      update(parameters_.segments);
      newest_.assign(parameters_.values.begin(), parameters_.values.end());
      std::copy(before.begin(), before.end(), parameters_.values.begin());
    }
    void complete() override { std::copy(newest_.begin(), newest_.end(), parameters_.values.begin()); }
    std::string describe() const override { return "late_gradients"; }

   private:
    gradus::parallel::flat_parameters<Element> parameters_;
    std::vector<Element> newest_;
  };
};

std::string failure_of_ranks(int ranks, const parameter_server& options, const training_setup& of_rank_1) {
  try {
    gradus::comm::run_ranks(
        ranks, [&](auto& world) { train_or_serve(world, options, world.rank() == 1 ? of_rank_1 : training_setup{}); });
  } catch (const gradus::error& failure) {
    return failure.what();
  }
  return "no failure";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(parameter_servers)

BOOST_AUTO_TEST_CASE(synchronous_training_reaches_the_weights_of_one_process) {
  using enum placement_policy;
  struct shape {
    int ranks;
    parameter_server options;
  };
  const std::vector<shape> shapes{
      {1, {.colocate = true}},
      {2, {}},
      {3, {.servers = 2, .placed = {.policy = greedy}}},
      {4, {.servers = 1, .placed = {.policy = round_robin}}},
      {2, {.servers = 0, .colocate = true, .placed = {.policy = longest_first}}},
      {3, {.servers = 2, .colocate = true, .placed = {.least_part_bytes = 64}}},
      {4, {.servers = 0, .colocate = true, .placed = {.least_part_bytes = 64, .parts_per_server = 3}}},
      {3, {.placed = {.least_part_bytes = 64}, .overlap_forward = true, .pull_priorities = {2, 3, 4, 5, 0, 1}}},
      {4, {.who = {.workers = {3, 1}, .servers = {0, 3, 2}}, .window = 1, .pull_priorities = {5, 4, 3, 2, 1, 0}}},
  };
  for (const shape& each : shapes) {
    const auto results = train(each.ranks, each.options);
    BOOST_TEST_CONTEXT(each.ranks << " ranks, " << each.options.roles_among(each.ranks).describe()) {
      require_weights(results, one_process());
      for (const outcome& rank : results) {
        if (rank.worker) {
          BOOST_TEST(largest_difference(rank.training.losses, one_process().losses) < 1e-10);
          BOOST_TEST(rank.training.accuracy == one_process().accuracy);
        }
        for (const server_summary& server : rank.servers) {
          BOOST_TEST(server.staleness[0] == pushes_of(server));
          BOOST_TEST(server.dropped == 0U);
        }
      }
    }
  }
}

// Each server counts the steps of each of its parts.
template <class Rule>
void check_rule_on_servers(const Rule& rule, const parameter_server& options) {
  gradus::comm::self alone;
  const gradus_test::training_setup_with<Rule> setup{.epochs = 2, .learning_rate = 0.01, .rule = rule};
  const training_result want = gradus_test::run_training<gradus::nhwc>(alone, setup);
  for (const std::vector<double>& weights : weights_with(rule, options)) {
    if (!weights.empty()) {
      BOOST_TEST(largest_difference(weights, want.weights) < 1e-8);
    }
  }
}

BOOST_AUTO_TEST_CASE(rules_that_count_steps_reach_the_weights_of_one_process) {
  check_rule_on_servers(gradus::optim::adam{.weight_decay = 0.01},
                        {.servers = 2, .colocate = true, .placed = {.least_part_bytes = 64}});
  check_rule_on_servers(gradus::optim::lamb{}, {.servers = 1, .placed = {.policy = placement_policy::round_robin}});
}

BOOST_AUTO_TEST_CASE(a_server_counts_the_bytes_of_its_variables) {
  const auto results = train(3, parameter_server{.servers = 2, .colocate = true, .placed = {.least_part_bytes = 64}});
  std::uint64_t total = 0;
  for (const server_summary& server : results[0].servers) {
    BOOST_TEST(server.received_bytes == (3 * steps + 1) * server.variable_bytes);  // worker 0 sends the first values
    BOOST_TEST(server.sent_bytes == 3 * (steps + 1) * server.variable_bytes);
    total += server.variable_bytes;
  }
  BOOST_TEST(results[0].servers.size() == 2U);
  BOOST_TEST(total == 8 * (5 * 2 * 9 + 5 + 6 * 5 * 9 + 6 + 4 * 6 + 4));
}

BOOST_AUTO_TEST_CASE(staged_gradients_are_one_step_late) {
  gradus::comm::self alone;
  const training_setup setup{.learning_rate = 0.05};
  const auto want = gradus_test::run_training_with<gradus::nhwc>(alone, setup, late_gradients{}, {});
  BOOST_TEST(largest_difference(want.weights, one_process().weights) > 1e-3);
  for (const bool colocate : {false, true}) {
    const auto results = train(3, parameter_server{.servers = 1, .colocate = colocate, .staged = true}, setup);
    require_weights(results, want);
    const server_summary& server = results[0].servers[0];
    const std::uint64_t workers = colocate ? 3 : 2;
    BOOST_TEST(server.staleness[0] == workers * parts * 5);  // the first step of each epoch has the newest values
    BOOST_TEST(server.staleness[1] == workers * parts * (steps - 5));
  }
}

BOOST_AUTO_TEST_CASE(compat_makes_a_step_for_each_worker) {
  gradus::comm::self alone;
  const training_setup setup{.learning_rate = 0.02, .rule = plain};
  const auto twice = gradus_test::run_training<gradus::nhwc>(alone, {.learning_rate = 0.04, .rule = plain});
  const parameter_server options{.mode = server_mode::compat};
  require_weights(train(3, options, setup), twice);
  const training_setup with_momentum{.learning_rate = 0.02};
  const auto other = gradus_test::run_training<gradus::nhwc>(alone, {.learning_rate = 0.04});
  BOOST_TEST(largest_difference(train(3, options, with_momentum)[0].training.weights, other.weights) > 1e-3);
}

BOOST_AUTO_TEST_CASE(one_asynchronous_worker_is_one_process) {
  const auto results = train(2, parameter_server{.mode = server_mode::asynchronous});
  require_weights(results, one_process());
  BOOST_TEST(results[1].servers[0].staleness[0] == parts * steps);
}

BOOST_AUTO_TEST_CASE(asynchronous_staleness_counts_the_updates_that_were_missed) {
  std::atomic<int> done{0};
  const auto results = gradus::comm::run_ranks(3, [&](gradus::comm::threads& world) {
    return train_watched(
        world, parameter_server{.mode = server_mode::asynchronous},
        [&](int worker) {
          check(worker == 0 || comes_true([&] { return done == static_cast<int>(steps); }),
                "worker == 0 || comes_true([&] { return done == static_cast<int>(steps); })");
        },
        [&](int step) { done = world.rank() == 0 ? step : done.load(); });
  });
  const server_summary& server = results[2].servers[0];
  BOOST_TEST(server.staleness[steps] == parts);  // the second worker's first push comes after all of the first's
  BOOST_TEST(server.staleness[0] == (2 * steps - 1) * parts);
  BOOST_TEST(server.updates == 2 * steps * parts);
}

BOOST_AUTO_TEST_CASE(bounded_staleness_holds_back_who_is_ahead) {
  std::atomic<int> done{0};
  const auto results = gradus::comm::run_ranks(3, [&](gradus::comm::threads& world) {
    return train_watched(
        world, parameter_server{.mode = server_mode::bounded_staleness, .staleness_bound = 2},
        [&](int worker) {
          if (worker == 1) {
            check(comes_true([&] { return done == 2; }), "comes_true([&] { return done == 2; })");
            std::this_thread::sleep_for(std::chrono::milliseconds{100});
            check(done == 2, "done == 2");  // its third push waits for an answer
          }
        },
        [&](int step) { done = world.rank() == 0 ? step : done.load(); });
  });
  const server_summary& server = results[2].servers[0];
  BOOST_TEST(server.staleness[3] >= parts);
  BOOST_TEST(pushes_of(server) == 2 * steps * parts);
}

BOOST_AUTO_TEST_CASE(a_step_with_backup_workers_drops_who_is_late) {
  std::atomic<int> done{0};
  const auto results = gradus::comm::run_ranks(4, [&](gradus::comm::threads& world) {
    return train_watched(
        world, parameter_server{.backup_workers = 1},
        [&](int worker) {
          check(worker != 2 || comes_true([&] { return done >= 3; }),
                "worker != 2 || comes_true([&] { return done >= 3; })");
        },
        [&](int step) { done = world.rank() == 0 ? step : done.load(); });
  });
  const server_summary& server = results[3].servers[0];
  BOOST_TEST(server.dropped >= 1U);  // the third worker's first push comes after the others' first step
  // Two of three count in a step, and one or two where workers have ended: each push counts or is dropped.
  BOOST_TEST(pushes_of(server) + parts * server.dropped == 3 * steps * parts);
  BOOST_TEST(server.staleness[0] == pushes_of(server));
}

BOOST_AUTO_TEST_CASE(a_silent_worker_costs_only_its_own_work) {
  for (const parameter_server& options :
       {parameter_server{.mode = server_mode::asynchronous}, parameter_server{.mode = server_mode::bounded_staleness},
        parameter_server{.backup_workers = 1}}) {
    std::atomic<int> others{0};
    std::vector<outcome> results;
    const std::string said = gradus_test::standard_error_of([&] {
      results = gradus::comm::run_ranks(4, [&](gradus::comm::threads& world) {
        world.set_time_limit(std::chrono::milliseconds{800});
        outcome result;
        try {
          result = train_watched(
              world, options,
              [&](int worker) {
                if (worker == 1) {  // it does nothing until the others have gone
                  check(comes_true([&] { return others == 3; }), "comes_true([&] { return others == 3; })");
                  throw std::runtime_error{"killed"};
                }
              },
              [](int) {});
        } catch (const std::exception&) {
          check(world.rank() == 1, "world.rank() == 1");
        }
        ++others;
        check(comes_true([&] { return others == 4; }), "comes_true([&] { return others == 4; })");
        return result;
      });
    });
    BOOST_TEST(contains(said,
                        "gradus: parameter server on rank 3: nothing has come from the worker on rank 1 for 0.6 s; the "
                        "training goes on without it\n"));
    BOOST_TEST(results[0].worker);
    BOOST_TEST(results[2].worker);
    const server_summary& server = results[3].servers[0];
    BOOST_TEST(server.lost_workers == 1U);
    BOOST_TEST(server.left_workers == 2U);
    BOOST_TEST(server.updates == (options.backup_workers > 0 ? steps : 2 * steps) * parts);
  }
}

BOOST_AUTO_TEST_CASE(a_worker_that_throws_leaves_the_others_alone) {
  std::atomic<bool> thrown{false};
  const auto results = gradus::comm::run_ranks(3, [&](gradus::comm::threads& world) {
    try {
      return train_watched(
          world, parameter_server{.mode = server_mode::asynchronous},
          [&](int worker) {
            check(worker != 0 || comes_true([&] { return thrown.load(); }),
                  "worker != 0 || comes_true([&] { return thrown.load(); })");
          },
          [&](int step) {
            if (world.rank() == 1 && step == 4) {
              throw std::runtime_error{"no more"};
            }
          });
    } catch (const std::runtime_error& failure) {
      check(std::string{failure.what()} == "no more", "std::string{failure.what()} == \"no more\"");
      thrown = true;
      return outcome{};
    }
  });
  const server_summary& server = results[2].servers[0];
  BOOST_TEST(server.updates == (steps + 4) * parts);
  BOOST_TEST(server.left_workers == 2U);
  BOOST_TEST(server.lost_workers == 0U);
}

BOOST_AUTO_TEST_CASE(a_step_that_is_not_finished_does_not_count) {
  const std::vector<gradus::optim::segment> segments{{.name = "b.weights", .offset = 0, .size = 3},
                                                     {.name = "a.weights", .offset = 3, .size = 2}};
  gradus::comm::run_ranks(2, [&](gradus::comm::threads& world) {
    const parameter_server options{.mode = server_mode::asynchronous};
    if (options.is_server_only(world)) {
      const server_summary server = gradus::parallel::serve<double>(world, plain, options);
      check(server.dropped == 1U, "server.dropped == 1U");
      check(server.updates == 0U, "server.updates == 0U");
      check(server.left_workers == 1U, "server.left_workers == 1U");
      return;
    }
    std::vector<double> values(5, 1.0);
    std::vector<double> gradients(5, 1.0);
    parameter_server::state<double> state{options, world, {values, gradients, segments}};
    gradus::cpu device{{.intra_op_threads = 1}};
    gradus::optim::parameter_update_of<gradus::optim::sgd, double> applied{device, plain, 0};
    state.use(applied);
    state.start();
    state.gradients_ready(0, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds{300});  // it is sent; then the program goes another way
  });
}

BOOST_AUTO_TEST_CASE(a_missing_worker_is_named_on_all_ranks) {
  std::atomic<int> failed{0};
  std::vector<std::string> messages(4);
  try {
    gradus::comm::run_ranks(4, [&](gradus::comm::threads& world) {
      world.set_time_limit(std::chrono::milliseconds{800});
      try {
        train_watched(
            world, parameter_server{},
            [&](int worker) {
              if (worker == 1) {
                check(comes_true([&] { return failed == 3; }), "comes_true([&] { return failed == 3; })");
                throw std::runtime_error{"killed"};
              }
            },
            [](int) {});
      } catch (const gradus::communication_error& failure) {
        messages[static_cast<std::size_t>(world.rank())] = failure.what();
        ++failed;
        throw;
      }
    });
  } catch (const std::exception&) {
  }
  for (const std::size_t rank : {0U, 2U, 3U}) {
    BOOST_TEST(contains(messages[rank], "push of the gradient of 'scores."), messages[rank]);
    BOOST_TEST(contains(messages[rank], "rank 1 did not arrive within 0.6 s"), messages[rank]);
  }
}

BOOST_AUTO_TEST_CASE(ranks_that_disagree_get_an_error) {
  const std::string rule =
      failure_of_ranks(3, {.servers = 1, .who = {.workers = {0, 2}, .servers = {1}}}, {.rule = {.momentum = 0.5}});
  BOOST_TEST(contains(rule, "the same update rule on all ranks"), rule);
  const std::string roles = failure_of_ranks(2, {.backup_workers = 1}, {});
  BOOST_TEST(contains(roles, "0 to 0 backup_workers"), roles);
  const std::string both = failure_of_ranks(2, {.staged = true, .overlap_forward = true}, {});
  BOOST_TEST(contains(both, "staged or overlap_forward"), both);
}

BOOST_AUTO_TEST_CASE(replicas_of_nodes_reach_the_weights_of_one_process) {
  using gradus::parallel::distributed_replicated;
  const std::vector<distributed_replicated> shapes{
      {.master = {.servers = 1}, .ranks_per_node = 2},
      {.master = {.servers = 1, .colocate = true}, .ranks_per_node = 4},
      {.master = {.who = {.workers = {0, 1, 2, 3}, .servers = {0, 1}}}, .node_of_rank = {0, 1, 0, 1}},
  };
  for (const distributed_replicated& each : shapes) {
    const auto results = train(4, each);
    require_weights(results, one_process());
    const std::uint64_t nodes = each.ranks_per_node == 4 ? 1 : 2;
    BOOST_TEST(results[0].servers[0].received_bytes == (nodes * steps + 1) * results[0].servers[0].variable_bytes);
  }
  gradus::comm::self alone;
  const training_setup setup{.learning_rate = 0.05};
  require_weights(
      train(4, distributed_replicated{.master = {.servers = 1, .staged = true}, .ranks_per_node = 2}, setup),
      gradus_test::run_training_with<gradus::nhwc>(alone, setup, late_gradients{}, {}));
}

BOOST_AUTO_TEST_CASE(averages_of_models) {
  using gradus::parallel::model_averaging;
  const auto run = [](int ranks, const model_averaging& options) {
    return gradus::comm::run_ranks(ranks, [&](gradus::comm::threads& world) {
      return gradus_test::run_training_with<gradus::nhwc>(world, {}, options,
                                                          {.rank = world.rank(), .ranks = world.size()});
    });
  };
  // After every step: the same as one process, because sgd is linear in the gradients.
  for (const model_averaging& options : {model_averaging{.every_steps = 1}, model_averaging{.synchronous_steps = 35}}) {
    for (const training_result& rank : run(3, options)) {
      BOOST_TEST(largest_difference(rank.weights, one_process().weights) < 1e-9);
    }
  }
  BOOST_TEST(largest_difference(run(1, {})[0].weights, one_process().weights) == 0.0);
  for (const model_averaging& options :
       {model_averaging{.every_steps = 3, .synchronous_steps = 4}, model_averaging{.every_steps = 0}}) {
    const auto results = run(2, options);
    BOOST_TEST((results[0].weights == results[1].weights));
    BOOST_TEST(largest_difference(results[0].weights, one_process().weights) > 1e-3);
    BOOST_TEST(results[0].losses.back() < 0.9 * results[0].losses.front());
  }
}

BOOST_AUTO_TEST_SUITE_END()

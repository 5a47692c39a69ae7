// SPDX-License-Identifier: BSL-1.0
//
// A training that goes on from a captured state is the undisturbed one, to the bit, with every strategy.
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "../../support/state_runs.hpp"
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/compressed_all_reduce.hpp"
#include "gradus/parallel/int8_blocks.hpp"
#include "gradus/parallel/model_averaging.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/parameter_server/distributed_replicated.hpp"
#include "gradus/parameter_server/parameter_server.hpp"

namespace {

using clipped_adam = gradus::optim::update<gradus::optim::adam>;
constexpr gradus::optim::sgd momentum_rule{.momentum = 0.9, .nesterov = true, .weight_decay = 0.01};

template <class Communicator, class Strategy>
void check_strategy(int least_ranks, const Strategy& options, bool undisturbed = false) {
  const auto strategy = gradus_test::strategy_of<float, Communicator>(options);
  for (int ranks = least_ranks; ranks <= 4; ++ranks) {
    for (const std::uint64_t step : {3U, 10U}) {
      gradus_test::check_resumed<float>(ranks, gradus_test::rule_of<float>(momentum_rule), strategy,
                                        {.capture_after = step}, undisturbed);
    }
    gradus_test::check_resumed<float>(ranks, gradus_test::rule_of<float>(clipped_adam{.max_norm = 0.5}), strategy,
                                      {.capture_after = 9}, undisturbed);
    gradus_test::check_resumed<float, gradus::nchw>(ranks, gradus_test::rule_of<float>(gradus::optim::adam{}), strategy,
                                                    {.capture_after = 8, .capture_at_end_of_epoch = true}, undisturbed);
  }
}

/// With servers on ranks of their own, the last ones.
template <class Strategy>
void check_servers(int ranks, int servers, const Strategy& options) {
  const auto check = [&](const auto& rule) {
    gradus_test::check_resumed<float>(ranks, gradus_test::rule_of<float>(rule),
                                      gradus_test::strategy_of<float, gradus::comm::threads>(options),
                                      {.capture_after = 10}, true, servers, [&](gradus::comm::threads& world) {
                                        if (!options.is_server_only(world)) {
                                          return false;
                                        }
                                        static_cast<void>(gradus::parallel::serve<float>(world, rule, options));
                                        return true;
                                      });
  };
  check(momentum_rule);
  check(gradus::optim::adam{});
}

}  // namespace

BOOST_AUTO_TEST_SUITE(state_strategies)

BOOST_AUTO_TEST_CASE(all_reduce_behind_forward) {
  check_strategy<gradus::comm::threads>(
      1,
      gradus::parallel::all_reduce{
          .bucket_bytes = 200, .first_bucket_bytes = 1, .partition_bytes = 100, .overlap_forward = true},
      true);
}

BOOST_AUTO_TEST_CASE(compressed_all_reduce) {
  check_strategy<gradus::comm::threads>(2, gradus::parallel::compressed_all_reduce<>{}, true);
}

BOOST_AUTO_TEST_CASE(what_8_bits_have_lost) {
  check_strategy<gradus::comm::threads>(
      2, gradus::parallel::compressed_all_reduce<gradus::parallel::int8_blocks>{{.bucket_bytes = 200}}, true);
}

BOOST_AUTO_TEST_CASE(sharded_update_in_shared_memory) {
  check_strategy<gradus::comm::threads>(1, gradus::parallel::sharded_update{}, true);
}

BOOST_AUTO_TEST_CASE(sharded_update_by_messages) {
  check_strategy<gradus::comm::collectives<gradus::comm::threads>>(
      1, gradus::parallel::sharded_update{.bucket_bytes = 500, .first_bucket_bytes = 100}, true);
}

BOOST_AUTO_TEST_CASE(model_averaging) {
  check_strategy<gradus::comm::threads>(1, gradus::parallel::model_averaging{.every_steps = 4}, true);
  check_strategy<gradus::comm::threads>(2, gradus::parallel::model_averaging{.synchronous_steps = 5}, true);
  check_strategy<gradus::comm::threads>(2, gradus::parallel::model_averaging{.synchronous_steps = 12}, true);
}

BOOST_AUTO_TEST_CASE(outer_optimizer) {
  check_strategy<gradus::comm::threads>(1, gradus::parallel::model_averaging{.every_steps = 4, .outer = momentum_rule},
                                        true);
  check_strategy<gradus::comm::threads>(
      2,
      gradus::parallel::model_averaging{
          .synchronous_steps = 5, .outer = gradus::optim::adam{}, .outer_learning_rate = 0.02},
      true);
}

BOOST_AUTO_TEST_CASE(parameter_servers_beside_workers) {
  check_strategy<gradus::comm::threads>(1, gradus::parallel::parameter_server{.servers = 0, .colocate = true}, true);
  check_strategy<gradus::comm::threads>(
      1, gradus::parallel::parameter_server{.servers = 1, .colocate = true, .overlap_forward = true}, true);
}

// The values under way arrive when the state is taken: the training that goes on does the same.
BOOST_AUTO_TEST_CASE(staged_parameter_servers) {
  check_strategy<gradus::comm::threads>(
      1, gradus::parallel::parameter_server{.servers = 1, .colocate = true, .staged = true});
}

BOOST_AUTO_TEST_CASE(parameter_servers_on_ranks_of_their_own) {
  check_servers(2, 1, gradus::parallel::parameter_server{.servers = 1});
  check_servers(4, 2, gradus::parallel::parameter_server{.servers = 2});
  check_servers(4, 1,
                gradus::parallel::parameter_server{
                    .servers = 1, .placed = {.policy = gradus::parallel::placement_policy::partitioned}});
}

BOOST_AUTO_TEST_CASE(parameter_servers_of_nodes) {
  check_servers(3, 1, gradus::parallel::distributed_replicated{.master = {.servers = 1}, .ranks_per_node = 2});
  check_servers(
      4, 0, gradus::parallel::distributed_replicated{.master = {.servers = 1, .colocate = true}, .ranks_per_node = 2});
}

BOOST_AUTO_TEST_SUITE_END()

// SPDX-License-Identifier: BSL-1.0
//
// Parameter servers: synchronous training computes what one process computes; other modes do what they say.
#include "gradus/parallel/parameter_server.hpp"

#include <boost/test/unit_test.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "../../support/training_runs.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"

namespace {

using gradus::parallel::parameter_server;
using gradus::parallel::placement_policy;
using gradus::parallel::server_mode;
using gradus::parallel::server_summary;
using gradus_test::largest_difference;
using gradus_test::training_result;
using gradus_test::training_setup;

constexpr gradus::optim::sgd plain{.momentum = 0.0, .weight_decay = 0.0};

const training_result& one_process() {
  static const training_result result = [] {
    gradus::comm::self alone;
    return gradus_test::run_training<gradus::nhwc>(alone);
  }();
  return result;
}

struct outcome {
  training_result training;
  std::vector<server_summary> servers;  // as worker 0 has asked for them at the end, or what a server returns
  bool worker = false;
};

/// What one rank does, worker or server.
outcome train_or_serve(gradus::comm::threads& world, const parameter_server& options, const training_setup& setup = {}) {
  outcome result;
  if (options.is_server_only(world)) {
    result.servers.push_back(gradus::parallel::serve<double>(world, setup.rule, options));
    return result;
  }
  const gradus::parallel::roles who = options.roles_among(world.size());
  result.worker = true;
  result.training = gradus_test::run_training_with<gradus::nhwc>(
      world, setup, options,
      {.rank = who.worker_index(world.rank()), .ranks = static_cast<int>(who.workers.size())}, [&](auto& trainer) {
        if (world.rank() == 0) {
          result.servers = trainer.synchronization().summary();
        }
      });
  return result;
}

std::vector<outcome> train(int ranks, const parameter_server& options, const training_setup& setup = {}) {
  return gradus::comm::run_ranks(ranks, [&](auto& world) { return train_or_serve(world, options, setup); });
}

std::uint64_t pushes_of(const server_summary& server) {
  return std::accumulate(std::begin(server.staleness), std::end(server.staleness), std::uint64_t{0});
}

constexpr placement_policy policies[] = {placement_policy::round_robin, placement_policy::greedy,
                                         placement_policy::longest_first, placement_policy::partitioned};

}  // namespace

BOOST_AUTO_TEST_SUITE(parameter_servers)

BOOST_AUTO_TEST_CASE(synchronous_training_reaches_the_weights_of_one_process) {
  struct shape {
    int ranks;
    parameter_server options;
  };
  const std::vector<shape> shapes{
      {1, {.colocate = true}},
      {2, {}},
      {3, {.servers = 2, .placed = {.policy = placement_policy::greedy}}},
      {4, {.servers = 1, .placed = {.policy = placement_policy::round_robin}}},
      {2, {.servers = 0, .colocate = true, .placed = {.policy = placement_policy::longest_first}}},
      {3, {.servers = 2, .colocate = true, .placed = {.least_part_bytes = 64}}},
      {4, {.servers = 0, .colocate = true, .placed = {.least_part_bytes = 64, .parts_per_server = 3}}},
      {3, {.placed = {.least_part_bytes = 64}, .overlap_forward = true, .pull_priorities = {2, 3, 4, 5, 0, 1}}},
      {4, {.who = {.workers = {3, 1}, .servers = {0, 3, 2}}, .window = 1, .pull_priorities = {5, 4, 3, 2, 1, 0}}},
  };
  for (const shape& each : shapes) {
    const auto results = train(each.ranks, each.options);
    for (const outcome& rank : results) {
      BOOST_TEST_CONTEXT(each.ranks << " ranks, " << each.options.roles_among(each.ranks).describe()) {
        if (rank.worker) {
          BOOST_TEST(largest_difference(rank.training.weights, one_process().weights) < 1e-9);
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

BOOST_AUTO_TEST_SUITE_END()

// SPDX-License-Identifier: BSL-1.0
//
// Replays of parameter servers against bounds and closed forms, and on random plans.
#include <boost/test/unit_test.hpp>

#include <algorithm>  // std::max, std::min
#include <cstddef>    // std::size_t
#include <utility>    // std::pair
#include <vector>     // std::vector

#include "gradus/core/error.hpp"
#include "gradus/parameter_server/mode.hpp"
#include "gradus/parameter_server/placement.hpp"
#include "gradus/sim/server_training.hpp"
#include "sweep.hpp"
#include "workloads.hpp"

namespace {

namespace parallel = gradus::parallel;
namespace sim = gradus::sim;
using gradus::index_t;
using gradus_test::simulated_cluster;
using gradus_test::simulated_workload;

/// Adding and messages cost nothing.
sim::cluster only_links() {
  sim::cluster cluster = simulated_cluster();
  cluster.message_seconds = 0;
  cluster.adding = 1e15;
  return cluster;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(simulated_servers)

BOOST_AUTO_TEST_CASE(one_worker_pushes_behind_backward_and_pulls_after_it) {
  const sim::cluster cluster = only_links();
  const sim::workload work = simulated_workload({1250000}, 3e-3, 5e-3);
  const double travel = 5e6 / 1.25e9 + cluster.network.latency;
  const auto found = sim::replay_servers(cluster, work, {.placed = {.policy = parallel::placement_policy::greedy}}, 2);
  BOOST_TEST(found.seconds == 8e-3 + 2 * travel, boost::test_tools::tolerance(1e-3));
  BOOST_TEST(found.busiest_in == 5e6);
}

BOOST_AUTO_TEST_CASE(the_busiest_server_bounds_a_step) {
  // 8 workers, variables of 4, 3, 2 and 1 million elements: round robin, greedy, and rows on all servers.
  const sim::workload work = simulated_workload({4000000, 3000000, 2000000, 1000000}, 1e-5, 1e-5);
  double before = 0;
  for (const auto& [policy, busiest] :
       {std::pair{parallel::placement_policy::greedy, 20e6}, std::pair{parallel::placement_policy::round_robin, 24e6},
        std::pair{parallel::placement_policy::partitioned, 20e6}}) {
    const auto found =
        sim::replay_servers(only_links(), work, {.servers = 2, .placed = {.policy = policy}, .window = 1 << 20}, 10);
    BOOST_TEST(found.busiest_in / 8 == busiest, boost::test_tools::tolerance(0.02));
    // Gradients in, then values out; in later steps some workers push while others still pull.
    const double bound = 8 * busiest / 1.25e9;
    BOOST_TEST(found.first == 2 * bound, boost::test_tools::tolerance(0.08));
    BOOST_TEST(found.seconds >= bound);
    BOOST_TEST(found.seconds <= 2.05 * bound);
    before = std::max(before, found.seconds);
  }
  const auto more = sim::replay_servers(only_links(), work, {.servers = 8}, 16);
  BOOST_TEST(more.seconds < 0.4 * before);
}

BOOST_AUTO_TEST_CASE(whole_variables_make_a_knee_that_rows_do_not) {
  std::vector<index_t> sizes(40, 200000);
  sizes[39] = 2000000;  // one large matrix
  const sim::workload work = simulated_workload(sizes, 5e-4, 1e-3);
  const auto rate = [&](int workers, parallel::placement_policy policy) {
    return 8.0 * workers /
           sim::replay_servers(simulated_cluster(), work,
                               {.servers = workers, .colocate = true, .placed = {.policy = policy}}, workers)
               .seconds;
  };
  const double of_one = 8 / work.seconds();
  BOOST_TEST(rate(32, parallel::placement_policy::greedy) < 0.25 * 32 * of_one);
  BOOST_TEST(rate(32, parallel::placement_policy::partitioned) > 0.4 * 32 * of_one);
}

BOOST_AUTO_TEST_CASE(modes_differ_as_they_should) {
  sim::workload work = simulated_workload(std::vector<index_t>(10, 100000), 2e-3, 3e-3, 4e-3);
  sim::server_training how{.servers = 2};
  const double synchronous = sim::replay_servers(simulated_cluster(), work, how, 6).seconds;
  how.mode = parallel::server_mode::compat;  // an optimizer step for each worker
  BOOST_TEST(sim::replay_servers(simulated_cluster(), work, how, 6).seconds > synchronous + 5e-3);
  how.mode = parallel::server_mode::synchronous;
  how.overlap_forward = true;
  for (std::size_t i = 10; i-- > 0;) {
    how.pull_priorities.push_back(i);  // the first layer's values come first
  }
  BOOST_TEST(sim::replay_servers(simulated_cluster(), work, how, 6, {.steps = 6}).seconds < synchronous);
  work.variation = {0.9, 1.0, 1.5};
  how.overlap_forward = false;
  const double waits = sim::replay_servers(simulated_cluster(), work, how, 6, {.steps = 12}).seconds;
  how.mode = parallel::server_mode::asynchronous;
  const auto free = sim::replay_servers(simulated_cluster(), work, how, 6, {.steps = 12});
  BOOST_TEST(free.seconds < waits);
  BOOST_TEST(free.shares.straggler == 0);
  how.mode = parallel::server_mode::bounded_staleness;
  BOOST_CHECK_THROW(static_cast<void>(sim::replay_servers(simulated_cluster(), work, how, 6)),
                    gradus::configuration_error);
}

BOOST_AUTO_TEST_CASE(no_worker_waits_for_ever_whatever_the_plan) {
  gradus_test::sweep("no_worker_waits_for_ever_whatever_the_plan", 150, [](gradus_test::sweep_case& draw) {
    std::vector<index_t> sizes;
    const index_t layers = draw.between("layers", 1, 8);
    for (index_t i = 0; i < layers; ++i) {
      sizes.push_back(draw.between("size", 0, 60000));
    }
    sim::workload work = simulated_workload(sizes, 1e-4, 2e-4, 1e-4);
    work.variation = {0.8, 1, 1.3};
    sim::cluster cluster = simulated_cluster();
    cluster.ranks_per_host = static_cast<int>(draw.between("ranks_per_host", 1, 3));
    cluster.stolen_share = 0.5;
    cluster.carried_bytes_per_second = 3e9;
    const int workers = static_cast<int>(draw.between("workers", 1, 9));
    sim::server_training how{.servers = static_cast<int>(draw.between("servers", 1, 6)),
                             .colocate = draw.flip("colocate"),
                             .placed = {.policy = static_cast<parallel::placement_policy>(draw.between("policy", 0, 3)),
                                        .least_part_bytes = 4096},
                             .mode = draw.flip("asynchronous") ? parallel::server_mode::asynchronous
                                     : draw.flip("compat")     ? parallel::server_mode::compat
                                                               : parallel::server_mode::synchronous,
                             .window = static_cast<int>(draw.between("window", 1, 5)),
                             .overlap_forward = draw.flip("late")};
    if (how.colocate) {
      how.servers = std::min(how.servers, workers);
    }
    if (how.mode == parallel::server_mode::synchronous) {
      how.applies_as_they_come = draw.flip("applies", 3);
    }
    if (draw.flip("order")) {
      for (index_t i = 0; i < layers; ++i) {
        how.pull_priorities.push_back(static_cast<std::size_t>(draw.between("priority", 0, 20)));
      }
    }
    const int ranks = how.colocate ? workers : workers + how.servers;
    try {
      const auto found = sim::replay_servers(cluster, work, how, ranks, {.steps = 3});
      if (found.seconds < 0.7 * (work.seconds() - work.update)) {
        draw.fail("a step is shorter than what it computes");
      }
      cluster.network.bytes_per_second *= 2;
      const double faster = sim::replay_servers(cluster, work, how, ranks, {.steps = 3}).seconds;
      if (how.mode != parallel::server_mode::asynchronous && faster > 1.1 * found.seconds) {
        draw.fail("twice the bandwidth is slower");
      }
    } catch (const gradus::error& failure) {
      draw.fail(failure.what());
    }
  });
}

BOOST_AUTO_TEST_SUITE_END()

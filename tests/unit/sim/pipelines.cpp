// SPDX-License-Identifier: BSL-1.0
//
// Replays of pipelines against simulate_schedule, and of schedules that would hang.
#include <boost/test/unit_test.hpp>

#include <cmath>   // std::abs
#include <vector>  // std::vector

#include "gradus/core/error.hpp"
#include "gradus/pipeline/schedule.hpp"
#include "gradus/pipeline/simulated_schedule.hpp"
#include "gradus/sim/pipeline_training.hpp"
#include "sweep.hpp"
#include "workloads.hpp"

namespace {

namespace parallel = gradus::parallel;
namespace sim = gradus::sim;
using gradus::index_t;
using gradus_test::simulated_cluster;

/// Links and threads that take no time.
sim::cluster without_links() {
  return {.network = {.bytes_per_second = 1e18, .latency = 0},
          .inside = {.bytes_per_second = 1e18, .latency = 0},
          .message_seconds = 0,
          .adding = 1e18};
}

parallel::pipeline_schedule schedule_of(index_t kind, int ranks, int micro_batches) {
  switch (kind) {
    case 0:
      return parallel::gpipe_schedule(ranks, micro_batches);
    case 1:
      return parallel::one_f_one_b_schedule(ranks, micro_batches);
    case 2:
      return parallel::zero_bubble_schedule(ranks, micro_batches);
    default:
      return parallel::interleaved_schedule(ranks, micro_batches, 2);
  }
}

sim::pipeline_training even_pipeline(const parallel::pipeline_schedule& schedule, int replicas = 1) {
  sim::pipeline_training how{.schedule = schedule, .replicas = replicas};
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    how.stages.push_back({.costs = {.forward = 1e-3, .input_gradients = 1e-3, .weight_gradients = 1e-3},
                          .sent_bytes = 1e5,
                          .elements = 500000});
  }
  return how;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(simulated_pipelines)

BOOST_AUTO_TEST_CASE(without_links_a_step_is_that_of_the_schedule) {
  gradus_test::sweep("without_links_a_step_is_that_of_the_schedule", 200, [](gradus_test::sweep_case& draw) {
    const int ranks = static_cast<int>(draw.between("ranks", 1, 6));
    const int micro_batches = static_cast<int>(draw.between("micro_batches", 1, 12));
    const auto schedule = schedule_of(draw.between("kind", 0, 3), ranks, micro_batches);
    sim::pipeline_training how{.schedule = schedule};
    std::vector<parallel::pipeline_costs> costs;
    for (int stage = 0; stage < schedule.stages(); ++stage) {
      costs.push_back({.forward = 1e-4 * static_cast<double>(draw.between("f", 1, 20)),
                       .input_gradients = 1e-4 * static_cast<double>(draw.between("b", 1, 20)),
                       .weight_gradients = 1e-4 * static_cast<double>(draw.between("w", 1, 20))});
      how.stages.push_back({.costs = costs.back(), .sent_bytes = 1000});
    }
    const double expected = parallel::simulate_schedule(schedule, costs).makespan;
    const auto found = sim::replay_pipeline(without_links(), how);
    if (std::abs(found.first - expected) > 1e-9) {
      draw.fail("another step than that of the schedule");
    }
  });
}

BOOST_AUTO_TEST_CASE(the_bubble_is_that_of_the_closed_form) {
  for (const int ranks : {2, 4, 8}) {
    for (const int micro_batches : {4, 8, 32}) {
      for (const index_t kind : {0, 1}) {
        const auto found =
            sim::replay_pipeline(without_links(), even_pipeline(schedule_of(kind, ranks, micro_batches)));
        BOOST_TEST(found.seconds == (micro_batches + ranks - 1) * 3e-3, boost::test_tools::tolerance(1e-6));
        const double bubble = found.shares.exposed / found.seconds;
        // What ranks wait at the end of a step they wait for in the next one.
        BOOST_TEST(bubble == (ranks - 1.0) / (micro_batches + ranks - 1), boost::test_tools::tolerance(0.35));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(slow_links_and_replicas_cost_time) {
  const auto schedule = parallel::one_f_one_b_schedule(4, 8);
  const double alone = sim::replay_pipeline(simulated_cluster(), even_pipeline(schedule)).seconds;
  const double without = sim::replay_pipeline(without_links(), even_pipeline(schedule)).seconds;
  BOOST_TEST(alone > without);
  const auto folded = sim::replay_pipeline(simulated_cluster(), even_pipeline(schedule, 4));
  BOOST_TEST(folded.simulated_ranks == 4);
  BOOST_TEST(folded.seconds > alone + 1e-4);
  const auto whole = sim::replay_pipeline(simulated_cluster(), even_pipeline(schedule, 4), {.every_rank = true});
  BOOST_TEST(whole.simulated_ranks == 16);
  BOOST_TEST(whole.seconds == folded.seconds, boost::test_tools::tolerance(0.01));
  sim::cluster slow = simulated_cluster();
  slow.network.bytes_per_second /= 10;
  BOOST_TEST(sim::replay_pipeline(slow, even_pipeline(schedule)).seconds > 1.1 * alone);
}

BOOST_AUTO_TEST_CASE(a_schedule_that_hangs_is_refused) {
  using parallel::pipeline_pass;
  // Backward of the first stage before the second stage can have computed it.
  const parallel::pipeline_schedule hangs{"hangs",
                                          2,
                                          2,
                                          {{{pipeline_pass::forward, 0, 0},
                                            {pipeline_pass::backward, 0, 0},
                                            {pipeline_pass::forward, 0, 1},
                                            {pipeline_pass::backward, 0, 1}},
                                           {{pipeline_pass::forward, 1, 0},
                                            {pipeline_pass::forward, 1, 1},
                                            {pipeline_pass::backward, 1, 0},
                                            {pipeline_pass::backward, 1, 1}}}};
  BOOST_CHECK_THROW(static_cast<void>(sim::replay_pipeline(simulated_cluster(), even_pipeline(hangs))),
                    gradus::configuration_error);
  const parallel::pipeline_schedule elsewhere{"elsewhere", 2, 1, {{{pipeline_pass::forward, 1, 0}}, {}}};
  BOOST_CHECK_THROW(static_cast<void>(sim::replay_pipeline(simulated_cluster(), even_pipeline(elsewhere))),
                    gradus::configuration_error);
  sim::pipeline_training negative = even_pipeline(parallel::gpipe_schedule(2, 2));
  negative.stages[1].sent_bytes = -1;
  BOOST_CHECK_THROW(static_cast<void>(sim::replay_pipeline(simulated_cluster(), negative)),
                    gradus::configuration_error);
}

BOOST_AUTO_TEST_SUITE_END()

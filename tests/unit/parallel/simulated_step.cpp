// SPDX-License-Identifier: BSL-1.0
//
// The simulated step, its bounds and the two measures, and the order in which buckets are issued.
#include <boost/test/unit_test.hpp>
#include <limits>
#include <vector>

#include "../../support/transfer_orders.hpp"
#include "gradus/parallel/transfer_order/simulated_step.hpp"

namespace {

namespace parallel = gradus::parallel;
using parallel::step_graph;
using parallel::timed_bucket;

}  // namespace

BOOST_AUTO_TEST_SUITE(schedule)

BOOST_AUTO_TEST_CASE(the_figure_of_the_paper) {
  // Two transfers, op1 needs the first, op2 both: the good order hides one computation, the bad one nothing.
  step_graph graph;
  const std::size_t r1 = graph.add_transfer("r1", 1);
  const std::size_t r2 = graph.add_transfer("r2", 1);
  const std::size_t op1 = graph.add_computation("op1", numbers{r1}, 1);
  graph.add_computation("op2", numbers{op1, r2}, 1);
  const parallel::step_bounds limits = parallel::bounds(graph);
  BOOST_TEST(limits.lower == 2.0);
  BOOST_TEST(limits.upper == 4.0);
  const parallel::simulated_step good = parallel::simulate(graph, {0, 1});
  BOOST_TEST(good.makespan == 3.0);
  const std::vector<double> end{1, 2, 2, 3};
  BOOST_CHECK_EQUAL_COLLECTIONS(good.end.begin(), good.end.end(), end.begin(), end.end());
  BOOST_TEST(parallel::simulate(graph, {1, 0}).makespan == 4.0);
  BOOST_TEST(parallel::overlap_efficiency(limits, 3.0) == 0.5);
  BOOST_TEST(parallel::overlap_efficiency(limits, 4.0) == 0.0);
  BOOST_TEST(parallel::overlap_efficiency(limits, 2.0) == 1.0);
  BOOST_TEST(parallel::overlap_efficiency(limits, 5.0) == -0.5);
  BOOST_TEST(parallel::possible_speed_up(limits) == 1.0);
  BOOST_CHECK_THROW(parallel::simulate(graph, {0}), gradus::configuration_error);
}

BOOST_AUTO_TEST_CASE(measures_without_overlap) {
  step_graph only_computes;
  only_computes.add_computation("c", {}, 3);
  const parallel::step_bounds limits = parallel::bounds(only_computes);
  BOOST_TEST(limits.lower == limits.upper);
  BOOST_TEST(parallel::overlap_efficiency(limits, 3.0) == 1.0);
  BOOST_TEST(parallel::possible_speed_up(limits) == 0.0);
  const parallel::step_bounds nothing = parallel::bounds(step_graph{});
  BOOST_TEST(parallel::overlap_efficiency(nothing, 0.0) == 1.0);
  BOOST_TEST(parallel::possible_speed_up(nothing) == 0.0);
  BOOST_TEST(parallel::simulate(step_graph{}, {}).makespan == 0.0);
}

BOOST_AUTO_TEST_CASE(the_device_takes_what_can_begin) {
  // The first computation waits for the longer transfer; the second can begin before it.
  step_graph graph;
  const std::size_t slow = graph.add_transfer("slow", 5);
  const std::size_t fast = graph.add_transfer("fast", 1);
  graph.add_computation("waits", numbers{slow}, 1);
  graph.add_computation("begins", numbers{fast}, 2);
  graph.add_computation("begins too", {}, 0.5);
  const parallel::simulated_step step = parallel::simulate(graph, {1, 0});
  const std::vector<double> end{6, 1, 7, 3, 0.5};
  BOOST_CHECK_EQUAL_COLLECTIONS(step.end.begin(), step.end.end(), end.begin(), end.end());
  // A transfer that nothing waits for counts.
  step_graph unused;
  unused.add_transfer("unused", 4);
  BOOST_TEST(parallel::simulate(unused, {0}).makespan == 4.0);
}

BOOST_AUTO_TEST_CASE(graphs_that_cannot_be) {
  step_graph graph;
  BOOST_CHECK_THROW(graph.add_transfer("r", -1), gradus::configuration_error);
  BOOST_CHECK_THROW(graph.add_transfer("r", std::numeric_limits<double>::infinity()), gradus::configuration_error);
  BOOST_CHECK_THROW(graph.add_computation("c", numbers{0}, 1), gradus::configuration_error);
  BOOST_TEST(graph.operations().empty());
}

// Three buckets, ready in the order of backward (the last layers' first), the first layers' with the best priority.

BOOST_AUTO_TEST_CASE(issue_order_of_an_idle_channel_is_that_of_backward) {
  check_equal(parallel::static_issue_order(std::vector<timed_bucket>{{1, 0.1, 2}, {2, 0.1, 1}, {3, 0.1, 0}}),
              {0, 1, 2});
}

BOOST_AUTO_TEST_CASE(issue_order_of_a_busy_channel_is_that_of_priorities) {
  // Bucket 0 holds the channel until 11; by then all are ready.
  const std::vector<timed_bucket> buckets{{1, 10, 3}, {2, 10, 2}, {3, 10, 1}, {4, 10, 0}};
  check_equal(parallel::static_issue_order(buckets), {0, 3, 2, 1});
  // With two under way bucket 1 is issued as soon as it is ready, and then one whenever one is done.
  check_equal(parallel::static_issue_order(buckets, 2), {0, 1, 3, 2});
  check_equal(parallel::static_issue_order(buckets, 4), {0, 1, 2, 3});
}

BOOST_AUTO_TEST_CASE(credit_is_counted_in_bytes) {
  // 3 and 4 bytes are under way; with 8 bytes of credit the next, of 4, waits for the first, until 11, and by then the
  // last is ready. A long one goes alone, whatever the credit.
  std::vector<timed_bucket> buckets{{1, 10, 3, 3}, {2, 10, 2, 4}, {3, 10, 1, 4}, {5, 10, 0, 1}};
  check_equal(parallel::static_issue_order(buckets, 8), {0, 1, 3, 2});
  check_equal(parallel::static_issue_order(buckets, 11), {0, 1, 2, 3});
  buckets[0].bytes = 100;
  check_equal(parallel::static_issue_order(buckets, 8), {0, 3, 2, 1});
}

BOOST_AUTO_TEST_CASE(a_window_keeps_the_channel_in_order) {
  // Two under way share one channel: bucket 1 is done at 21, not at 12, so that bucket 2 is issued at 11 (bucket 0
  // done) and bucket 3, ready at 20, is there when bucket 1 is done.
  const std::vector<timed_bucket> buckets{{1, 10, 4}, {2, 10, 3}, {3, 1, 2}, {15, 1, 1}, {20, 1, 0}};
  check_equal(parallel::static_issue_order(buckets, 2), {0, 1, 2, 4, 3});
}

BOOST_AUTO_TEST_CASE(issue_order_ties) {
  check_equal(parallel::static_issue_order(std::vector<timed_bucket>{{0, 1, 5}, {0, 1, 5}, {0, 1, 5}}), {0, 1, 2});
  // Equal priorities go as they were ready; ready at once, by priority.
  check_equal(parallel::static_issue_order(std::vector<timed_bucket>{{0, 9, 0}, {2, 1, 7}, {1, 1, 7}}), {0, 2, 1});
  check_equal(parallel::static_issue_order(std::vector<timed_bucket>{{1, 1, 1}, {1, 1, 0}}), {1, 0});
  BOOST_TEST(parallel::static_issue_order({}).empty());
}

BOOST_AUTO_TEST_CASE(issue_order_refuses) {
  for (const timed_bucket& bad :
       {timed_bucket{-1, 1, 0}, timed_bucket{0, -1, 0}, timed_bucket{std::numeric_limits<double>::quiet_NaN(), 1, 0},
        timed_bucket{0, 1, 0, -1}}) {
    BOOST_CHECK_THROW(parallel::static_issue_order(std::vector<timed_bucket>{bad}), gradus::configuration_error);
  }
}

BOOST_AUTO_TEST_SUITE_END()

// SPDX-License-Identifier: BSL-1.0
//
// Ranks that train in subsets at the same time: each subset reaches the weights of one process.
#include <boost/test/unit_test.hpp>

#include <algorithm>  // std::find
#include <cstddef>    // std::size_t
#include <vector>     // std::vector

#include "../../support/training_runs.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/subset.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/layout/layouts.hpp"

BOOST_AUTO_TEST_SUITE(training_in_subsets)

BOOST_AUTO_TEST_CASE(every_subset_reaches_the_weights_of_one_process) {
  using gradus_test::run_training;
  using gradus_test::training_result;
  gradus::comm::self alone;
  const training_result one = run_training<gradus::nchw>(alone);
  for (const std::vector<std::vector<int>>& lists :
       {std::vector<std::vector<int>>{{0, 2}, {3, 1}}, {{3, 0, 1}, {2}}, {{0, 1, 2, 3}}}) {
    const auto results = gradus::comm::run_ranks(4, [&](gradus::comm::threads& world) {
      const std::size_t first = std::find(lists[0].begin(), lists[0].end(), world.rank()) == lists[0].end() ? 1 : 0;
      gradus::comm::subset own{world.duplicate(), lists[first]};
      return run_training<gradus::nchw>(own);
    });
    for (const training_result& result : results) {
      BOOST_TEST_CONTEXT(lists[0].size() << " ranks in the first subset") {
        BOOST_TEST(gradus_test::largest_difference(result.weights, one.weights) < 1e-9);
        BOOST_TEST(gradus_test::largest_difference(result.losses, one.losses) < 1e-10);
        BOOST_TEST(result.accuracy == one.accuracy);
      }
    }
    for (const std::vector<int>& list : lists) {
      for (const int rank : list) {  // the same bits on all ranks of a subset
        BOOST_TEST(
            (results[static_cast<std::size_t>(rank)].weights == results[static_cast<std::size_t>(list[0])].weights));
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

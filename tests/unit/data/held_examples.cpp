// SPDX-License-Identifier: BSL-1.0
//
// Batches of a set that is spread over ranks: together they are those of a process that has all examples.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <vector>

#include "gradus/data/sampler.hpp"

BOOST_AUTO_TEST_SUITE(held_examples_of_ranks)

BOOST_AUTO_TEST_CASE(ranks_have_each_example_of_a_batch_once) {
  namespace data = gradus::data;
  using gradus::index_t;
  const std::vector<std::vector<index_t>> spreads{{23}, {0, 23}, {10, 13}, {5, 0, 18}, {1, 20, 1, 1}, {6, 6, 6, 5}};
  for (const bool shuffle : {true, false}) {
    for (const bool drop_last : {true, false}) {
      const data::sampler_options options{
          .global_batch_size = 7, .shuffle = shuffle, .seed = 9, .drop_last = drop_last};
      data::sampler whole{23, options};
      for (const std::vector<index_t>& counts : spreads) {
        std::vector<data::sampler> ranks;
        index_t begin = 0;
        for (std::size_t rank = 0; rank < counts.size(); ++rank) {
          data::sampler_options own = options;
          own.held = {.begin = begin,
                      .count = counts[rank],
                      .most = *std::max_element(counts.begin(), counts.end()),
                      .of = {.rank = static_cast<int>(rank), .ranks = static_cast<int>(counts.size())}};
          ranks.emplace_back(23, own);
          begin += counts[rank];
          BOOST_TEST(ranks.back().largest_share() == std::min<index_t>(7, own.held.most));
        }
        for (const std::uint64_t epoch : {0U, 1U, 4U}) {
          whole.start_epoch(epoch);
          for (data::sampler& each : ranks) {
            each.start_epoch(epoch);
          }
          for (index_t b = 0; b < whole.batches(); ++b) {
            const data::sample all = whole.batch(b);
            std::vector<index_t> together;
            std::vector<index_t> in_order(all.examples.begin(), all.examples.end());
            index_t first = 0;
            for (std::size_t rank = 0; rank < counts.size(); ++rank) {
              const data::sample mine = ranks[rank].batch(b);
              BOOST_TEST(mine.global_examples == all.global_examples);
              // In the order of the ranks, without gaps: each example has a number of its own.
              BOOST_TEST(mine.first_example == all.first_example + together.size());
              for (const index_t example : mine.examples) {
                BOOST_TEST((example >= first && example < first + counts[rank]));
                together.push_back(example);
              }
              first += counts[rank];
            }
            std::sort(together.begin(), together.end());
            std::sort(in_order.begin(), in_order.end());
            BOOST_TEST(together == in_order, boost::test_tools::per_element());
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

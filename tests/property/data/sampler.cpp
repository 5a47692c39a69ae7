// SPDX-License-Identifier: BSL-1.0
//
// What sampler promises, for all small sizes: nothing is lost, nothing comes twice, ranks together are one process.
#include "gradus/data/sampler.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

namespace data = gradus::data;
using gradus::index_t;

namespace {

std::vector<index_t> order_of(data::sampler& sampler, std::uint64_t epoch) {
  sampler.start_epoch(epoch);
  std::vector<index_t> order;
  for (index_t b = 0; b < sampler.batches(); ++b) {
    const auto part = sampler.batch(b);
    order.insert(order.end(), part.examples.begin(), part.examples.end());
  }
  return order;
}

std::vector<index_t> order_of(index_t examples, std::uint64_t seed, std::uint64_t epoch) {
  data::sampler sampler{examples, {.global_batch_size = examples, .seed = seed}};
  return order_of(sampler, epoch);
}

/// Calls check(examples, options) for one rank of many settings.
template <class Check>
void for_settings(const Check& check) {
  for (const index_t examples : {1, 2, 3, 7, 16, 60}) {
    for (const index_t batch_size : {1, 2, 3, 5, 7, 16, 17, 60}) {
      for (const bool shuffle : {false, true}) {
        for (const bool drop_last : {false, true}) {
          if (batch_size <= examples) {
            BOOST_TEST_CONTEXT("examples " << examples << " batch " << batch_size << " shuffle " << shuffle
                                           << " drop_last " << drop_last) {
              check(examples,
                    data::sampler_options{
                        .global_batch_size = batch_size, .shuffle = shuffle, .seed = 3, .drop_last = drop_last});
            }
          }
        }
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sampler)

BOOST_AUTO_TEST_CASE(shares_cover_everything_in_order_and_are_even) {
  for (index_t total = 0; total <= 23; ++total) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      index_t next = 0;
      index_t largest = 0;
      index_t smallest = total;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto share = data::share_of(total, {.rank = rank, .ranks = ranks});
        BOOST_TEST(share.begin == next);
        BOOST_TEST(share.count == total / ranks + (rank < total % ranks ? 1 : 0));
        next += share.count;
        largest = std::max(largest, share.count);
        smallest = std::min(smallest, share.count);
      }
      BOOST_TEST(next == total);
      BOOST_TEST(largest - smallest <= 1);
    }
  }
}

BOOST_AUTO_TEST_CASE(nested_shares_of_more_ranks_divide_those_of_fewer) {
  for (index_t total = 0; total <= 40; ++total) {
    for (const int ranks : {1, 2, 3, 4, 6, 8}) {
      for (int rank = 0; rank < ranks; ++rank) {
        const auto share = data::share_of(total, {.rank = rank, .ranks = ranks, .nested = true});
        BOOST_TEST(share.count >= total / ranks);
        BOOST_TEST(share.count <= (total + ranks - 1) / ranks);  // the memory of a loader
        for (const int times : {2, 4}) {
          const auto first = data::share_of(total, {.rank = times * rank, .ranks = times * ranks, .nested = true});
          const auto last =
              data::share_of(total, {.rank = times * rank + times - 1, .ranks = times * ranks, .nested = true});
          BOOST_TEST(first.begin == share.begin);
          BOOST_TEST(last.begin + last.count == share.begin + share.count);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(every_example_comes_once_over_all_ranks) {
  for_settings([](index_t examples, data::sampler_options options) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
      std::vector<int> seen(static_cast<std::size_t>(examples));
      index_t promised = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        options.shard = {.rank = rank, .ranks = ranks};
        data::sampler sampler{examples, options};
        promised = sampler.examples();
        for (const index_t example : order_of(sampler, 4)) {
          ++seen.at(static_cast<std::size_t>(example));
        }
      }
      const auto once = static_cast<index_t>(std::count(seen.begin(), seen.end(), 1));
      const auto never = static_cast<index_t>(std::count(seen.begin(), seen.end(), 0));
      BOOST_TEST(once == promised);
      BOOST_TEST(once + never == examples);
      BOOST_TEST(never == (options.drop_last ? examples % options.global_batch_size : 0));
    }
  });
}

BOOST_AUTO_TEST_CASE(ranks_together_see_the_batches_of_one_process) {
  for_settings([](index_t examples, data::sampler_options options) {
    data::sampler one{examples, options};
    one.start_epoch(2);
    for (int ranks = 1; ranks <= 5; ++ranks) {
      std::vector<data::sampler> parts;
      for (int rank = 0; rank < ranks; ++rank) {
        options.shard = {.rank = rank, .ranks = ranks};
        parts.emplace_back(examples, options);
        parts.back().start_epoch(2);
        BOOST_TEST(parts.back().batches() == one.batches());
        BOOST_TEST(parts.back().largest_share() == (options.global_batch_size + ranks - 1) / ranks);
      }
      std::uint64_t position = 0;
      for (index_t b = 0; b < one.batches(); ++b) {
        const auto whole = one.batch(b);
        std::vector<index_t> together;
        for (const auto& part : parts) {
          const auto mine = part.batch(b);
          BOOST_TEST(mine.first_example == position);
          BOOST_TEST(mine.global_examples == whole.global_examples);
          BOOST_TEST(static_cast<index_t>(mine.examples.size()) <= part.largest_share());
          position += mine.examples.size();
          together.insert(together.end(), mine.examples.begin(), mine.examples.end());
        }
        BOOST_TEST(std::equal(together.begin(), together.end(), whole.examples.begin(), whole.examples.end()));
        BOOST_TEST(static_cast<index_t>(together.size()) == whole.global_examples);
      }
    }
  });
}

BOOST_AUTO_TEST_CASE(the_order_is_a_function_of_seed_and_epoch) {
  const auto order = order_of(1000, 1, 5);
  BOOST_TEST((order == order_of(1000, 1, 5)));
  BOOST_TEST((order != order_of(1000, 1, 6)));
  BOOST_TEST((order != order_of(1000, 2, 5)));
  data::sampler sampler{1000, {.global_batch_size = 37, .seed = 1}};
  (void)order_of(sampler, 9);  // whatever epoch came before
  BOOST_TEST((order_of(sampler, 5) == order));
  BOOST_TEST((order_of(sampler, 0) == order_of(1000, 1, 0)));
}

BOOST_AUTO_TEST_CASE(without_shuffle_the_order_is_that_of_the_set) {
  data::sampler sampler{10, {.global_batch_size = 4, .shuffle = false}};
  std::vector<index_t> expected(10);
  std::iota(expected.begin(), expected.end(), index_t{0});
  BOOST_TEST((order_of(sampler, 0) == expected));
  BOOST_TEST((order_of(sampler, 3) == expected));
}

BOOST_AUTO_TEST_CASE(all_orders_are_equally_likely) {
  constexpr int epochs = 12000;
  std::map<std::vector<index_t>, int> counts;
  data::sampler sampler{4, {.global_batch_size = 4, .seed = 7}};
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    ++counts[order_of(sampler, epoch)];
  }
  BOOST_TEST(counts.size() == 24U);
  double chi_squared = 0;
  for (const auto& [order, count] : counts) {
    chi_squared += (count - epochs / 24.0) * (count - epochs / 24.0) / (epochs / 24.0);
  }
  BOOST_TEST(chi_squared < 49.7);  // 23 degrees of freedom, exceeded once in 1000
}

BOOST_AUTO_TEST_CASE(the_orders_stay_what_they_are) {
  // A training that goes on after an interruption needs the order of the version that began it.
  const std::vector<index_t> recorded{3, 7, 5, 4, 0, 2, 1, 6};
  BOOST_TEST(order_of(8, 1, 0) == recorded, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()

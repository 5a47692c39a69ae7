// SPDX-License-Identifier: BSL-1.0
//
// TAC against the best of all orders and against the paper's text, and the order that it sorts by.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "gradus/core/random.hpp"
#include "gradus/parallel/transfer_order/order.hpp"
#include "gradus/parallel/transfer_order/simulated_step.hpp"

namespace {

namespace parallel = gradus::parallel;
using parallel::step_graph;
using parallel::detail::ticks;
using parallel::detail::transfer_key;
using numbers = std::vector<std::size_t>;

/// A sequence of random numbers.
class dice {
 public:
  explicit dice(std::uint64_t seed) : stream_{seed, "order"} {}
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(stream_.below(bound, next_++)); }

 private:
  gradus::random_stream stream_;
  std::uint64_t next_ = 0;
};

/// TAC as the paper writes it, with the key as comparator: all properties anew for every transfer, in whole numbers.
numbers tac_of_the_paper(const step_graph& graph) {
  const std::size_t count = graph.transfers();
  std::vector<std::vector<bool>> needs;  // of operations
  std::vector<std::size_t> first_need(count, step_graph::none);
  for (std::size_t i = 0; i < graph.operations().size(); ++i) {
    const step_graph::operation& each = graph.operations()[i];
    std::vector<bool> mine(count, false);
    if (each.transfer != step_graph::none) {
      mine[each.transfer] = true;
    }
    for (const std::size_t input : each.inputs) {
      const std::size_t direct = graph.operations()[input].transfer;
      if (direct != step_graph::none) {
        first_need[direct] = std::min(first_need[direct], i);
      }
      for (std::size_t r = 0; r < count; ++r) {
        mine[r] = mine[r] || needs[input][r];
      }
    }
    needs.push_back(mine);
  }
  std::vector<bool> outstanding(count, true);
  numbers result(count);
  for (std::size_t k = 0; k < count; ++k) {
    std::vector<ticks> unlocked(count, 0);
    std::vector<ticks> impending(count, parallel::detail::never);
    for (std::size_t i = 0; i < needs.size(); ++i) {
      if (graph.operations()[i].transfer != step_graph::none) {
        continue;
      }
      numbers members;
      ticks sum = 0;
      for (std::size_t r = 0; r < count; ++r) {
        if (needs[i][r] && outstanding[r]) {
          members.push_back(r);
          sum += static_cast<ticks>(graph.transfer(r).seconds);
        }
      }
      for (const std::size_t r : members) {
        if (members.size() == 1) {
          unlocked[r] += static_cast<ticks>(graph.operations()[i].seconds);
        } else {
          impending[r] = std::min(impending[r], sum);
        }
      }
    }
    std::size_t best = count;
    transfer_key smallest{};
    for (std::size_t r = 0; r < count; ++r) {
      const transfer_key key = parallel::detail::make_transfer_key(
          unlocked[r], static_cast<ticks>(graph.transfer(r).seconds), impending[r], first_need[r]);
      if (outstanding[r] && (best == count || key < smallest)) {
        best = r;
        smallest = key;
      }
    }
    result[best] = k;
    outstanding[best] = false;
  }
  return result;
}

/// Transfers and computations that wait for a few operations before them.
step_graph random_graph(dice& throws) {
  step_graph graph;
  const std::size_t size = 2 + throws.below(90);
  for (std::size_t i = 0; i < size; ++i) {
    const auto seconds = static_cast<double>(throws.below(6));
    if (i == 0 || throws.below(3) == 0) {
      graph.add_transfer("r", seconds);
      continue;
    }
    numbers inputs;
    for (std::size_t k = throws.below(4); k > 0; --k) {
      inputs.push_back(i - 1 - throws.below(std::min<std::size_t>(i, 8)));
    }
    graph.add_computation("c", inputs, seconds);
  }
  return graph;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(order)

BOOST_AUTO_TEST_CASE(tac_is_the_best_order_of_independent_pairs) {
  dice throws{1};
  for (int round = 0; round < 300; ++round) {
    step_graph graph;
    const std::size_t pairs = 1 + throws.below(6);
    const std::size_t largest = 1 + throws.below(9);
    for (std::size_t k = 0; k < pairs; ++k) {
      const std::size_t transfer = graph.add_transfer("r", static_cast<double>(throws.below(largest)));
      graph.add_computation("c", numbers{transfer}, static_cast<double>(throws.below(largest)));
    }
    numbers priorities(pairs);
    std::iota(priorities.begin(), priorities.end(), std::size_t{0});
    double best = std::numeric_limits<double>::infinity();
    do {
      best = std::min(best, parallel::simulate(graph, priorities).makespan);
    } while (std::next_permutation(priorities.begin(), priorities.end()));
    BOOST_TEST(parallel::simulate(graph, parallel::tac(graph)).makespan == best);
  }
}

BOOST_AUTO_TEST_CASE(tac_is_that_of_the_paper) {
  dice throws{2};
  for (int round = 0; round < 200; ++round) {
    const step_graph graph = random_graph(throws);
    const numbers have = parallel::tac(graph);
    const numbers want = tac_of_the_paper(graph);
    BOOST_CHECK_EQUAL_COLLECTIONS(have.begin(), have.end(), want.begin(), want.end());
  }
}

BOOST_AUTO_TEST_CASE(steps_keep_within_their_bounds) {
  dice throws{3};
  for (std::uint64_t round = 0; round < 100; ++round) {
    const step_graph graph = random_graph(throws);
    const parallel::step_bounds limits = parallel::bounds(graph);
    for (const numbers& priorities :
         {parallel::tic(graph), parallel::tac(graph), parallel::random_order(graph.transfers(), round)}) {
      const double makespan = parallel::simulate(graph, priorities).makespan;
      BOOST_TEST(makespan >= limits.lower);
      BOOST_TEST(makespan <= limits.upper);
    }
  }
}

BOOST_AUTO_TEST_CASE(keys_are_a_strict_weak_order_where_the_papers_relation_is_not) {
  struct properties {
    ticks unlocked;
    ticks own;
    ticks impending;
  };
  std::vector<properties> all;
  for (ticks unlocked = 0; unlocked < 3; ++unlocked) {
    for (ticks own = 0; own < 3; ++own) {
      for (const ticks impending : {ticks{3}, ticks{4}, parallel::detail::never}) {
        all.push_back({unlocked, own, impending});
      }
    }
  }
  const auto by_key = [](const properties& a, const properties& b) {
    return parallel::detail::make_transfer_key(a.unlocked, a.own, a.impending, 0) <
           parallel::detail::make_transfer_key(b.unlocked, b.own, b.impending, 0);
  };
  const auto by_paper = [](const properties& a, const properties& b) {
    const ticks a_first = std::min(b.unlocked, a.own);
    const ticks b_first = std::min(a.unlocked, b.own);
    return a_first != b_first ? a_first < b_first : a.impending < b.impending;
  };
  const auto violations = [&](const auto& before) {
    int count = 0;
    const auto equal = [&](const properties& a, const properties& b) { return !before(a, b) && !before(b, a); };
    for (const properties& a : all) {
      count += before(a, a) ? 1 : 0;
      for (const properties& b : all) {
        count += before(a, b) && before(b, a) ? 1 : 0;
        for (const properties& c : all) {
          count += before(a, b) && before(b, c) && !before(a, c) ? 1 : 0;
          count += equal(a, b) && equal(b, c) && !equal(a, c) ? 1 : 0;
        }
      }
    }
    return count;
  };
  BOOST_TEST(violations(by_key) == 0);
  BOOST_TEST(violations(by_paper) > 0);
  // Where the paper's inequality decides, the key agrees.
  for (const properties& a : all) {
    for (const properties& b : all) {
      if (std::min(b.unlocked, a.own) < std::min(a.unlocked, b.own)) {
        BOOST_TEST(by_key(a, b));
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

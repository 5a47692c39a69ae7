// SPDX-License-Identifier: BSL-1.0
//
// TIC and TAC on graphs whose answer is known.
#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include "../../support/transfer_orders.hpp"
#include "gradus/parallel/transfer_order/order.hpp"

namespace {

namespace parallel = gradus::parallel;
using parallel::step_graph;

/// r1 -> op1, (op1, r2) -> op2, ...: each computation waits for the one before it and for a transfer of its own.
step_graph chain(const std::vector<double>& transfers, const std::vector<double>& computations) {
  step_graph graph;
  numbers before;
  for (std::size_t k = 0; k < transfers.size(); ++k) {
    numbers inputs = before;
    inputs.push_back(graph.add_transfer("r" + std::to_string(k + 1), transfers[k]));
    before = {graph.add_computation("op" + std::to_string(k + 1), inputs, computations[k])};
  }
  return graph;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(order)

BOOST_AUTO_TEST_CASE(tic_of_a_chain_is_that_of_the_paper) {
  const step_graph graph = chain({1, 1, 1, 1}, {1, 1, 1, 1});
  const parallel::detail::outstanding_transfers properties{graph, false};
  const std::vector<parallel::detail::ticks> impending{2, 2, 3, 4};
  for (std::size_t r = 0; r < 4; ++r) {
    BOOST_TEST(properties.impending(r) == impending[r]);
  }
  check_equal(parallel::tic(graph), {0, 0, 2, 3});
  check_equal(parallel::tic(graph, {.break_ties = true}), {0, 1, 2, 3});
  check_equal(parallel::layer_order(graph), {0, 1, 2, 3});
}

BOOST_AUTO_TEST_CASE(tic_breaks_ties_by_need_and_ignores_times) {
  // Counted in another order than needed: transfer 1 belongs to the first computation.
  step_graph graph;
  const std::size_t late = graph.add_transfer("late", 1);
  const std::size_t early = graph.add_transfer("early", 100);
  const std::size_t first = graph.add_computation("first", numbers{early}, 5);
  graph.add_computation("second", numbers{first, late}, 5);
  check_equal(parallel::tic(graph), {0, 0});
  check_equal(parallel::tic(graph, {.break_ties = true}), {1, 0});
  check_equal(parallel::layer_order(graph), {1, 0});
}

BOOST_AUTO_TEST_CASE(tic_puts_lone_transfers_last) {
  step_graph graph;
  graph.add_computation("alone", numbers{graph.add_transfer("lone", 1)}, 1);
  const std::size_t a = graph.add_transfer("a", 1);
  const std::size_t b = graph.add_transfer("b", 1);
  graph.add_computation("together", numbers{a, b}, 1);
  graph.add_transfer("unused", 1);
  check_equal(parallel::tic(graph), {2, 0, 0, 2});
  check_equal(parallel::tic(graph, {.break_ties = true}), {2, 0, 1, 3});
}

BOOST_AUTO_TEST_CASE(tac_of_a_chain_is_its_order) {
  check_equal(parallel::tac(chain({1, 1, 1, 1}, {1, 1, 1, 1})), {0, 1, 2, 3});
  check_equal(parallel::tac(chain({8, 4, 2, 1}, {1, 2, 3, 4})), {0, 1, 2, 3});
  check_equal(parallel::tac(chain({0.5e-9, 1e-9}, {3e-9, 1e-9})), {0, 1});
}

BOOST_AUTO_TEST_CASE(tac_follows_johnson) {
  // Johnson's example: M = 3, 1, 4, 2, 5; P = 2, 5, 1, 6, 5. First P > M by M: 2, 4; then by falling P: 5, 1, 3.
  const std::vector<double> own{3, 1, 4, 2, 5};
  const std::vector<double> unlocked{2, 5, 1, 6, 5};
  for (const double unit : {1.0, 1e-9, 1e6}) {
    step_graph graph;
    for (std::size_t k = 0; k < own.size(); ++k) {
      graph.add_computation("c", numbers{graph.add_transfer("r", unit * own[k])}, unit * unlocked[k]);
    }
    check_equal(sequence(parallel::tac(graph)), {1, 3, 4, 0, 2});
  }
}

BOOST_AUTO_TEST_CASE(tac_prefers_the_branch_that_starts_soonest) {
  // Nothing can begin after one transfer: M+ decides. The cheaper branch (2 + 2) goes before the dearer (1 + 4).
  step_graph graph;
  const std::size_t a = graph.add_transfer("a", 1);
  const std::size_t b = graph.add_transfer("b", 4);
  const std::size_t c = graph.add_transfer("c", 2);
  const std::size_t d = graph.add_transfer("d", 2);
  graph.add_computation("dear", numbers{a, b}, 10);
  graph.add_computation("cheap", numbers{c, d}, 10);
  check_equal(sequence(parallel::tac(graph)), {2, 3, 0, 1});
}

BOOST_AUTO_TEST_CASE(no_transfers_and_one) {
  step_graph graph;
  graph.add_computation("alone", {}, 1);
  BOOST_TEST(parallel::tic(graph).empty());
  BOOST_TEST(parallel::tac(graph).empty());
  graph.add_transfer("unused", 0);
  check_equal(parallel::tic(graph), {0});
  check_equal(parallel::tac(graph), {0});
}

BOOST_AUTO_TEST_CASE(more_transfers_than_bits_in_a_word) {
  const step_graph graph = chain(std::vector<double>(130, 1.0), std::vector<double>(130, 1.0));
  numbers want(130);
  for (std::size_t k = 0; k < want.size(); ++k) {
    want[k] = k;
  }
  check_equal(parallel::tac(graph), want);
  want[1] = 0;
  check_equal(parallel::tic(graph), want);
}

BOOST_AUTO_TEST_CASE(random_orders) {
  const numbers one = parallel::random_order(40, 1);
  check_equal(one, parallel::random_order(40, 1));
  BOOST_TEST((one != parallel::random_order(40, 2)));
  sequence(one);  // each once
}

BOOST_AUTO_TEST_SUITE_END()

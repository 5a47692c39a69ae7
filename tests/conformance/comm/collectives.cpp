// SPDX-License-Identifier: BSL-1.0
//
// Collectives over the messages of thread ranks pass the conformance suite on 1 to 4 ranks with every algorithm.
#include <boost/test/unit_test.hpp>

#include "../../support/communicators.hpp"            // the suite
#include "../../support/communicators_archetype.hpp"  // minimal_communicator
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/threads.hpp"

namespace {

namespace comm = gradus::comm;
namespace suite = communicator_tests;
using collectives = comm::collectives<comm::threads>;

static_assert(comm::communicator<collectives>);
static_assert(comm::communicator<comm::collectives<suite::minimal_communicator>>);

void on_fresh_ranks(void (*test)(collectives&)) {
  for (const int ranks : {1, 2, 3, 4}) {
    BOOST_TEST_CONTEXT(ranks << " ranks") {
      BOOST_TEST(suite::failure_of([&] {
                   comm::run_ranks(ranks, [test](comm::threads& world) {
                     collectives own{world.duplicate(), {.all_reduce = comm::parse_all_reduce_spec("ring")}};
                     test(own);
                   });
                 }) == "");
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(comm_collectives_conformance)

BOOST_AUTO_TEST_CASE(collectives_and_messages) {
  const suite::watchdog guard{std::chrono::seconds{120}};
  for (const int ranks : {1, 2, 3, 4}) {
    for (const auto name : comm::all_reduce_algorithm_names) {
      BOOST_TEST_CONTEXT(ranks << " ranks, " << name) {
        BOOST_TEST(suite::failure_of([&] {
                     comm::run_ranks(ranks, [&](comm::threads& world) {
                       const std::string node = world.rank() < 2 ? "first" : "second";
                       collectives own{world.duplicate(),
                                       {.all_reduce = comm::parse_all_reduce_spec(name),
                                        .segment_bytes = 1000,
                                        .node_of_rank = comm::nodes_of_ranks(world, node)}};
                       for (const auto& each : suite::conformance_cases<collectives>()) {
                         each.run(own);
                       }
                     });
                   }) == "");
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(failures) {
  const suite::watchdog guard{std::chrono::seconds{120}};
  on_fresh_ranks(&suite::a_rank_that_fails_is_named<collectives>);
  on_fresh_ranks(&suite::pending_requests_end_when_a_rank_fails<collectives>);
  on_fresh_ranks(&suite::a_rank_that_leaves_is_named<collectives>);
}

BOOST_AUTO_TEST_CASE(time_limit) {
  const suite::watchdog guard{std::chrono::seconds{120}};
  on_fresh_ranks(&suite::a_wait_has_a_time_limit<collectives>);
}

BOOST_AUTO_TEST_CASE(options_are_checked) {
  const comm::self alone;
  BOOST_CHECK_THROW((comm::collectives{alone.duplicate(), {.segment_bytes = 0}}), gradus::configuration_error);
  BOOST_CHECK_THROW((comm::collectives{alone.duplicate(), {.all_reduce = {}}}), gradus::configuration_error);
  BOOST_CHECK_THROW((comm::collectives{alone.duplicate(), {.all_reduce = {{.rings = 0}}}}),
                    gradus::configuration_error);
  BOOST_CHECK_THROW((comm::collectives{alone.duplicate(), {.node_of_rank = {0, 0}}}), gradus::configuration_error);
}

BOOST_AUTO_TEST_CASE(a_hierarchical_rule_without_nodes_is_refused) {
  const comm::self alone;
  for (const auto* const spec : {"hierarchical_ring", "ring:4K:hierarchical_halving_doubling", "nccl/xring"}) {
    const std::string message = suite::failure_of([&] {
      comm::collectives{alone.duplicate(), {.all_reduce = comm::parse_all_reduce_spec(spec)}};
    });
    BOOST_TEST(message.find("expected a node for each of 1 ranks") != std::string::npos, message);
    BOOST_TEST(message.find("comm::nodes_of_ranks") != std::string::npos, message);
  }
}

BOOST_AUTO_TEST_CASE(ranks_with_different_rules_get_an_error) {
  const suite::watchdog guard{std::chrono::seconds{120}};
  const std::string message = suite::failure_of([] {
    comm::run_ranks(2, [](comm::threads& world) {
      collectives own{world.duplicate(),
                      {.all_reduce = comm::parse_all_reduce_spec(world.rank() == 0 ? "ring" : "tree")}};
    });
  });
  BOOST_TEST(message.find("the same all_reduce on all ranks") != std::string::npos, message);
  BOOST_TEST(message.find("ring on rank 0; tree on rank 1") != std::string::npos, message);
}

BOOST_AUTO_TEST_SUITE_END()

// SPDX-License-Identifier: BSL-1.0
//
// The ring over thread ranks passes the conformance suite on 1 to 4 ranks, with short and long segments.
#include <boost/test/unit_test.hpp>

#include "../../support/communicators.hpp"            // the suite
#include "../../support/communicators_archetype.hpp"  // minimal_communicator
#include "gradus/comm/ring.hpp"                       // ring
#include "gradus/comm/threads.hpp"                    // run_ranks, threads

namespace {

namespace comm = gradus::comm;
namespace suite = communicator_tests;
using ring = comm::ring<comm::threads>;

static_assert(comm::communicator<ring>);
static_assert(comm::communicator<comm::ring<suite::minimal_communicator>>);

void on_fresh_ranks(void (*test)(ring&)) {
  for (const int ranks : {1, 2, 3, 4}) {
    BOOST_TEST_CONTEXT(ranks << " ranks") {
      BOOST_TEST(suite::failure_of([&] {
                   comm::run_ranks(ranks, [test](comm::threads& world) {
                     ring around{world.duplicate()};
                     test(around);
                   });
                 }) == "");
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(comm_ring_conformance)

BOOST_AUTO_TEST_CASE(collectives_and_messages) {
  const suite::watchdog guard{std::chrono::seconds{120}};
  for (const int ranks : {1, 2, 3, 4}) {
    for (const gradus::index_t segment_bytes : {1000, 256 * 1024}) {
      BOOST_TEST_CONTEXT(ranks << " ranks, segments of " << segment_bytes << " bytes") {
        BOOST_TEST(suite::failure_of([&] {
                     comm::run_ranks(ranks, [&](comm::threads& world) {
                       ring around{world.duplicate(), {.segment_bytes = segment_bytes}};
                       for (const auto& each : suite::conformance_cases<ring>()) {
                         each.run(around);
                       }
                     });
                   }) == "");
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(failures) {
  const suite::watchdog guard{std::chrono::seconds{120}};
  on_fresh_ranks(&suite::a_rank_that_fails_is_named<ring>);
  on_fresh_ranks(&suite::pending_requests_end_when_a_rank_fails<ring>);
}

BOOST_AUTO_TEST_CASE(time_limit) {
  const suite::watchdog guard{std::chrono::seconds{120}};
  on_fresh_ranks(&suite::a_wait_has_a_time_limit<ring>);
}

BOOST_AUTO_TEST_CASE(a_segment_needs_a_byte) {
  BOOST_CHECK_THROW((comm::ring{comm::self{}, {.segment_bytes = 0}}), gradus::configuration_error);
}

BOOST_AUTO_TEST_SUITE_END()

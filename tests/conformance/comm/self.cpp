// SPDX-License-Identifier: BSL-1.0
//
// The communicator of one process passes the conformance suite, and generic code needs no more than the concept says.
#include <boost/test/unit_test.hpp>

#include "../../support/communicators.hpp"            // the suite
#include "../../support/communicators_archetype.hpp"  // minimal_communicator
#include "gradus/comm/self.hpp"

namespace {

namespace comm = gradus::comm;
namespace suite = communicator_tests;

}  // namespace

BOOST_AUTO_TEST_SUITE(comm_self_conformance)

BOOST_AUTO_TEST_CASE(collectives_and_messages) {
  for (const auto& each : suite::conformance_cases<comm::self>()) {
    BOOST_TEST_CONTEXT(each.name) {
      comm::self world;
      BOOST_TEST(suite::failure_of([&] { each.run(world); }) == "");
    }
  }
}

BOOST_AUTO_TEST_CASE(failures) {
  comm::self first;
  BOOST_TEST(suite::failure_of([&] { suite::a_rank_that_fails_is_named(first); }) == "");
  comm::self second;
  BOOST_TEST(suite::failure_of([&] { suite::pending_requests_end_when_a_rank_fails(second); }) == "");
}

BOOST_AUTO_TEST_CASE(the_functions_need_only_the_required_members) {
  suite::minimal_communicator world;
  std::vector<float> values{1.0F, 2.0F};
  std::vector<float> copy(2);
  comm::all_reduce(world, values).wait();
  comm::broadcast(world, values).wait();
  comm::all_gather(world, values, copy).wait();
  comm::reduce_scatter(world, copy, values).wait();
  comm::barrier(world).wait();
  comm::require_agreement(world, "options", {{"seed", "1"}});
  BOOST_TEST(copy == (std::vector<float>{1.0F, 2.0F}), boost::test_tools::per_element());
  BOOST_CHECK_THROW(comm::send(world, 0, values).wait(), gradus::configuration_error);
}

BOOST_AUTO_TEST_SUITE_END()

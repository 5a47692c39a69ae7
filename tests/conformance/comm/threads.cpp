// SPDX-License-Identifier: BSL-1.0
//
// Thread ranks pass the conformance suite on 1 to 4 ranks.
#include <boost/test/unit_test.hpp>

#include "../../support/communicators.hpp"  // the suite
#include "gradus/comm/threads.hpp"

namespace {

namespace comm = gradus::comm;
namespace suite = communicator_tests;

void on_fresh_ranks(void (*test)(comm::threads&)) {
  for (const int ranks : {1, 2, 3, 4}) {
    BOOST_TEST_CONTEXT(ranks << " ranks") {
      BOOST_TEST(suite::failure_of([&] { comm::run_ranks(ranks, test); }) == "");
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(comm_threads_conformance)

BOOST_AUTO_TEST_CASE(the_suite) {
  const auto on_ranks = [](int ranks, const auto& body) { comm::run_ranks(ranks, body); };
  for (const suite::result& each : suite::check_communicator<comm::threads>(on_ranks)) {
    BOOST_TEST(each.failure == "", each.name << ": " << each.failure);
  }
}

BOOST_AUTO_TEST_CASE(all_cases_one_after_the_other_on_one_communicator) {
  const suite::watchdog guard{std::chrono::seconds{120}};
  BOOST_TEST(suite::failure_of([&] {
               comm::run_ranks(3, [](comm::threads& world) {
                 for (const auto& each : suite::conformance_cases<comm::threads>()) {
                   each.run(world);
                 }
               });
             }) == "");
}

BOOST_AUTO_TEST_CASE(messages_of_another_size) {
  const suite::watchdog guard{std::chrono::seconds{120}};
  on_fresh_ranks(&suite::a_message_of_another_size_is_an_error<comm::threads>);
}

BOOST_AUTO_TEST_SUITE_END()

// SPDX-License-Identifier: BSL-1.0
//
// A recorded communicator passes the conformance suite; the record of a failed run names what was under way.
#include <boost/test/unit_test.hpp>

#include <cstdio>    // std::remove
#include <fstream>   // std::ifstream
#include <iterator>  // std::istreambuf_iterator
#include <memory>    // std::make_shared
#include <span>      // std::span
#include <string>    // std::string
#include <thread>    // std::this_thread

#include "../../support/communicators.hpp"  // the suite
#include "gradus/comm/flight_recorder.hpp"
#include "gradus/comm/threads.hpp"

namespace {

namespace comm = gradus::comm;
namespace suite = communicator_tests;
using recorded = comm::recorded<comm::threads>;

}  // namespace

BOOST_AUTO_TEST_SUITE(comm_flight_recorder)

BOOST_AUTO_TEST_CASE(collectives_and_messages) {
  const suite::watchdog guard{std::chrono::seconds{120}};
  for (const int ranks : {1, 3}) {
    BOOST_TEST(suite::failure_of([&] {
                 comm::run_ranks(ranks, [](comm::threads& world) {
                   recorded watched{world.duplicate()};
                   for (const auto& each : suite::conformance_cases<recorded>()) {
                     each.run(watched);
                   }
                 });
               }) == "");
  }
}

BOOST_AUTO_TEST_CASE(the_last_operations_are_kept) {
  comm::recorded alone{comm::self{}, std::make_shared<comm::flight_recorder>("", 2)};
  float value = 1;
  comm::all_reduce(alone, std::span{&value, 1}).wait();
  auto other = alone.duplicate();
  comm::broadcast(other, std::span{&value, 1}).wait();
  const std::string text = alone.recorder().text();
  BOOST_TEST(text.find("all_reduce") == std::string::npos, text);
  BOOST_TEST(text.find("\n1\t0\tcomplete\t") != std::string::npos, text);
  BOOST_TEST(text.find("\tduplicate\n2\t1\tcomplete\t") != std::string::npos, text);
  BOOST_TEST(text.find("\tbroadcast from rank 0 of 1 float32\n") != std::string::npos, text);
}

BOOST_AUTO_TEST_CASE(a_failure_writes_what_was_under_way) {
  const std::string file = "flight_recorder_test.tsv";
  std::remove(file.c_str());
  comm::run_ranks(2, [&](comm::threads& world) {
    comm::recorded watched{world.duplicate(),
                           std::make_shared<comm::flight_recorder>(world.rank() == 0 ? file : std::string{})};
    watched.set_time_limit(std::chrono::milliseconds{50});
    float values[3] = {};
    comm::all_reduce(watched, values).wait();
    try {
      if (world.rank() == 0) {
        comm::all_reduce(watched, std::span{values}.first(2)).wait();
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds{150});
      }
    } catch (const gradus::communication_error&) {
    }
  });
  std::ifstream in{file};
  const std::string text{std::istreambuf_iterator<char>{in}, {}};
  std::remove(file.c_str());
  BOOST_TEST(text.find("# all_reduce(sum) of 2 float32") == 0U, text);
  BOOST_TEST(text.find("complete") < text.find("all_reduce(sum) of 3 float32"), text);
  BOOST_TEST(text.find("\n1\t0\tfailed\t0.") != std::string::npos, text);
}

BOOST_AUTO_TEST_CASE(a_recorder_needs_room) {
  BOOST_CHECK_THROW(comm::flight_recorder("", 0), gradus::configuration_error);
}

BOOST_AUTO_TEST_SUITE_END()

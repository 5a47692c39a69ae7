// SPDX-License-Identifier: BSL-1.0
//
// How many processes share a machine, and the line about their processors.
#include "gradus/device/binding.hpp"

#include <boost/test/unit_test.hpp>

#include <set>
#include <string>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

#include "gradus/device/processor_share.hpp"

namespace {

using gradus::detail::binding_text;
using gradus::detail::ranges_text;
using gradus::detail::tasks_of_node;

BOOST_AUTO_TEST_SUITE(binding)

BOOST_AUTO_TEST_CASE(the_tasks_of_a_node_are_read_from_the_list_of_Slurm) {
  BOOST_TEST(tasks_of_node("2", 0) == 2);
  BOOST_TEST(tasks_of_node("4(x2),3,1(x3)", 0) == 4);
  BOOST_TEST(tasks_of_node("4(x2),3,1(x3)", 1) == 4);
  BOOST_TEST(tasks_of_node("4(x2),3,1(x3)", 2) == 3);
  BOOST_TEST(tasks_of_node("4(x2),3,1(x3)", 5) == 1);
  for (const char* const text : {"", "x", "4(x2),3", "4(x-9)", "4(x", "0(x9)", "-3(x9)", "99999999999999999999(x9)",
                                 "4(x-99999999999999999999),2"}) {
    BOOST_TEST(tasks_of_node(text, 3) == 0, text);
  }
  BOOST_TEST(tasks_of_node(nullptr, 0) == 0);
}

BOOST_AUTO_TEST_CASE(processors_are_written_as_ranges) {
  const auto text_of = [](const std::set<int>& all) {
    return ranges_text([&](int i) { return all.count(i) != 0; }, 16);
  };
  BOOST_TEST(text_of({}) == "");
  BOOST_TEST(text_of({0}) == "0");
  BOOST_TEST(text_of({0, 1, 2, 3}) == "0-3");
  BOOST_TEST(text_of({0, 2, 3, 7, 15}) == "0,2-3,7,15");
  BOOST_TEST(text_of({13, 14, 15}) == "13-15");
}

BOOST_AUTO_TEST_CASE(the_line_says_what_is_bound_and_what_is_shared) {
  BOOST_TEST(binding_text(4, 8, 2, "0-3") == "bound to 4 of 8 processors (0-3)");
  BOOST_TEST(binding_text(8, 8, 1, "0-7") == "not bound: 8 processors (0-7)");
  BOOST_TEST(binding_text(8, 8, 2, "") == "not bound: 2 processes of this machine share 8 processors");
  BOOST_TEST(binding_text(2, 2, 4, "0-1") ==
             "not bound: 4 processes of this machine share 2 processors (0-1), which is more than one a processor");
  BOOST_TEST(binding_text(1, 1, 1, "0") == "not bound: 1 processor (0)");
}

#if defined(__linux__)
BOOST_AUTO_TEST_CASE(a_thread_that_is_bound_finds_it) {
  cpu_set_t before;
  BOOST_REQUIRE(sched_getaffinity(0, sizeof(before), &before) == 0);
  if (CPU_COUNT(&before) < 2) {
    return;
  }
  std::string line;
  std::thread{[&] {  // an affinity of its own
    int first = 0;
    while (!CPU_ISSET(static_cast<std::size_t>(first), &before)) {
      ++first;
    }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(first), &one);
    sched_setaffinity(0, sizeof(one), &one);
    line = gradus::describe_binding();
  }}
      .join();
  BOOST_TEST(line.find("bound to 1 of ") == 0, line);
  BOOST_TEST(line.find(" processors (") != std::string::npos, line);
}
#endif

BOOST_AUTO_TEST_SUITE_END()

}  // namespace

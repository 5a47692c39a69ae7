// SPDX-License-Identifier: BSL-1.0
//
// Work that gives way to the threads that train.
#include <boost/test/unit_test.hpp>
#include <stdexcept>
#include <thread>

#if defined(__linux__)
#include <sys/resource.h>
#endif

#include "gradus/checkpoint/detail/file/low_priority.hpp"

BOOST_AUTO_TEST_SUITE(low_priority)

BOOST_AUTO_TEST_CASE(work_is_done_in_a_thread_of_low_priority_and_the_caller_keeps_its_own) {
  std::thread::id ran;
#if defined(__linux__)
  const int before = getpriority(PRIO_PROCESS, 0);
  int inside = 0;
#endif
  gradus::io::detail::run_at_low_priority([&] {
    ran = std::this_thread::get_id();
#if defined(__linux__)
    inside = getpriority(PRIO_PROCESS, 0);
#endif
  });
  BOOST_TEST((ran != std::thread::id{} && ran != std::this_thread::get_id()));
#if defined(__linux__)
  BOOST_TEST(inside == 19);
  BOOST_TEST(getpriority(PRIO_PROCESS, 0) == before);
#endif
}

BOOST_AUTO_TEST_CASE(errors_reach_the_caller) {
  BOOST_CHECK_THROW(gradus::io::detail::run_at_low_priority([] { throw std::runtime_error{"full"}; }),
                    std::runtime_error);
}

BOOST_AUTO_TEST_SUITE_END()

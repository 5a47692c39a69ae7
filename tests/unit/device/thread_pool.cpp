// SPDX-License-Identifier: BSL-1.0
//
// Loops over threads: every index once, exceptions, loops in loops, callers at the same time, many short loops.
#include <algorithm>
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>

#include <chrono>
#include <map>
#include <mutex>
#endif

#include "gradus/device/cpu.hpp"
#include "gradus/device/processor_share.hpp"

using gradus::index_t;

BOOST_AUTO_TEST_SUITE(thread_pool)

BOOST_AUTO_TEST_CASE(every_index_once_in_the_same_pieces) {
  for (const int threads : {1, 2, 5}) {
    gradus::cpu device{{.intra_op_threads = threads}};
    BOOST_TEST(device.threads() == threads);
    std::vector<std::atomic<int>> hits(1003);
    std::vector<std::atomic<int>> begins(1003);
    device.parallel_for(1003, 10, [&](index_t begin, index_t end) {
      ++begins[static_cast<std::size_t>(begin)];
      for (index_t i = begin; i < end; ++i) {
        ++hits[static_cast<std::size_t>(i)];
      }
    });
    for (std::size_t i = 0; i < hits.size(); ++i) {
      BOOST_TEST_REQUIRE(hits[i] == 1);
      BOOST_TEST_REQUIRE(begins[i] == (i % 10 == 0 ? 1 : 0));
    }
    device.parallel_for(0, 10, [&](index_t, index_t) { ++hits[0]; });
    BOOST_TEST(hits[0] == 1);
  }
}

BOOST_AUTO_TEST_CASE(an_exception_arrives_and_the_pool_goes_on) {
  gradus::cpu device{{.intra_op_threads = 3}};
  for (int repeat = 0; repeat < 50; ++repeat) {
    BOOST_CHECK_THROW(device.parallel_tasks(20,
                                            [](index_t i) {
                                              if (i % 7 == 3) {
                                                throw std::runtime_error{"task"};
                                              }
                                            }),
                      std::runtime_error);
    std::atomic<int> count{0};
    device.parallel_tasks(20, [&](index_t) { ++count; });
    BOOST_TEST(count == 20);
  }
}

BOOST_AUTO_TEST_CASE(loops_in_loops) {
  gradus::cpu device{{.intra_op_threads = 3}};
  std::atomic<int> count{0};
  device.parallel_tasks(10, [&](index_t) { device.parallel_tasks(10, [&](index_t) { ++count; }); });
  BOOST_TEST(count == 100);
}

BOOST_AUTO_TEST_CASE(loops_of_one_device_in_loops_of_another) {
  gradus::cpu outer{{.intra_op_threads = 1, .inter_op_threads = 3}};
  for (int repeat = 0; repeat < 100; ++repeat) {
    std::atomic<int> count{0};
    outer.parallel_streams([&](index_t lane) {
      outer.stream(static_cast<std::size_t>(lane)).parallel_tasks(5, [&](index_t) {
        outer.parallel_tasks(2, [&](index_t) { ++count; });  // back to the first, which is in use
      });
    });
    BOOST_TEST(count == 30);
  }
  gradus::cpu first{{.intra_op_threads = 3}};
  gradus::cpu second{{.intra_op_threads = 3}};
  std::atomic<int> count{0};
  first.parallel_tasks(10, [&](index_t) {
    second.parallel_tasks(10, [&](index_t) { first.parallel_tasks(2, [&](index_t) { ++count; }); });
  });
  BOOST_TEST(count == 200);
}

BOOST_AUTO_TEST_CASE(callers_at_the_same_time) {
  gradus::cpu device{{.intra_op_threads = 2}};
  std::atomic<int> count{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 200; ++repeat) {
        device.parallel_tasks(5, [&](index_t) { ++count; });
      }
    });
  }
  for (auto& caller : callers) {
    caller.join();
  }
  BOOST_TEST(count == 4 * 200 * 5);
}

BOOST_AUTO_TEST_CASE(many_short_loops) {
  gradus::cpu device{{.intra_op_threads = 3}};
  std::atomic<int> count{0};
  for (int repeat = 0; repeat < 3000; ++repeat) {
    device.parallel_tasks(3, [&](index_t) { ++count; });
  }
  BOOST_TEST(count == 9000);
}

#if defined(__linux__)
// Workers that are kept away from a processor while they are woken may run on it afterwards.
BOOST_AUTO_TEST_CASE(workers_may_run_where_the_process_may) {
  const auto processors_of_threads = [](gradus::cpu& device) {
    std::mutex mutex;
    std::map<std::thread::id, int> counts;
    for (int loop = 0; loop < 5; ++loop) {
      std::this_thread::sleep_for(std::chrono::milliseconds{5});  // the workers fall asleep
      std::atomic<int> arrived{0};
      device.parallel_tasks(device.threads(), [&](index_t) {
        ++arrived;
        while (arrived < device.threads()) {  // every thread takes one, the caller when it has woken the others
          std::this_thread::yield();
        }
        cpu_set_t allowed;
        CPU_ZERO(&allowed);
        sched_getaffinity(0, sizeof(allowed), &allowed);
        const std::scoped_lock lock{mutex};
        counts[std::this_thread::get_id()] = CPU_COUNT(&allowed);
      });
    }
    return counts;
  };
  const int all = gradus::available_processors();
  gradus::cpu free{{.intra_op_threads = 2}};
  const auto counts = processors_of_threads(free);
  BOOST_TEST(counts.size() == 2U);
  for (const auto& [thread, count] : counts) {
    BOOST_TEST(count == all);
  }
  gradus::cpu pinned{{.intra_op_threads = std::max(2, std::min(all, 4)), .pin_threads = true}};
  for (const auto& [thread, count] : processors_of_threads(pinned)) {
    BOOST_TEST(count == (thread == std::this_thread::get_id() ? all : 1));
  }
}
#endif

BOOST_AUTO_TEST_CASE(absurd_numbers_of_threads) {
  BOOST_CHECK_THROW(gradus::cpu({.intra_op_threads = -1}), gradus::configuration_error);
  BOOST_CHECK_THROW(gradus::cpu({.intra_op_threads = 5000}), gradus::configuration_error);
}

BOOST_AUTO_TEST_CASE(ranks_of_a_machine_share_its_processors) {
  const int all = gradus::available_processors();
  BOOST_TEST(gradus::cpu{}.threads() == all);
  for (const char* const launcher : {"MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE"}) {
    ::setenv(launcher, "2", 1);
    const bool bound = all < static_cast<int>(std::thread::hardware_concurrency());
    BOOST_TEST(gradus::cpu{}.threads() == (bound ? all : std::max(1, all / 2)), launcher);
    ::setenv(launcher, "nonsense", 1);
    BOOST_TEST(gradus::cpu{}.threads() == all, launcher);
    ::unsetenv(launcher);
  }
  gradus::detail::ranks_in_process() = 1000;
  BOOST_TEST(gradus::cpu{}.threads() == 1);
  BOOST_TEST(gradus::cpu({.intra_op_threads = 3}).threads() == 3);  // what is said counts
  gradus::detail::ranks_in_process() = 1;
}

BOOST_AUTO_TEST_CASE(a_scheduler_gives_a_job_some_processors) {
  const char* const before = std::getenv("SLURM_CPUS_ON_NODE");
  const std::string given = before == nullptr ? "" : before;
  const int all = static_cast<int>(std::thread::hardware_concurrency());
  ::unsetenv("SLURM_CPUS_ON_NODE");
  BOOST_TEST(gradus::processors_of_job() == all);
  ::setenv("SLURM_CPUS_ON_NODE", "1", 1);
  BOOST_TEST(gradus::processors_of_job() == 1);
  ::setenv("SLURM_CPUS_ON_NODE", "60000", 1);  // more than there are
  BOOST_TEST(gradus::processors_of_job() == all);
  ::unsetenv("SLURM_CPUS_ON_NODE");
  if (before != nullptr) {
    ::setenv("SLURM_CPUS_ON_NODE", given.c_str(), 1);
  }
}

BOOST_AUTO_TEST_SUITE_END()

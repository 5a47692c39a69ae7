// SPDX-License-Identifier: BSL-1.0
//
// Windows: arrays of thread ranks that all of them reach, and when these end.
#include <boost/test/unit_test.hpp>

#include <array>      // std::array
#include <atomic>     // std::atomic
#include <chrono>     // std::chrono
#include <optional>   // std::optional
#include <stdexcept>  // std::runtime_error
#include <string>     // std::string
#include <thread>     // std::this_thread
#include <vector>     // std::vector

#include "../../support/communicators.hpp"  // failure_of, require, watchdog
#include "gradus/comm/flight_recorder.hpp"
#include "gradus/comm/recorded.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"

namespace {

namespace comm = gradus::comm;
namespace suite = communicator_tests;
using namespace std::chrono_literals;

static_assert(comm::makes_windows<comm::threads, float>);
static_assert(comm::makes_windows<comm::recorded<comm::threads>, float>);
static_assert(!comm::makes_windows<comm::self, float>);
static_assert(!comm::makes_windows<comm::recorded<comm::self>, float>);

/// Every rank writes its number into its element of all arrays, twice as large in the second window.
template <class Communicator>
void require_that_ranks_reach_arrays(Communicator& world) {
  const auto rank = static_cast<std::size_t>(world.rank());
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<int> first(ranks + rank, -1);
  std::vector<int> second(ranks, -1);
  {
    const auto one = world.make_window(std::span{first});
    const auto two = world.make_window(std::span{second});
    {
      const auto one_in_use = one.use();
      const auto two_in_use = two.use();
      suite::require(one_in_use && two_in_use, "windows that no rank has destroyed");
      for (std::size_t other = 0; other < ranks; ++other) {
        const auto of_other = one.of(static_cast<int>(other));
        suite::require(of_other.size() == ranks + other, "the size of each rank's array");
        of_other[rank] = world.rank();
        two.of(static_cast<int>(other))[rank] = 2 * world.rank();
      }
    }
    comm::barrier(world).wait();
  }
  for (std::size_t other = 0; other < ranks; ++other) {
    suite::require(first[other] == static_cast<int>(other), "what others wrote to the first array");
    suite::require(second[other] == 2 * static_cast<int>(other), "what others wrote to the second array");
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(comm_thread_window)

BOOST_AUTO_TEST_CASE(ranks_reach_each_others_arrays) {
  const suite::watchdog guard{300s};
  for (const int ranks : {1, 2, 5}) {
    comm::run_ranks(ranks, [](comm::threads& world) {
      for (int round = 0; round < 20; ++round) {  // windows of different rounds never meet
        require_that_ranks_reach_arrays(world);
      }
    });
  }
}

BOOST_AUTO_TEST_CASE(recorded_ranks_reach_them_too) {
  const suite::watchdog guard{300s};
  comm::run_ranks(3, [](comm::threads& world) {
    comm::recorded recorded{world.duplicate()};
    require_that_ranks_reach_arrays(recorded);
  });
}

BOOST_AUTO_TEST_CASE(a_window_ends_when_no_rank_uses_it) {
  const suite::watchdog guard{300s};
  std::atomic<int> in_use{0};
  std::atomic<bool> early{false};
  comm::run_ranks(2, [&](comm::threads& world) {
    std::vector<float> data(100);
    std::optional window{world.make_window(std::span{data})};
    if (world.rank() == 0) {
      auto lock = window->use();
      in_use = 1;
      std::this_thread::sleep_for(100ms);
      in_use = 2;
      lock.unlock();
    } else {
      while (in_use == 0) {
        std::this_thread::yield();
      }
      window.reset();
      early = in_use != 2;
    }
    comm::barrier(world).wait();
  });
  BOOST_TEST(!early);
}

BOOST_AUTO_TEST_CASE(a_window_that_has_ended_is_not_used) {
  const suite::watchdog guard{300s};
  const auto used = comm::run_ranks(2, [](comm::threads& world) {
    std::vector<float> data(100);
    std::optional window{world.make_window(std::span{data})};
    if (world.rank() == 1) {
      window.reset();
    }
    comm::barrier(world).wait();
    return world.rank() == 0 && window->use().owns_lock();
  });
  BOOST_TEST(!used[0]);
}

BOOST_AUTO_TEST_CASE(ranks_get_an_error_when_others_never_make_the_window) {
  const suite::watchdog guard{300s};
  std::array<std::string, 3> messages;
  BOOST_CHECK_THROW(comm::run_ranks(3,
                                    [&](comm::threads& world) {
                                      std::vector<float> data(100);
                                      if (world.rank() == 1) {
                                        throw std::runtime_error{"the disk is full"};
                                      }
                                      messages[static_cast<std::size_t>(world.rank())] = suite::failure_of(
                                          [&] { const auto window = world.make_window(std::span{data}); });
                                    }),
                    std::runtime_error);
  for (const std::size_t rank : {0U, 2U}) {
    BOOST_TEST(messages[rank].find("rank 1 failed: the disk is full") != std::string::npos, messages[rank]);
  }
}

BOOST_AUTO_TEST_SUITE_END()

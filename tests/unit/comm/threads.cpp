// SPDX-License-Identifier: BSL-1.0
//
// What is particular to thread ranks: results, the first failure, ranks that leave, calls that do not match.
#include <boost/test/unit_test.hpp>

#include <array>      // std::array
#include <atomic>     // std::atomic
#include <stdexcept>  // std::runtime_error
#include <string>     // std::string
#include <thread>     // std::this_thread
#include <vector>     // std::vector

#include "../../support/communicators.hpp"  // message_of, require_contains, watchdog
#include "gradus/comm/threads.hpp"

namespace {

namespace comm = gradus::comm;
namespace suite = communicator_tests;
using namespace std::chrono_literals;

/// What run_ranks throws for this function of a rank.
template <class Function>
std::string failure_on(int ranks, Function&& function) {
  return suite::failure_of([&] { comm::run_ranks(ranks, function); });
}

struct disk_full : std::runtime_error {
  disk_full() : std::runtime_error{"the disk is full"} {}
};

}  // namespace

BOOST_AUTO_TEST_SUITE(comm_threads)

BOOST_AUTO_TEST_CASE(run_ranks_returns_the_results_in_order) {
  const std::vector<int> squares = comm::run_ranks(5, [](comm::threads& world) { return world.rank() * world.rank(); });
  BOOST_TEST(squares == (std::vector{0, 1, 4, 9, 16}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_group_has_at_least_one_rank) {
  for (const int ranks : {0, -1, 32768}) {
    BOOST_CHECK_THROW(comm::run_ranks(ranks, [](comm::threads&) {}), gradus::configuration_error);
  }
}

BOOST_AUTO_TEST_CASE(contributions_are_added_in_the_order_of_the_ranks) {
  const std::array<float, 4> terms{1.0F, 1e8F, -1e8F, 1.0F};
  comm::run_ranks(4, [&](comm::threads& world) {
    for (const std::size_t size : {1U, 1000U, 100000U}) {
      std::vector<float> data(size, terms[static_cast<std::size_t>(world.rank())]);
      comm::all_reduce(world, data).wait();
      const float expected = ((terms[0] + terms[1]) + terms[2]) + terms[3];
      suite::require(std::all_of(data.begin(), data.end(), [&](float x) { return x == expected; }), "order");
    }
  });
}

BOOST_AUTO_TEST_CASE(the_first_failure_is_the_one_that_is_thrown) {
  const suite::watchdog guard{300s};
  std::atomic<int> told{0};
  BOOST_CHECK_THROW(comm::run_ranks(4,
                                    [&](comm::threads& world) {
                                      comm::threads other = world.duplicate();
                                      std::vector<float> data(70001, 1.0F);
                                      comm::request first = comm::all_reduce(other, data);
                                      if (world.rank() == 2) {
                                        std::this_thread::sleep_for(30ms);
                                        throw disk_full{};
                                      }
                                      first.wait();
                                      try {
                                        comm::barrier(other).wait();
                                      } catch (const gradus::communication_error& secondary) {
                                        suite::require_contains(secondary.what(), "rank 2 failed: the disk is full");
                                        ++told;
                                        throw;
                                      }
                                    }),
                    disk_full);
  BOOST_TEST(told == 3);
}

BOOST_AUTO_TEST_CASE(an_exception_with_messages_under_way_reaches_everybody) {
  const suite::watchdog guard{300s};
  for (int culprit = 0; culprit < 3; ++culprit) {
    BOOST_CHECK_THROW(comm::run_ranks(3,
                                      [&](comm::threads& world) {
                                        comm::threads other = world.duplicate();
                                        std::array<std::vector<float>, 4> data;
                                        data.fill(std::vector<float>(30011, 1.0F));
                                        std::vector<comm::request> pending;
                                        const int next = (world.rank() + 1) % 3;
                                        pending.push_back(comm::send(other, next, data[0], 1));
                                        pending.push_back(comm::receive(other, next, data[1], 2));
                                        if (world.rank() == culprit) {
                                          pending.push_back(comm::all_reduce(world, data[2]));
                                          throw disk_full{};
                                        }
                                        const std::string message = suite::message_of<gradus::communication_error>(
                                            [&] { comm::barrier(other).wait(); });
                                        suite::require_contains(message, "failed: the disk is full");
                                      }),
                      disk_full);
  }
}

/// An exception that is caught on its rank has still broken the communication that it unwound.
BOOST_AUTO_TEST_CASE(an_abandoned_collective_is_a_failure_even_if_the_exception_is_caught) {
  const suite::watchdog guard{300s};
  const std::string failure = failure_on(2, [](comm::threads& world) {
    std::vector<float> data(5000, 1.0F);
    if (world.rank() == 1) {
      try {
        const comm::request pending = comm::all_reduce(world, data);
        throw disk_full{};
      } catch (const disk_full&) {
      }
      std::this_thread::sleep_for(1500ms);
    } else {
      std::this_thread::sleep_for(50ms);
      comm::all_reduce(world, data).wait();
    }
  });
  suite::require_contains(failure,
                          "rank 1 failed: it left all_reduce(sum) of 5000 float32 unfinished because of an exception");
}

BOOST_AUTO_TEST_CASE(a_rank_that_leaves_early_is_named) {
  const suite::watchdog guard{300s};
  std::string failure = failure_on(3, [](comm::threads& world) {
    if (world.rank() != 1) {
      comm::barrier(world).wait();
    }
  });
  suite::require_contains(failure, "rank 1 failed: it has left the group, but rank");
  suite::require_contains(failure, "waits for it in barrier");
  failure = failure_on(2, [](comm::threads& world) {
    std::array<float, 3> data{};
    if (world.rank() == 0) {
      comm::receive(world, 1, data, 4).wait();
    }
  });
  suite::require_contains(failure,
                          "rank 1 failed: it has left the group, but rank 0 calls receive from rank 1 (tag 4)");
  // Leaving with everything done is no failure.
  BOOST_TEST(failure_on(3, [](comm::threads& world) { comm::barrier(world).wait(); }) == "");
}

BOOST_AUTO_TEST_CASE(an_exception_of_a_rank_that_moved_its_communicator_is_thrown) {
  const suite::watchdog guard{300s};
  for (const int ranks : {1, 3}) {
    const std::string failure = failure_on(ranks, [](comm::threads& world) {
      comm::threads own{std::move(world)};
      comm::barrier(own).wait();
      if (own.rank() == own.size() - 1) {
        throw std::runtime_error{"the disk is full"};
      }
      comm::barrier(own).wait();
    });
    BOOST_TEST(failure == "the disk is full");
  }
}

BOOST_AUTO_TEST_CASE(collectives_that_do_not_match_are_named) {
  const suite::watchdog guard{300s};
  const auto failure = [](auto&& of_rank_1) {
    return failure_on(3, [&](comm::threads& world) {
      std::vector<float> data(100);
      if (world.rank() == 1) {
        of_rank_1(world).wait();
      } else {
        comm::all_reduce(world, data).wait();
      }
    });
  };
  std::vector<float> floats(100);
  std::vector<double> doubles(100);
  const std::string begin =
      "ranks disagree about a collective: rank 0 calls all_reduce(sum) of 100 float32, rank 1 calls ";
  suite::require_contains(failure([&](auto& world) { return comm::broadcast(world, floats); }),
                          begin + "broadcast from rank 0 of 100 float32");
  suite::require_contains(failure([&](auto& world) { return comm::all_reduce(world, doubles); }),
                          begin + "all_reduce(sum) of 100 float64");
  suite::require_contains(failure([&](auto& world) { return comm::all_reduce(world, std::span{floats}.first(99)); }),
                          begin + "all_reduce(sum) of 99 float32");
  suite::require_contains(
      failure([&](auto& world) { return comm::all_reduce(world, floats, comm::reduction::maximum); }),
      begin + "all_reduce(maximum) of 100 float32");
}

BOOST_AUTO_TEST_CASE(many_ranks_with_random_delays) {
  const suite::watchdog guard{300s};
  comm::run_ranks(9, [](comm::threads& world) {
    unsigned state = 12345U + static_cast<unsigned>(world.rank());
    for (int round = 0; round < 60; ++round) {
      state = state * 1664525U + 1013904223U;
      if ((state >> 28U) == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds{(state >> 16U) % 2000});
      }
      const auto size = static_cast<std::size_t>(1 + (round * 7919) % 9001);
      std::vector<std::int64_t> sums(size, world.rank() + 1);
      std::vector<std::int64_t> highest(size, world.rank() + round);
      comm::request first = comm::all_reduce(world, sums);
      comm::request second = comm::all_reduce(world, highest, comm::reduction::maximum);
      if (world.rank() % 2 == 0) {
        first.wait();
      }
      second.wait();
      first.wait();
      suite::require(std::all_of(sums.begin(), sums.end(), [](auto x) { return x == 45; }), "sum");
      suite::require(std::all_of(highest.begin(), highest.end(), [&](auto x) { return x == 8 + round; }), "maximum");
    }
  });
}

// What a communicator finds when it begins an operation has the line that begins it.
BOOST_AUTO_TEST_CASE(a_call_that_cannot_begin_names_the_line_of_the_program) {
  std::vector<comm::threads> ranks = comm::threads::create(2);
  ranks[1].fail("the disk is full");
  comm::threads& world = ranks[0];
  std::vector<float> two(2);
  std::vector<float> one(1);
  const auto names_line = [](unsigned line, const auto& call) {
    const std::string message = suite::failure_of(call);
    suite::require_contains(message, "the disk is full");
    suite::require_contains(message, "[threads.cpp:" + std::to_string(line) + "]");
  };
  // clang-format off
  names_line(__LINE__, [&] { static_cast<void>(comm::send(world, 1, two)); });
  names_line(__LINE__, [&] { static_cast<void>(comm::receive(world, 1, two)); });
  names_line(__LINE__, [&] { static_cast<void>(comm::all_reduce(world, two)); });
  names_line(__LINE__, [&] { static_cast<void>(comm::broadcast(world, two)); });
  names_line(__LINE__, [&] { static_cast<void>(comm::reduce_scatter(world, two, one)); });
  names_line(__LINE__, [&] { static_cast<void>(comm::all_gather(world, one, two)); });
  names_line(__LINE__, [&] { static_cast<void>(comm::barrier(world)); });
  // clang-format on
}

BOOST_AUTO_TEST_CASE(handles_can_be_given_to_threads_of_ones_own) {
  std::vector<comm::threads> handles = comm::threads::create(2);
  std::vector<float> a{1.0F};
  std::vector<float> b{2.0F};
  std::thread other{[&b, world = std::move(handles[1])]() mutable { comm::all_reduce(world, b).wait(); }};
  comm::all_reduce(handles[0], a).wait();
  other.join();
  BOOST_TEST(a[0] == 3.0F);
  BOOST_TEST(b[0] == 3.0F);
  BOOST_TEST(handles[0].failed_rank() == -1);
}

BOOST_AUTO_TEST_CASE(ranks_share_the_processors_of_the_machine) {
  const int all = gradus::available_processors();
  const auto threads_of_devices = comm::run_ranks(2, [](comm::threads&) {
    const auto inner = comm::run_ranks(2, [](comm::threads&) { return gradus::processors_of_rank(); });
    return std::vector<int>{gradus::processors_of_rank(), inner[0], inner[1]};
  });
  for (const std::vector<int>& each : threads_of_devices) {
    BOOST_TEST(each[0] == std::max(1, all / 2));
    BOOST_TEST(each[1] == std::max(1, all / 4));
    BOOST_TEST(each[2] == std::max(1, all / 4));
  }
  BOOST_TEST(gradus::processors_of_rank() == all);
}

BOOST_AUTO_TEST_SUITE_END()

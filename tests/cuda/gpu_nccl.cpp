// SPDX-License-Identifier: BSL-1.0
//
// NCCL passes the conformance suite of communicators on 1 to 4 cards, as many as there are.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "communicators.hpp"
#include "gradus/comm/nccl.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/tensor/tensor.hpp"

namespace {

namespace comm = gradus::comm;
namespace suite = communicator_tests;

int most_ranks() {
  return std::min(4, gradus::cuda_device_count());
}

template <class Test>
void on_gpus(int ranks, const Test& test) {
  comm::run_ranks(ranks, [&](comm::threads& hosts) {
    gradus::cuda device{{.device = hosts.rank()}};
    comm::nccl gpus{hosts.duplicate(), device};
    test(gpus);
    comm::barrier(hosts).wait();  // no rank leaves while others need it
  });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(gpu_nccl)

BOOST_AUTO_TEST_CASE(conformance) {
  const suite::watchdog guard{std::chrono::seconds{250}};
  for (int ranks = 1; ranks <= most_ranks(); ++ranks) {
    BOOST_TEST_CONTEXT(ranks << " ranks") {
      std::string failed;
      BOOST_TEST(suite::failure_of([&] {
                   on_gpus(ranks, [&](comm::nccl& world) {
                     for (const auto& each : suite::conformance_cases<comm::nccl>()) {
                       try {
                         each.run(world);
                       } catch (const std::exception& failure) {
                         throw std::logic_error{each.name + ": " + failure.what()};
                       }
                     }
                   });
                 }) == "");
    }
  }
}

BOOST_AUTO_TEST_CASE(failures_are_named) {
  const suite::watchdog guard{std::chrono::seconds{250}};
  for (int ranks = 2; ranks <= most_ranks(); ++ranks) {
    BOOST_TEST(suite::failure_of([&] {
                 on_gpus(ranks, &suite::a_rank_that_fails_is_named<comm::nccl>);
               }).find("check failed") == std::string::npos);
    BOOST_TEST(suite::failure_of([&] {
                 on_gpus(ranks, &suite::a_wait_has_a_time_limit<comm::nccl>);
               }).find("check failed") == std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(some_cards_have_a_communicator) {
  if (most_ranks() < 4) {
    return;
  }
  const suite::watchdog guard{std::chrono::seconds{250}};
  // Cards 3, 0 and cards 1, 2.
  const auto list_of = [](int rank) { return rank % 3 == 0 ? std::vector<int>{3, 0} : std::vector<int>{1, 2}; };
  BOOST_TEST(
      suite::failure_of([&] {
        on_gpus(4, [&](comm::nccl& world) {
          comm::nccl pair = comm::split(world, list_of(world.rank()));
          if (pair.size() != 2 || list_of(world.rank())[static_cast<std::size_t>(pair.rank())] != world.rank()) {
            throw std::logic_error{"another group"};
          }
          for (const auto& each : suite::conformance_cases<comm::nccl>()) {
            try {
              each.run(pair);
            } catch (const std::exception& failure) {
              throw std::logic_error{each.name + ": " + failure.what()};
            }
          }
          const std::vector<int> none_or_three = world.rank() == 1 ? std::vector<int>{} : std::vector<int>{0, 2, 3};
          comm::nccl three = comm::split(world, none_or_three);
          if (three.size() != (world.rank() == 1 ? 0 : 3)) {
            throw std::logic_error{"another size"};
          }
          if (world.rank() != 1) {
            std::vector<float> values{1};
            comm::all_reduce(three, values).wait();
            suite::require_same(values, std::vector<float>{3}, "sum of three");
          }
        });
      }) == "");
  // Errors name cards of the whole.
  std::string late;
  static_cast<void>(suite::failure_of([&] {
    on_gpus(4, [&](comm::nccl& world) {
      comm::nccl pair = comm::split(world, list_of(world.rank()));
      pair.set_time_limit(std::chrono::milliseconds{300});
      std::vector<float> values(2);
      if (world.rank() == 0) {
        try {
          comm::receive(pair, 0, values).wait();
        } catch (const gradus::communication_error& failure) {
          late = failure.what();
          throw;
        }
      }
      comm::barrier(world).wait();
    });
  }));
  BOOST_TEST(late.find("from rank 3") != std::string::npos, late);
}

BOOST_AUTO_TEST_CASE(memory_of_the_card_is_reduced_in_place) {
  on_gpus(std::max(1, most_ranks()), [](comm::nccl& world) {
    gradus::cuda& device = world.device();
    gradus::tensor<float, 1, gradus::row_major, gradus::cuda> values{device, {1009}};
    const std::vector<float> own = suite::contributions<float>(world.rank(), 1009);
    device.copy_from_host(values.data(), own.data(), own.size() * sizeof(float));
    comm::all_reduce(world, std::span{values.data(), own.size()}).wait();
    std::vector<float> sums(own.size());
    device.copy_to_host(sums.data(), values.data(), sums.size() * sizeof(float));
    suite::require_same(sums, suite::expected_values<float>(world.size(), sums.size()), "sum");
  });
}

BOOST_AUTO_TEST_CASE(a_new_thread_begins_operations_on_the_card_of_its_rank) {
  on_gpus(std::max(1, most_ranks()), [](comm::nccl& world) {
    std::vector<float> first = suite::contributions<float>(world.rank(), 100);
    std::vector<float> second = first;
    std::string failure;
    auto under_way = comm::all_reduce(world, first);  // so that the thread needs an operation more
    std::thread{[&] {
      try {
        comm::all_reduce(world, second).wait();
      } catch (const std::exception& error) {
        failure = error.what();
      }
    }}.join();
    if (!failure.empty()) {
      throw std::logic_error{failure};
    }
    under_way.wait();
    suite::require_same(first, suite::expected_values<float>(world.size(), first.size()), "sum");
    suite::require_same(second, suite::expected_values<float>(world.size(), second.size()), "sum");
  });
}

BOOST_AUTO_TEST_CASE(ranks_meet_by_a_file) {
  const std::string path = "gpu_nccl_id";
  std::remove(path.c_str());
  gradus::cuda device;
  comm::nccl alone{path, 0, 1, device};
  BOOST_CHECK_EQUAL(alone.size(), 1);
  BOOST_CHECK(std::fopen(path.c_str(), "rb") == nullptr);
}

BOOST_AUTO_TEST_SUITE_END()

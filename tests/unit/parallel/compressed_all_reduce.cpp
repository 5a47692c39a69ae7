// SPDX-License-Identifier: BSL-1.0
//
// Gradients that travel as bfloat16: sums as near as 16 bits allow, the same bits on all ranks, a known error.
#include <boost/test/unit_test.hpp>

#include <algorithm>  // std::max
#include <cmath>      // std::abs
#include <string>     // std::string
#include <vector>     // std::vector

#include "gradus/comm/collectives.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/parallel/compressed_all_reduce.hpp"

namespace {

namespace comm = gradus::comm;
namespace parallel = gradus::parallel;

struct outcome {
  std::vector<float> sums;
  double error = 0;
  std::string plan;
};

/// Two steps over three parameters in buckets of their own.
template <class Communicator>
outcome two_steps(Communicator& world) {
  const std::vector<gradus::optim::segment> segments{{.name = "c", .offset = 0, .size = 100},
                                                     {.name = "b", .offset = 112, .size = 300},
                                                     {.name = "a", .offset = 416, .size = 84}};
  std::vector<float> values(500);
  std::vector<float> gradients(500);
  parallel::compressed_all_reduce::state<float, Communicator> synchronization{
      parallel::compressed_all_reduce{{.bucket_bytes = 1, .first_bucket_bytes = 1}},
      world,
      {values, gradients, segments}};
  synchronization.start();
  for (int step = 0; step < 2; ++step) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = 1.0F / (3.0F + static_cast<float>(i) + static_cast<float>(world.rank()));
    }
    synchronization.gradients_ready(0, 3);
    synchronization.finish([](std::span<const gradus::optim::segment>) {});
  }
  return {gradients, synchronization.channel().relative_error(), synchronization.describe()};
}

void check(const std::vector<outcome>& ranks) {
  double largest = 0;
  for (std::size_t i = 0; i < 500; ++i) {
    double want = 0;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      want += 1.0 / (3.0 + static_cast<double>(i + rank));
    }
    largest = std::max(largest, std::abs(static_cast<double>(ranks[0].sums[i]) - want) / want);
  }
  BOOST_TEST(largest < 0.012);  // three roundings of 2^-8 at most
  BOOST_TEST(largest > 1e-4);   // they did travel in 16 bits
  for (const outcome& each : ranks) {
    BOOST_TEST((each.sums == ranks[0].sums));
    BOOST_TEST(each.error > 5e-4);
    BOOST_TEST(each.error < 3e-3);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(parallel_compressed_all_reduce)

BOOST_AUTO_TEST_CASE(threads_sum_in_16_bits) {
  check(comm::run_ranks(3, [](comm::threads& world) { return two_steps(world); }));
}

BOOST_AUTO_TEST_CASE(so_do_collectives_over_messages) {
  const auto ranks = comm::run_ranks(3, [](comm::threads& world) {
    comm::collectives own{world.duplicate(), {.all_reduce = comm::parse_all_reduce_spec("ring")}};
    return two_steps(own);
  });
  check(ranks);
  BOOST_TEST(ranks[0].plan.find("collectives in bfloat16") != std::string::npos, ranks[0].plan);
}

BOOST_AUTO_TEST_SUITE_END()

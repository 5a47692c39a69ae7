// SPDX-License-Identifier: BSL-1.0
//
// Gradients that travel as bfloat16 and float16: sums as near as 16 bits allow, the same bits on all ranks, a known
// error.
#include <boost/test/unit_test.hpp>

#include <algorithm>  // std::max
#include <cmath>      // std::abs
#include <string>     // std::string
#include <vector>     // std::vector

#include "gradus/comm/collectives.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/parallel/compressed_all_reduce.hpp"

namespace {

namespace comm = gradus::comm;
namespace parallel = gradus::parallel;
using gradus::bfloat16;
using gradus::float16;

struct outcome {
  std::vector<float> sums;
  double error = 0;
  std::string plan;
  std::string summary;
};

/// Two steps over three parameters in buckets of their own.
template <class Wire, class Communicator>
outcome two_steps(Communicator& world, float largest = 0) {
  const std::vector<gradus::optim::segment> segments{{.name = "c", .offset = 0, .size = 100},
                                                     {.name = "b", .offset = 112, .size = 300},
                                                     {.name = "a", .offset = 416, .size = 84}};
  std::vector<float> values(500);
  std::vector<float> gradients(500);
  typename parallel::compressed_all_reduce<Wire>::template state<float> strategy{
      parallel::compressed_all_reduce<Wire>{{.bucket_bytes = 1, .first_bucket_bytes = 1}},
      world,
      {values, gradients, segments}};
  strategy.start();
  for (int step = 0; step < 2; ++step) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = 1.0F / (3.0F + static_cast<float>(i) + static_cast<float>(world.rank()));
    }
    gradients[120] = largest > 0 && step == 1 ? largest : gradients[120];
    strategy.gradients_ready(0, 3);
    strategy.finish([](std::span<const gradus::optim::segment>) {});
  }
  return {gradients, strategy.channel().relative_error(), strategy.describe(), strategy.channel().summary()};
}

/// @param rounding  the largest relative error of a rounding
void check(const std::vector<outcome>& ranks, double rounding) {
  double largest = 0;
  for (std::size_t i = 0; i < 500; ++i) {
    double want = 0;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      want += 1.0 / (3.0 + static_cast<double>(i + rank));
    }
    largest = std::max(largest, std::abs(static_cast<double>(ranks[0].sums[i]) - want) / want);
  }
  BOOST_TEST(largest < 3 * rounding);
  BOOST_TEST(largest > rounding / 30);  // they did travel in 16 bits
  for (const outcome& each : ranks) {
    BOOST_TEST((each.sums == ranks[0].sums));
    BOOST_TEST(each.error > rounding / 8);
    BOOST_TEST(each.error < rounding);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(parallel_compressed_all_reduce)

BOOST_AUTO_TEST_CASE(threads_sum_in_16_bits) {
  check(comm::run_ranks(3, [](comm::threads& world) { return two_steps<bfloat16>(world); }), 0x1p-8);
  check(comm::run_ranks(3, [](comm::threads& world) { return two_steps<float16>(world); }), 0x1p-11);
}

BOOST_AUTO_TEST_CASE(so_do_collectives_over_messages) {
  const auto ranks = comm::run_ranks(3, [](comm::threads& world) {
    comm::collectives own{world.duplicate(), {.all_reduce = comm::parse_all_reduce_spec("ring")}};
    return two_steps<float16>(own);
  });
  check(ranks, 0x1p-11);
  BOOST_TEST(ranks[0].plan.find("collectives in float16") != std::string::npos, ranks[0].plan);
  BOOST_TEST(ranks[0].summary.find("gradients in float16: relative error ") == 0U, ranks[0].summary);
  BOOST_TEST(ranks[0].summary.find("e-04, 0 sums not finite") != std::string::npos, ranks[0].summary);
}

// 65504 is the largest float16; a sum of two of them is infinite, and so is what is larger on one rank.
BOOST_AUTO_TEST_CASE(what_is_too_large_for_half_becomes_infinite_and_is_counted) {
  for (const float largest : {65504.0F, 70000.0F}) {
    const auto ranks = comm::run_ranks(2, [&](comm::threads& world) { return two_steps<float16>(world, largest); });
    for (const outcome& each : ranks) {
      BOOST_TEST(std::isinf(each.sums[120]));
      BOOST_TEST(std::isfinite(each.sums[121]));
      BOOST_TEST(each.summary.find(", 1 sums not finite") != std::string::npos, each.summary);
      BOOST_TEST(std::isinf(each.error) == (largest > 65504));
    }
  }
  const auto wide = comm::run_ranks(2, [](comm::threads& world) { return two_steps<bfloat16>(world, 70000); });
  BOOST_TEST(std::isfinite(wide[0].sums[120]));
  BOOST_TEST(wide[0].summary.find(", 0 sums not finite") != std::string::npos, wide[0].summary);
}

BOOST_AUTO_TEST_SUITE_END()

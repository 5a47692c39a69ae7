// SPDX-License-Identifier: BSL-1.0
#include <boost/test/unit_test.hpp>

#include <gradus/core/error.hpp>
#include <gradus/core/random.hpp>
#include <gradus/nn/plan/memory_plan.hpp>
#include <gradus/nn/plan/tight_memory_plan.hpp>

#include <algorithm>
#include <vector>

namespace nn = gradus::nn;

BOOST_AUTO_TEST_SUITE(nn_memory_plan)

// Sums of bytes that do not fit would be small plans.
BOOST_AUTO_TEST_CASE(more_bytes_than_can_be_counted_are_refused) {
  constexpr std::size_t half = std::size_t{1} << 63U;
  const std::vector<nn::buffer_lifetime> two(2, {.bytes = half, .first = 0, .last = 1});
  const std::vector<nn::buffer_lifetime> one{{.bytes = ~std::size_t{0}, .first = 0, .last = 1}};
  const std::vector<nn::buffer_lifetime> many(64, {.bytes = half / 16, .first = 0, .last = 1});
  for (const auto& each : {two, one, many}) {
    BOOST_CHECK_THROW(static_cast<void>(nn::plan_memory(each)), gradus::configuration_error);
    BOOST_CHECK_THROW(static_cast<void>(nn::plan_memory_tightly(each)), gradus::configuration_error);
    BOOST_CHECK_THROW(static_cast<void>(nn::largest_live_set(each)), gradus::configuration_error);
  }
  // One after another they share the memory of one.
  std::vector<nn::buffer_lifetime> apart;
  for (std::size_t i = 0; i < 64; ++i) {
    apart.push_back({.bytes = half / 16, .first = i, .last = i});
  }
  BOOST_TEST(nn::plan_memory(apart).bytes == half / 16);
}

BOOST_AUTO_TEST_CASE(buffers_that_live_together_do_not_overlap) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const gradus::random_stream stream{seed, "lifetimes"};
    std::vector<nn::buffer_lifetime> buffers;
    for (std::uint64_t i = 0; i < 60; ++i) {
      const auto first = static_cast<std::size_t>(stream.below(40, 3 * i));
      buffers.push_back({.bytes = static_cast<std::size_t>(stream.below(5000, 3 * i + 1)),
                         .first = first,
                         .last = first + static_cast<std::size_t>(stream.below(8, 3 * i + 2))});
    }
    const nn::memory_plan plan = nn::plan_memory(buffers);
    std::size_t busiest = 0;
    for (std::size_t time = 0; time < 48; ++time) {
      std::size_t live = 0;
      for (const auto& b : buffers) {
        live += b.first <= time && time <= b.last ? b.bytes : 0;
      }
      busiest = std::max(busiest, live);
    }
    BOOST_TEST(plan.bytes >= busiest);
    BOOST_TEST(plan.bytes < 2 * busiest);  // far below the 60 buffers side by side
    for (std::size_t a = 0; a < buffers.size(); ++a) {
      BOOST_TEST(plan.offsets[a] % nn::memory_plan::alignment == 0U);
      BOOST_TEST(plan.offsets[a] + buffers[a].bytes <= plan.bytes);
      for (std::size_t b = a + 1; b < buffers.size(); ++b) {
        const bool together = buffers[a].first <= buffers[b].last && buffers[b].first <= buffers[a].last;
        const bool apart = plan.offsets[a] + buffers[a].bytes <= plan.offsets[b] ||
                           plan.offsets[b] + buffers[b].bytes <= plan.offsets[a];
        BOOST_TEST((!together || apart));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(buffers_one_after_another_share_an_offset) {
  const nn::buffer_lifetime buffers[] = {{.bytes = 1000, .first = 0, .last = 1},
                                         {.bytes = 1000, .first = 2, .last = 3},
                                         {.bytes = 900, .first = 4, .last = 5}};
  const nn::memory_plan plan = nn::plan_memory(buffers);
  BOOST_TEST(plan.bytes == 1024U);
}

// Random lifetimes are harder than those of networks: the largest live set may be out of reach.
BOOST_AUTO_TEST_CASE(a_tight_plan_is_valid_and_smaller) {
  double tight = 0;
  double greedy = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const gradus::random_stream stream{seed, "lifetimes"};
    std::vector<nn::buffer_lifetime> buffers;
    for (std::uint64_t i = 0; i < 40; ++i) {
      const auto first = static_cast<std::size_t>(stream.below(40, 3 * i));
      buffers.push_back({.bytes = static_cast<std::size_t>(stream.below(5000, 3 * i + 1)),
                         .first = first,
                         .last = first + static_cast<std::size_t>(stream.below(8, 3 * i + 2))});
    }
    const nn::memory_plan plan = nn::plan_memory_tightly(buffers);
    const std::size_t least = nn::largest_live_set(buffers);
    BOOST_TEST(plan.bytes >= least);
    BOOST_TEST(plan.bytes <= nn::plan_memory(buffers).bytes);
    tight += static_cast<double>(plan.bytes) / static_cast<double>(least);
    greedy += static_cast<double>(nn::plan_memory(buffers).bytes) / static_cast<double>(least);
    for (std::size_t a = 0; a < buffers.size(); ++a) {
      BOOST_TEST(plan.offsets[a] % nn::memory_plan::alignment == 0U);
      BOOST_TEST(plan.offsets[a] + buffers[a].bytes <= plan.bytes);
      for (std::size_t b = a + 1; b < buffers.size(); ++b) {
        const bool together = buffers[a].first <= buffers[b].last && buffers[b].first <= buffers[a].last;
        const bool apart = plan.offsets[a] + buffers[a].bytes <= plan.offsets[b] ||
                           plan.offsets[b] + buffers[b].bytes <= plan.offsets[a];
        BOOST_TEST((!together || apart));
      }
    }
  }
  BOOST_TEST(tight / 20 < 1.05);
  BOOST_TEST(tight < greedy);
}

BOOST_AUTO_TEST_CASE(a_chain_takes_its_largest_live_set) {
  const nn::buffer_lifetime buffers[] = {{.bytes = 128, .first = 0, .last = 1},
                                         {.bytes = 64, .first = 1, .last = 2},
                                         {.bytes = 128, .first = 2, .last = 3},
                                         {.bytes = 64, .first = 3, .last = 4},
                                         {.bytes = 192, .first = 4, .last = 5}};
  BOOST_TEST(nn::largest_live_set(buffers) == 256U);
  BOOST_TEST(nn::plan_memory_tightly(buffers).bytes == 256U);
}

BOOST_AUTO_TEST_SUITE_END()

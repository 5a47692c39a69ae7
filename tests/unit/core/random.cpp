// SPDX-License-Identifier: BSL-1.0
//
// The counter-based random stream: published test vectors of Philox, moments, ranges, and independence of names.
#include <gradus/core/random.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

using gradus::random_stream;

namespace {

/// Philox4x32-10 written from the paper, with the key as an argument: the stream's key is a hash of seed and name.
random_stream::block_type philox(random_stream::block_type counter, std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const auto high = [](std::uint32_t a, std::uint32_t b) {
      return static_cast<std::uint32_t>((std::uint64_t{a} * b) >> 32U);
    };
    counter = {high(0xCD9E8D57U, counter[2]) ^ counter[1] ^ key0, 0xCD9E8D57U * counter[2],
               high(0xD2511F53U, counter[0]) ^ counter[3] ^ key1, 0xD2511F53U * counter[0]};
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return counter;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(core_random)

// The known answers of Random123 (kat_vectors: philox4x32 10) hold for the reference above ...
BOOST_AUTO_TEST_CASE(the_reference_gives_the_published_answers) {
  BOOST_CHECK(
      (philox({0, 0, 0, 0}, 0, 0) == random_stream::block_type{0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U}));
  BOOST_CHECK((philox({0xffffffffU, 0xffffffffU, 0xffffffffU, 0xffffffffU}, 0xffffffffU, 0xffffffffU) ==
               random_stream::block_type{0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU}));
  BOOST_CHECK((philox({0x243f6a88U, 0x85a308d3U, 0x13198a2eU, 0x03707344U}, 0xa4093822U, 0x299f31d0U) ==
               random_stream::block_type{0xd16cfe09U, 0x94fdccebU, 0x5001e420U, 0x24126ea1U}));
}

// ... and the stream is the reference for its key.
BOOST_AUTO_TEST_CASE(a_block_is_philox_of_the_counter) {
  const random_stream stream{12345, "weight"};
  const auto key0 = static_cast<std::uint32_t>(stream.key());
  const auto key1 = static_cast<std::uint32_t>(stream.key() >> 32U);
  for (const std::uint64_t index : {0ULL, 1ULL, 0xffffffffULL, 0x100000000ULL, 0x123456789abcdefULL}) {
    for (const std::uint64_t sequence : {0ULL, 7ULL, 0xfedcba9876543210ULL}) {
      BOOST_CHECK((stream.block(index, sequence) ==
                   philox({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32U),
                           static_cast<std::uint32_t>(sequence), static_cast<std::uint32_t>(sequence >> 32U)},
                          key0, key1)));
    }
  }
}

BOOST_AUTO_TEST_CASE(seed_name_and_index_all_matter) {
  static_assert(random_stream{1, "a"}.bits(0) == random_stream{1, "a"}.bits(0));
  static_assert(random_stream{1, "a"}.bits(0) != random_stream{2, "a"}.bits(0));
  static_assert(random_stream{1, "a"}.bits(0) != random_stream{1, "b"}.bits(0));
  static_assert(random_stream{1, "a"}.bits(0) != random_stream{1, "a"}.bits(1));
  static_assert(random_stream{1, "a"}.bits(0) != random_stream{1, "a"}.bits(0, 1));
  static_assert(random_stream{1}.key() == random_stream{1, ""}.key());
}

BOOST_AUTO_TEST_CASE(uniform_lies_in_the_half_open_interval_with_the_right_moments) {
  const random_stream stream{3, "uniform"};
  constexpr int count = 40000;
  double sum = 0;
  double squares = 0;
  std::array<int, 16> bins{};
  for (std::uint64_t index = 0; index < count; ++index) {
    const double value = stream.uniform(index);
    BOOST_REQUIRE(value >= 0.0);
    BOOST_REQUIRE(value < 1.0);
    sum += value;
    squares += value * value;
    ++bins.at(static_cast<std::size_t>(value * 16));
  }
  // Five standard deviations: 5 / sqrt(12 * count), 5 / sqrt(11.25 * count), 5 * sqrt(count / 16 * 15 / 16).
  BOOST_TEST(std::abs(sum / count - 0.5) < 5 / std::sqrt(12.0 * count));
  BOOST_TEST(std::abs(squares / count - 1.0 / 3) < 5 / std::sqrt(11.25 * count));
  for (const int hits : bins) {
    BOOST_TEST(std::abs(hits - count / 16) < 5 * std::sqrt(count / 16.0 * 15 / 16));
  }
}

BOOST_AUTO_TEST_CASE(normal_has_the_moments_of_the_standard_normal_distribution) {
  const random_stream stream{4, "normal"};
  constexpr int count = 40000;
  std::array<double, 5> moments{};
  for (std::uint64_t index = 0; index < count; ++index) {
    const double value = stream.normal(index);
    BOOST_REQUIRE(std::isfinite(value));
    double power = 1;
    for (double& moment : moments) {
      moment += power / count;
      power *= value;
    }
  }
  // Variances of x, x^2, x^3, x^4 are 1, 2, 15, 96.
  BOOST_TEST(std::abs(moments[1]) < 5 * std::sqrt(1.0 / count));
  BOOST_TEST(std::abs(moments[2] - 1) < 5 * std::sqrt(2.0 / count));
  BOOST_TEST(std::abs(moments[3]) < 5 * std::sqrt(15.0 / count));
  BOOST_TEST(std::abs(moments[4] - 3) < 5 * std::sqrt(96.0 / count));
}

BOOST_AUTO_TEST_CASE(truncated_normal_stays_within_two_and_keeps_the_others) {
  const random_stream stream{5, "truncated"};
  int redrawn = 0;
  for (std::uint64_t index = 0; index < 5000; ++index) {
    const double value = stream.truncated_normal(index);
    BOOST_REQUIRE(std::abs(value) <= 2.0);
    if (std::abs(stream.normal(index)) <= 2.0) {
      BOOST_REQUIRE(value == stream.normal(index));
    } else {
      ++redrawn;
    }
  }
  // P(|x| > 2) = 0.0455: 227.5 of 5000, standard deviation 14.7
  BOOST_TEST(std::abs(redrawn - 227.5) < 75);
}

BOOST_AUTO_TEST_CASE(below_reaches_every_number_and_no_other) {
  const random_stream stream{6, "below"};
  for (const std::uint64_t bound : {1ULL, 2ULL, 3ULL, 10ULL}) {
    std::array<int, 10> hits{};
    for (std::uint64_t index = 0; index < 3000; ++index) {
      const std::uint64_t value = stream.below(bound, index);
      BOOST_REQUIRE(value < bound);
      ++hits.at(static_cast<std::size_t>(value));
    }
    const double share = 3000.0 / static_cast<double>(bound);
    for (std::uint64_t value = 0; value < bound; ++value) {
      BOOST_TEST(std::abs(hits.at(static_cast<std::size_t>(value)) - share) < 5 * std::sqrt(share) + 1e-9);
    }
  }
}

BOOST_AUTO_TEST_CASE(below_handles_the_largest_bounds) {
  const random_stream stream{7, "below"};
  // Half of all candidates are refused for 2^63 + 1: the loop must go on to the next block.
  constexpr std::uint64_t bound = (std::uint64_t{1} << 63U) + 1;
  for (std::uint64_t index = 0; index < 200; ++index) {
    BOOST_REQUIRE(stream.below(bound, index) < bound);
    BOOST_REQUIRE(stream.below(std::numeric_limits<std::uint64_t>::max(), index) <
                  std::numeric_limits<std::uint64_t>::max());
  }
}

BOOST_AUTO_TEST_CASE(the_hash_of_a_text_is_fnv_1a) {
  static_assert(gradus::detail::hash_text("") == 0xcbf29ce484222325ULL);
  static_assert(gradus::detail::hash_text("a") == 0xaf63dc4c8601ec8cULL);
  static_assert(gradus::detail::hash_text("foobar") == 0x85944171f73967e8ULL);
  static_assert(gradus::detail::mix_bits(0) == 0xe220a8397b1dcdafULL);  // the first output of SplitMix64 for seed 0
}

BOOST_AUTO_TEST_SUITE_END()

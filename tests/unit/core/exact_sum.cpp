// SPDX-License-Identifier: BSL-1.0
#include "gradus/core/exact_sum.hpp"

#include <array>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "gradus/core/random.hpp"

namespace {

using gradus::exact_sum;
using summed_limits = std::numeric_limits<double>;

double exact_sum_of(const std::vector<double>& numbers) {
  exact_sum sum;
  for (const double each : numbers) {
    sum.add(each);
  }
  return sum.value();
}

/// Numbers of all magnitudes and both signs.
std::vector<double> numbers_to_sum(std::size_t count) {
  const gradus::random_stream stream{3, "exact"};
  std::vector<double> numbers;
  for (std::uint64_t i = 0; i < count; ++i) {
    numbers.push_back(std::ldexp(stream.normal(i), static_cast<int>(stream.below(400, count + i)) - 200));
  }
  return numbers;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(core_exact_sum)

BOOST_AUTO_TEST_CASE(one_number_is_its_sum) {
  for (const double each : {0.0, 1.0, -1.0, 0.1, 1.0 / 3, summed_limits::max(), -summed_limits::max(),
                            summed_limits::min(), summed_limits::denorm_min(), -summed_limits::denorm_min(),
                            std::nextafter(1.0, 2.0), std::nextafter(summed_limits::min(), 0.0), 0x1.fffffp-33}) {
    BOOST_TEST(exact_sum_of({each}) == each);
  }
  for (const double each : numbers_to_sum(1000)) {
    BOOST_TEST(exact_sum_of({each}) == each);
  }
}

BOOST_AUTO_TEST_CASE(nothing_is_rounded_away) {
  BOOST_TEST(exact_sum_of({}) == 0.0);
  BOOST_TEST(exact_sum_of({1e300, 1.0, -1e300}) == 1.0);
  BOOST_TEST(exact_sum_of({summed_limits::max(), summed_limits::denorm_min(), -summed_limits::max()}) ==
             summed_limits::denorm_min());
  BOOST_TEST(exact_sum_of({summed_limits::max(), summed_limits::max(), -summed_limits::max()}) == summed_limits::max());
  BOOST_TEST(exact_sum_of({-3.0, 1.0}) == -2.0);
  exact_sum tenths;
  for (int i = 0; i < 10; ++i) {
    tenths.add(0.1);
  }
  BOOST_TEST(tenths.value() == std::fma(10.0, 0.1, 0.0));  // rounded once
}

BOOST_AUTO_TEST_CASE(numbers_that_are_not_finite) {
  constexpr double infinite = summed_limits::infinity();
  BOOST_TEST(exact_sum_of({1.0, infinite, 2.0}) == infinite);
  BOOST_TEST(exact_sum_of({-infinite, 1.0}) == -infinite);
  BOOST_TEST(std::isnan(exact_sum_of({infinite, -infinite})));
  BOOST_TEST(std::isnan(exact_sum_of({summed_limits::quiet_NaN(), 1.0})));
  BOOST_TEST(exact_sum_of({summed_limits::max(), summed_limits::max()}) == infinite);
}

BOOST_AUTO_TEST_CASE(depends_neither_on_the_order_nor_on_ranks) {
  const std::vector<double> numbers = numbers_to_sum(1000);
  const auto want = std::bit_cast<std::uint64_t>(exact_sum_of(numbers));
  BOOST_TEST(std::bit_cast<std::uint64_t>(exact_sum_of({numbers.rbegin(), numbers.rend()})) == want);
  double plain = 0;
  double reversed = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    plain += numbers[i];
    reversed += numbers[numbers.size() - 1 - i];
  }
  BOOST_TEST(plain != reversed);  // so that the test could fail
  for (const std::size_t ranks : {std::size_t{1}, std::size_t{3}, std::size_t{64}}) {
    std::array<double, exact_sum::numbers> all{};
    exact_sum added;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      exact_sum own;
      for (std::size_t i = rank; i < numbers.size(); i += ranks) {
        own.add(numbers[i]);
      }
      added.add(own);
      std::array<double, exact_sum::numbers> one{};
      own.write(one);
      for (std::size_t k = 0; k < one.size(); ++k) {
        all[k] += one[k];
      }
    }
    exact_sum read;
    read.read(all);
    BOOST_TEST(std::bit_cast<std::uint64_t>(read.value()) == want);
    BOOST_TEST(std::bit_cast<std::uint64_t>(added.value()) == want);
  }
}

BOOST_AUTO_TEST_SUITE_END()

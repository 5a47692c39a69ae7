// SPDX-License-Identifier: BSL-1.0
//
// The exponential of vectors against the standard library's, over the floats of its range.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gradus/kernels/cpu/detail/softmax/loops.hpp"
#include "gradus/simd/isa.hpp"
#include "instruction_sets.hpp"

namespace {

template <class Element>
Element exponential_of(Element x) {
  Element result = 0;
  Element* const none = nullptr;
  gradus::kernels::detail::on_target(
      [&](auto target) { result = sum_of_exponentials(target, 1, &x, Element{0}, none); });
  return result;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(exponentials)

BOOST_AUTO_TEST_CASE(float_is_exact_to_two_units_in_the_last_place) {
  for_each_instruction_set([](gradus::kernels::instruction_set) {
    double worst = 0;
    for (float x = -1e-7F; x > -87.3F; x = std::nextafter(x * 1.0001F, -100.0F)) {
      const double expected = std::exp(static_cast<double>(x));
      worst = std::max(worst, std::abs(static_cast<double>(exponential_of(x)) - expected) / expected);
    }
    BOOST_TEST(worst < 1.2e-7);
    for (float x = 0; x > -87.3F; x -= 0.001F) {
      const double expected = std::exp(static_cast<double>(x));
      worst = std::max(worst, std::abs(static_cast<double>(exponential_of(x)) - expected) / expected);
    }
    BOOST_TEST(worst < 1.2e-7);
  });
}

BOOST_AUTO_TEST_CASE(special_values) {
  BOOST_TEST(exponential_of(0.0F) == 1.0F);
  BOOST_TEST(exponential_of(-1e4F) == 0.0F);
  BOOST_TEST(exponential_of(-std::numeric_limits<float>::infinity()) == 0.0F);
  BOOST_TEST(std::isnan(exponential_of(std::numeric_limits<float>::quiet_NaN())));
  BOOST_TEST(exponential_of(-1.0) == std::exp(-1.0));
  BOOST_TEST(std::isnan(exponential_of(std::numeric_limits<double>::quiet_NaN())));
}

BOOST_AUTO_TEST_SUITE_END()

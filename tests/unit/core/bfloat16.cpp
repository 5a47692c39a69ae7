// SPDX-License-Identifier: BSL-1.0
//
// bfloat16 over all of its values, and how floats are rounded to it.
#include <gradus/core/bfloat16.hpp>

#include <boost/test/unit_test.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace {

using gradus::bfloat16;

float as_float(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}
std::uint16_t bits_of(float value) {
  return bfloat16{value}.bits();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(core_bfloat16)

BOOST_AUTO_TEST_CASE(it_is_two_bytes_and_converts_by_name_only) {
  static_assert(sizeof(bfloat16) == 2 && std::is_trivially_copyable_v<bfloat16>);
  static_assert(std::is_convertible_v<bfloat16, float> && !std::is_convertible_v<float, bfloat16>);
  static_assert(gradus::element_name<bfloat16> == "bfloat16");
  static_assert(gradus::network_element<bfloat16> && gradus::storage_element<bfloat16>);
  static_assert(!gradus::real_element<bfloat16> && gradus::element<bfloat16>);
  static_assert(std::is_same_v<gradus::parameter_element_t<bfloat16>, float>);
  static_assert(bfloat16{}.bits() == 0 && bfloat16{1.0F}.bits() == 0x3F80);
  static_assert(static_cast<float>(bfloat16::from_bits(0xC040)) == -3.0F);
}

BOOST_AUTO_TEST_CASE(every_value_comes_back_from_float) {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto value = bfloat16::from_bits(static_cast<std::uint16_t>(bits));
    const auto wide = static_cast<float>(value);
    wrong += std::bit_cast<std::uint32_t>(wide) != bits << 16U;
    const std::uint16_t back = bits_of(wide);
    wrong += std::isnan(wide) ? !(back == (bits | 0x40U)) : !(back == bits);
  }
  BOOST_TEST(wrong == 0);
}

// Between every two neighbours: just below the middle, the middle, just above it.
BOOST_AUTO_TEST_CASE(rounding_is_to_nearest_and_ties_are_to_even) {
  int wrong = 0;
  for (std::uint32_t sign : {0U, 0x8000U}) {
    for (std::uint32_t magnitude = 0; magnitude < 0x7F80; ++magnitude) {
      const std::uint32_t low = sign | magnitude;
      const std::uint32_t high = low + 1;  // the last of them is infinity
      const std::uint32_t even = (low & 1U) == 0 ? low : high;
      wrong += bits_of(as_float((low << 16U) | 1U)) != low;
      wrong += bits_of(as_float((low << 16U) | 0x7FFFU)) != low;
      wrong += bits_of(as_float((low << 16U) | 0x8000U)) != even;
      wrong += bits_of(as_float((low << 16U) | 0x8001U)) != high;
      wrong += bits_of(as_float((low << 16U) | 0xFFFFU)) != high;
    }
  }
  BOOST_TEST(wrong == 0);
  BOOST_TEST(bits_of(std::numeric_limits<float>::max()) == 0x7F80);
  BOOST_TEST(bits_of(-std::numeric_limits<float>::infinity()) == 0xFF80);
}

BOOST_AUTO_TEST_CASE(a_nan_stays_a_nan) {
  for (const std::uint32_t fraction : {1U, 0x7FFFU, 0x8000U, 0xFFFFU, 0x10000U, 0x400000U, 0x7FFFFFU}) {
    for (const std::uint32_t sign : {0U, 0x80000000U}) {
      const bfloat16 value{as_float(sign | 0x7F800000U | fraction)};
      BOOST_TEST(std::isnan(static_cast<float>(value)));
      BOOST_TEST((value.bits() & 0x8000U) == sign >> 16U);
    }
  }
}

BOOST_AUTO_TEST_CASE(arithmetic_is_that_of_float) {
  const bfloat16 a{1.5F};
  const bfloat16 b{-0.25F};
  static_assert(std::is_same_v<decltype(a + b), float>);
  BOOST_TEST(a + b == 1.25F);
  BOOST_TEST(a * b == -0.375F);
  BOOST_TEST((b < a));
  BOOST_TEST(std::isfinite(a));
}

BOOST_AUTO_TEST_SUITE_END()

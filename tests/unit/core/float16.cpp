// SPDX-License-Identifier: BSL-1.0
//
// float16 over all of its values, how floats are rounded to it, and that the processor's instructions do the same.
#include <gradus/core/float16.hpp>

#include <boost/test/unit_test.hpp>

#include <bit>      // std::bit_cast
#include <cmath>    // std::isnan, std::nextafter
#include <cstdint>  // std::uint16_t, std::uint32_t
#include <limits>   // std::numeric_limits
#include <vector>   // std::vector

namespace {

using gradus::float16;

std::uint16_t bits_of_half(float value) {
  return float16{value}.bits();
}

float value_of(std::uint32_t bits) {
  return float16::from_bits(static_cast<std::uint16_t>(bits));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(core_float16)

BOOST_AUTO_TEST_CASE(known_values) {
  static_assert(sizeof(float16) == 2 && gradus::element<float16> && gradus::storage_element<float16>);
  static_assert(float16{}.bits() == 0 && float16{1.0F}.bits() == 0x3C00 && float16{-2.0F}.bits() == 0xC000);
  static_assert(static_cast<float>(float16::from_bits(0x7BFF)) == 65504.0F);
  static_assert(static_cast<float>(float16::from_bits(0x0001)) == 0x1p-24F);
  BOOST_TEST(bits_of_half(0.1F) == 0x2E66);
  BOOST_TEST(bits_of_half(65519.0F) == 0x7BFF);
  BOOST_TEST(bits_of_half(65520.0F) == 0x7C00);
  BOOST_TEST(bits_of_half(-std::numeric_limits<float>::max()) == 0xFC00);
  BOOST_TEST(bits_of_half(std::numeric_limits<float>::infinity()) == 0x7C00);
  BOOST_TEST(bits_of_half(-0.0F) == 0x8000);
  BOOST_TEST(bits_of_half(-std::numeric_limits<float>::denorm_min()) == 0x8000);
}

BOOST_AUTO_TEST_CASE(every_value_comes_back_from_float) {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float wide = value_of(bits);
    wrong += std::isnan(wide) != ((bits & 0x7FFFU) > 0x7C00U);
    wrong += bits_of_half(wide) != (std::isnan(wide) ? (bits | 0x200U) : bits);
  }
  BOOST_TEST(wrong == 0);
}

// Between every two neighbours: just below the middle, the middle, just above it.
BOOST_AUTO_TEST_CASE(rounding_is_to_nearest_and_ties_are_to_even) {
  int wrong = 0;
  for (std::uint32_t low = 0; low < 0x7BFF; ++low) {
    const float middle = (value_of(low) + value_of(low + 1)) / 2;
    wrong += bits_of_half(std::nextafter(middle, 0.0F)) != low;
    wrong += bits_of_half(middle) != ((low & 1U) == 0 ? low : low + 1);
    wrong += bits_of_half(std::nextafter(middle, 1e9F)) != low + 1;
    wrong += bits_of_half(-middle) != ((low & 1U) == 0 ? low : low + 1) + 0x8000U;
  }
  BOOST_TEST(wrong == 0);
}

BOOST_AUTO_TEST_CASE(arrays_are_converted_to_the_same_bits) {
  std::vector<float> values;
  for (std::uint64_t bits = 0; bits < 0x100000000U; bits += 39989) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  std::vector<float16> all(values.size());
  gradus::narrow(values.data(), all.data(), all.size());
  std::vector<float> back(values.size());
  gradus::widen(all.data(), back.data(), back.size());
  int wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    wrong += all[i].bits() != bits_of_half(values[i]);
    wrong += std::bit_cast<std::uint32_t>(back[i]) != std::bit_cast<std::uint32_t>(static_cast<float>(all[i]));
  }
  BOOST_TEST(wrong == 0);
  for (std::size_t count = 0; count < 20; ++count) {  // ends, whatever the width of the instructions
    std::vector<float16> some(20, float16{7.0F});
    gradus::narrow(values.data() + 1000, some.data(), count);
    for (std::size_t i = 0; i < some.size(); ++i) {
      wrong += some[i].bits() != (i < count ? all[1000 + i].bits() : bits_of_half(7.0F));
    }
  }
  BOOST_TEST(wrong == 0);
}

BOOST_AUTO_TEST_SUITE_END()

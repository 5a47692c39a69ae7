// SPDX-License-Identifier: BSL-1.0
//
// Texts put together from pieces.
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "gradus/core/text.hpp"

BOOST_AUTO_TEST_SUITE(text)

BOOST_AUTO_TEST_CASE(pieces_are_joined_in_their_order) {
  using gradus::join;
  const std::string name = "rank";
  BOOST_TEST(join({name, " ", 3, std::string_view{" of many"}.substr(0, 4), 4U}) == "rank 3 of 4");
  BOOST_TEST(join({}).empty());
  BOOST_TEST(join({"", std::string_view{}}).empty());
}

BOOST_AUTO_TEST_CASE(numbers_read_as_std_to_string_writes_them) {
  using gradus::join;
  for (const long long value :
       {0LL, -1LL, std::numeric_limits<long long>::min(), std::numeric_limits<long long>::max()}) {
    BOOST_TEST(join({value}) == std::to_string(value));
  }
  constexpr auto largest = std::numeric_limits<std::uint64_t>::max();
  BOOST_TEST(join({largest}) == std::to_string(largest));
  for (const double value :
       {0.0, -0.5, 1e-9, 1.0 / 3.0, std::numeric_limits<double>::lowest(), std::numeric_limits<double>::infinity()}) {
    BOOST_TEST(join({value}) == std::to_string(value));
  }
}

BOOST_AUTO_TEST_CASE(append_keeps_what_is_there) {
  std::string message = "a";
  gradus::append_text(message, {"b", 1, std::string_view{"c\0d", 3}});
  BOOST_TEST(message == std::string("ab1c\0d", 6));
}

BOOST_AUTO_TEST_SUITE_END()

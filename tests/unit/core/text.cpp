// SPDX-License-Identifier: BSL-1.0
//
// Texts put together from pieces.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "gradus/core/format.hpp"
#include "gradus/core/text.hpp"

BOOST_AUTO_TEST_SUITE(text)

BOOST_AUTO_TEST_CASE(pieces_are_joined_in_their_order) {
  using gradus::join;
  const std::string name = "rank";
  BOOST_TEST(join({name, " ", 3, std::string_view{" of many"}.substr(0, 4), 4U}) == "rank 3 of 4");
  BOOST_TEST(join({}).empty());
  BOOST_TEST(join({"", std::string_view{}}).empty());
}

BOOST_AUTO_TEST_CASE(whole_numbers_read_as_std_to_string_writes_them) {
  using gradus::join;
  for (const long long value :
       {0LL, -1LL, std::numeric_limits<long long>::min(), std::numeric_limits<long long>::max()}) {
    BOOST_TEST(join({value}) == std::to_string(value));
  }
  constexpr auto largest = std::numeric_limits<std::uint64_t>::max();
  BOOST_TEST(join({largest}) == std::to_string(largest));
}

BOOST_AUTO_TEST_CASE(different_numbers_have_different_texts) {
  using gradus::join;
  using limits = std::numeric_limits<double>;
  for (const double value : {0.0, -0.5, 1e-9, 0.1, 1.0 / 3.0, 1e-4, 1e15, 123456789012345.6, limits::lowest(),
                             limits::max(), limits::min(), limits::denorm_min()}) {
    const double next = std::nextafter(value, 0.0);
    const double more = std::nextafter(value, limits::infinity());
    BOOST_TEST(join({value}) != join({more}));
    BOOST_TEST(gradus::read_number(join({value})).value() == value);
    BOOST_TEST(gradus::read_number(join({next})).value() == next);
  }
  BOOST_TEST(join({64.0, " ", 100000.0, " ", -0.1, " ", 0.0, " ", 1e-9, " ", 1e300}) ==
             "64 100000 -0.1 0 1e-09 1e+300");
  BOOST_TEST(join({limits::infinity(), " ", -limits::infinity()}) == "inf -inf");
  BOOST_TEST(join({std::abs(limits::quiet_NaN())}) == "nan");
  BOOST_TEST(join({0.1F}) == "0.1");
}

BOOST_AUTO_TEST_CASE(append_keeps_what_is_there) {
  std::string message = "a";
  gradus::append_text(message, {"b", 1, std::string_view{"c\0d", 3}});
  BOOST_TEST(message == std::string("ab1c\0d", 6));
}

BOOST_AUTO_TEST_SUITE_END()

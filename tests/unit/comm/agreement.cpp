// SPDX-License-Identifier: BSL-1.0
//
// Packing of facts, and the words about ranks and times. What ranks do with them: tests/conformance/comm.
#include <boost/test/unit_test.hpp>

#include <chrono>  // std::chrono::milliseconds
#include <string>  // std::string
#include <vector>  // std::vector

#include "gradus/comm/agreement.hpp"  // fact, pack, unpack

namespace comm = gradus::comm;
using namespace std::string_literals;

BOOST_AUTO_TEST_SUITE(comm_agreement)

BOOST_AUTO_TEST_CASE(any_text_can_be_packed) {
  const std::vector<comm::fact> facts{{"", ""}, {"a:1", "12:34\n"}, {"zero"s + '\0' + "byte", "\xff\x80"}, {"7", ""}};
  const auto copy = comm::detail::unpack(comm::detail::pack(facts));
  BOOST_REQUIRE_EQUAL(copy.size(), facts.size());
  for (std::size_t i = 0; i < facts.size(); ++i) {
    BOOST_TEST(copy[i].name == facts[i].name);
    BOOST_TEST(copy[i].value == facts[i].value);
  }
  BOOST_TEST(comm::detail::unpack("").empty());
}

BOOST_AUTO_TEST_CASE(ranks_in_words) {
  using comm::detail::ranks_text;
  BOOST_TEST(ranks_text({3}) == "rank 3");
  BOOST_TEST(ranks_text({0, 1}) == "ranks 0, 1");
  BOOST_TEST(ranks_text({0, 2, 3, 4, 9}) == "ranks 0, 2-4, 9");
}

BOOST_AUTO_TEST_CASE(times_in_words) {
  using comm::detail::seconds_text;
  using std::chrono::milliseconds;
  BOOST_TEST(seconds_text(milliseconds{600000}) == "600 s");
  BOOST_TEST(seconds_text(milliseconds{1}) == "0.001 s");
  BOOST_TEST(seconds_text(milliseconds{2050}) == "2.05 s");
  BOOST_TEST(seconds_text(milliseconds{150}) == "0.15 s");
}

BOOST_AUTO_TEST_SUITE_END()

// SPDX-License-Identifier: BSL-1.0
//
// Patterns of names.
#include <boost/test/unit_test.hpp>

#include <string>  // std::string

#include "gradus/core/error.hpp"
#include "gradus/core/name_pattern.hpp"

using gradus::matches_pattern;

BOOST_AUTO_TEST_SUITE(name_pattern)

BOOST_AUTO_TEST_CASE(patterns_are_of_whole_names) {
  static_assert(matches_pattern("conv1", "conv1"));
  static_assert(!matches_pattern("conv", "conv1"));
  static_assert(!matches_pattern("conv1", "conv"));
  static_assert(matches_pattern("", "") && !matches_pattern("", "a") && !matches_pattern("?", ""));
  static_assert(matches_pattern("conv?", "conv1") && !matches_pattern("conv?", "conv12"));
  static_assert(matches_pattern("?on?1", "conv1"));
}

BOOST_AUTO_TEST_CASE(a_star_stands_for_any_characters) {
  static_assert(matches_pattern("*", "") && matches_pattern("*", "conv1.weight") && matches_pattern("**", "a"));
  static_assert(matches_pattern("*.bias", "head.bias") && !matches_pattern("*.bias", "head.bias2"));
  static_assert(matches_pattern("head.*", "head.") && !matches_pattern("head.*", "head"));
  static_assert(matches_pattern("*a*b", "xaab") && matches_pattern("*ab", "aab") && matches_pattern("a*b*c", "abbcbc"));
  static_assert(!matches_pattern("a*b*c", "abbcb") && !matches_pattern("*ab?", "xxab"));
  static_assert(matches_pattern("block?.*.weight", "block2.conv1.weight"));
}

BOOST_AUTO_TEST_CASE(the_distance_of_names_is_the_number_of_changes) {
  using gradus::name_distance;
  BOOST_TEST(name_distance("", "") == 0U);
  BOOST_TEST(name_distance("", "abc") == 3U);
  BOOST_TEST(name_distance("abc", "") == 3U);
  BOOST_TEST(name_distance("conv1.weight", "conv1.weight") == 0U);
  BOOST_TEST(name_distance("conv1.wieght", "conv1.weight") == 2U);
  BOOST_TEST(name_distance("kitten", "sitting") == 3U);
  BOOST_TEST(name_distance("sitting", "kitten") == 3U);
}

BOOST_AUTO_TEST_CASE(a_message_has_all_names_or_the_nearest) {
  gradus::known_names few;
  BOOST_TEST(few.similar("head") == "none");
  BOOST_TEST(few.meant_by("head").empty());
  few.add("encoder.conv");
  few.add("head");
  BOOST_TEST(few.similar("zzz") == "encoder.conv, head");
  BOOST_TEST(few.meant_by("heads") == "head");
  BOOST_TEST(few.meant_by("encoder").empty());
  BOOST_TEST((few.has_group("encoder") && !few.has_group("head") && !few.has_group("enc")));
  BOOST_TEST(few.first_that_fits("*.conv") == "encoder.conv");
  BOOST_TEST(few.first_that_fits("conv").empty());

  std::vector<std::string> names;
  for (int i = 0; i < 30; ++i) {
    names.push_back("layer" + std::string(static_cast<std::size_t>(i), 'x'));
  }
  gradus::known_names many;
  for (const std::string& each : names) {
    many.add(each);
  }
  const std::string text = many.similar("layerxx");
  BOOST_TEST(text ==
             "layer, layerx, layerxx, layerxxx, layerxxxx, layerxxxxx, layerxxxxxx, layerxxxxxxx, ... (30 in all)");
}

BOOST_AUTO_TEST_SUITE_END()

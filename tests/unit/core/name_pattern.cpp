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

BOOST_AUTO_TEST_CASE(a_pattern_that_fits_nothing_lists_the_names) {
  gradus::name_choice choice{"encoder"};
  BOOST_TEST(!choice.takes("encoder.conv"));
  BOOST_TEST(!choice.takes("head"));
  BOOST_CHECK_EXCEPTION(choice.require_any("network.freeze", "layers"), gradus::configuration_error,
                        [](const gradus::configuration_error& failure) {
                          const std::string text = failure.what();
                          return text.find("encoder.conv, head") != std::string::npos &&
                                 text.find("'encoder'") != std::string::npos;
                        });
  BOOST_TEST(choice.takes("encoder"));
  choice.require_any("network.freeze", "layers");
}

BOOST_AUTO_TEST_SUITE_END()

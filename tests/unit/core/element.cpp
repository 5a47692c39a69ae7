// SPDX-License-Identifier: BSL-1.0
//
// Element types and their names; the version.
#include <gradus/core/element.hpp>
#include <gradus/core/version.hpp>

#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <string>

BOOST_AUTO_TEST_SUITE(core_element)

BOOST_AUTO_TEST_CASE(names_are_those_of_numpy) {
  BOOST_TEST(gradus::element_name<float> == "float32");
  BOOST_TEST(gradus::element_name<double> == "float64");
  BOOST_TEST(gradus::element_name<std::int32_t> == "int32");
  BOOST_TEST(gradus::element_name<std::int64_t> == "int64");
  BOOST_TEST(gradus::element_name<std::uint8_t> == "uint8");
  BOOST_TEST(gradus::element_name<bool> == "bool");
  BOOST_TEST(gradus::element_name<std::string>.empty());
}

BOOST_AUTO_TEST_CASE(what_is_an_element_and_what_is_computed_with) {
  static_assert(gradus::element<float> && gradus::element<double> && gradus::element<bool>);
  static_assert(!gradus::element<std::string> && !gradus::element<void*> && !gradus::element<const float>);
  static_assert(gradus::real_element<float> && gradus::real_element<double>);
  static_assert(!gradus::real_element<std::int32_t> && !gradus::real_element<long double>);
  static_assert(gradus::explain_element<float>() && gradus::explain_real_element<double>());
}

BOOST_AUTO_TEST_CASE(the_version_is_the_macros) {
  BOOST_TEST(gradus::version == std::to_string(GRADUS_VERSION_MAJOR) + "." + std::to_string(GRADUS_VERSION_MINOR) +
                                    "." + std::to_string(GRADUS_VERSION_PATCH));
}

BOOST_AUTO_TEST_SUITE_END()

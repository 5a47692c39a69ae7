// SPDX-License-Identifier: BSL-1.0
//
// Which devices have expressions.
#include <boost/test/unit_test.hpp>

#include "archetypes.hpp"
#include "gradus/tensor/device_expressions.hpp"

BOOST_AUTO_TEST_SUITE(device_expressions)

BOOST_AUTO_TEST_CASE(the_cpu_has_expressions_and_a_device_without_overloads_has_none) {
  static_assert(gradus::explain_expressions<gradus::cpu, float>());
  static_assert(gradus::explain_expressions<gradus::cpu, double>());
  BOOST_TEST((gradus::has_expressions<gradus::cpu, float>));
  BOOST_TEST((gradus::has_expressions<gradus::cpu, double>));
  BOOST_TEST((!gradus::has_expressions<archetypes::device, float>));
  BOOST_TEST((!gradus::has_expressions<archetypes::device, double>));
}

BOOST_AUTO_TEST_SUITE_END()

// SPDX-License-Identifier: BSL-1.0
//
// The conformance suite of layers as checks of Boost.Test.
#pragma once

#include <boost/test/unit_test.hpp>

#include "gradus/conformance/layers.hpp"

namespace gradus_test {

template <class Element, class Layout, class Device>
void check_layer_contracts(Device& device) {
  for (const gradus::conformance::result& each : gradus::conformance::check_layers<Element, Layout>(device)) {
    BOOST_TEST(each.failure == "", each.name << ": " << each.failure);
  }
}

}  // namespace gradus_test

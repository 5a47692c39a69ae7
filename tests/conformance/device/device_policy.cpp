// SPDX-License-Identifier: BSL-1.0
//
// The conformance suite of devices, for the CPU, for a device with only the required members, and for a GPU.
#include <boost/test/unit_test.hpp>
#include <tuple>

#include "archetypes.hpp"
#include "gradus/conformance/device.hpp"
#include "gradus/device/cpu.hpp"

#if !defined(GRADUS_TEST_DEVICES)  // tests/cuda names another
#define GRADUS_TEST_DEVICES gradus::cpu, archetypes::device
#endif
using devices = std::tuple<GRADUS_TEST_DEVICES>;

BOOST_AUTO_TEST_SUITE(device_policy)

BOOST_AUTO_TEST_CASE_TEMPLATE(devices_keep_their_contract, Device, devices) {
  Device device;
  for (const gradus::conformance::result& each : gradus::conformance::check_device(device)) {
    BOOST_TEST(each.failure == "", each.name << ": " << each.failure);
  }
}

BOOST_AUTO_TEST_SUITE_END()

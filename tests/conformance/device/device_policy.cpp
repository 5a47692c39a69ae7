// SPDX-License-Identifier: BSL-1.0
//
// What every device must do with memory, for the CPU, for a device with the required members alone, and for a GPU.
#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <numeric>
#include <tuple>

#include "archetypes.hpp"
#include "gradus/device/cpu.hpp"

#if !defined(GRADUS_TEST_DEVICES)  // tests/cuda names another
#define GRADUS_TEST_DEVICES gradus::cpu, archetypes::device
#endif
using devices = std::tuple<GRADUS_TEST_DEVICES>;

BOOST_AUTO_TEST_SUITE(device_policy)

BOOST_AUTO_TEST_CASE_TEMPLATE(memory_is_aligned_and_blocks_do_not_overlap, Device, devices) {
  Device device;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{65}, std::size_t{3} << 20U}) {
    void* const first = device.allocate(bytes);
    void* const second = device.allocate(bytes);
    BOOST_TEST(first != second);
    BOOST_TEST(reinterpret_cast<std::uintptr_t>(first) % 64 == 0U);
    BOOST_TEST(reinterpret_cast<std::uintptr_t>(second) % 64 == 0U);
    device.deallocate(first, bytes);
    device.deallocate(second, bytes);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(copies_arrive_in_order, Device, devices) {
  Device device;
  std::array<int, 1000> values{};
  std::iota(values.begin(), values.end(), 1);
  std::array<int, 1000> back{};
  void* const a = device.allocate(sizeof(values));
  void* const b = device.allocate(sizeof(values));
  device.copy_from_host(a, values.data(), sizeof(values));
  device.copy(b, a, sizeof(values));
  device.fill_zero(a, sizeof(values));
  device.copy_to_host(back.data(), b, sizeof(values));
  device.synchronize();
  BOOST_TEST(back == values, boost::test_tools::per_element());
  device.copy_to_host(back.data(), a, sizeof(values));
  device.synchronize();
  BOOST_TEST(std::ranges::all_of(back, [](int value) { return value == 0; }));
  device.deallocate(a, sizeof(values));
  device.deallocate(b, sizeof(values));
}

BOOST_AUTO_TEST_SUITE_END()

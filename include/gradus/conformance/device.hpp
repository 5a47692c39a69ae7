// SPDX-License-Identifier: BSL-1.0
//
// The conformance suite of the memory functions of devices; layers.hpp has that of their kernels.
#pragma once

#include <cstddef>  // std::byte, std::size_t
#include <cstdint>  // std::uintptr_t
#include <string>   // std::string, std::to_string
#include <vector>   // std::vector

#include "gradus/conformance/suite.hpp"
#include "gradus/device/device_policy.hpp"

namespace gradus::conformance {

/// Allocated blocks are aligned and do not overlap.
template <device_policy Device>
void memory_is_aligned_and_blocks_do_not_overlap(Device& device) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{65}, std::size_t{3} << 20U}) {
    void* const first = device.allocate(bytes);
    void* const second = device.allocate(bytes);
    const auto a = reinterpret_cast<std::uintptr_t>(first);
    const auto b = reinterpret_cast<std::uintptr_t>(second);
    device.deallocate(first, bytes);
    device.deallocate(second, bytes);
    require(a != b && (a < b ? a + bytes <= b : b + bytes <= a), "blocks overlap");
    require(a % 64 == 0 && b % 64 == 0, "a block does not begin on a multiple of 64 bytes");
  }
}

/// Copies and fills of many sizes arrive in the order of the calls.
template <device_policy Device>
void copies_arrive_in_order(Device& device) {
  for (const std::size_t count : {1U, 7U, 63U, 4000U, 4097U}) {
    std::vector<std::byte> values(count);
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = static_cast<std::byte>(i % 251 + 1);
    }
    std::vector<std::byte> back(count);
    void* const a = device.allocate(count);
    void* const b = device.allocate(count);
    device.copy_from_host(a, values.data(), count);
    device.copy(b, a, count);
    device.fill_zero(a, count);
    device.copy_to_host(back.data(), b, count);
    device.synchronize();
    const std::string size = std::to_string(count) + " bytes";
    require(back == values, "a copy of " + size + " differs");
    device.copy_to_host(back.data(), a, count);
    device.synchronize();
    require(back == std::vector<std::byte>(count), "fill_zero did not clear all of " + size);
    device.deallocate(a, count);
    device.deallocate(b, count);
  }
}

/// Runs all cases and returns their results.
template <class Device>
[[nodiscard]] std::vector<result> check_device(Device& device) {
  static_assert(explain_device_policy<Device>());
  std::vector<result> results;
  run_case(results, "memory_is_aligned_and_blocks_do_not_overlap",
           [&] { memory_is_aligned_and_blocks_do_not_overlap(device); });
  run_case(results, "copies_arrive_in_order", [&] { copies_arrive_in_order(device); });
  return results;
}

}  // namespace gradus::conformance

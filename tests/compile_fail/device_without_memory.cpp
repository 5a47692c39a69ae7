// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: not a device policy: give it memory
#include <cstddef>
#include <string_view>

#include "gradus/device/device_policy.hpp"

struct my_device {
  static constexpr std::string_view name = "mine";
#ifdef GRADUS_TEST_GOOD_TWIN
  void* allocate(std::size_t bytes);
  void deallocate(void* pointer, std::size_t bytes) noexcept;
#endif
  void copy(void* destination, const void* source, std::size_t bytes);
  void copy_from_host(void* destination, const void* source, std::size_t bytes);
  void copy_to_host(void* destination, const void* source, std::size_t bytes);
  void fill_zero(void* destination, std::size_t bytes);
  void synchronize();
};
static_assert(gradus::explain_device_policy<my_device>());

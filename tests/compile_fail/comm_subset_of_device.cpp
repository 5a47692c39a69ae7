// SPDX-License-Identifier: BSL-1.0
//
// A subset of a communicator for device memory, where the host cannot add.
// EXPECT_ERROR: gradus: comm::subset adds in the memory of the host.*comm::split
#include <cstddef>
#include <utility>

#include "gradus/comm/staged.hpp"
#include "gradus/comm/subset.hpp"
#include "gradus/comm/threads.hpp"

struct copies {
  bool on_device(const void*) const;
  void* allocate(std::size_t) const;
  void deallocate(void*, std::size_t) const noexcept;
  void to_host(void*, const void*, std::size_t) const;
  void to_device(void*, const void*, std::size_t) const;
};

void even_ranks(gradus::comm::staged<gradus::comm::threads, copies>& world) {
#ifdef GRADUS_TEST_GOOD_TWIN
  auto even = gradus::comm::split(world, {0, 2});
#else
  gradus::comm::subset even{world.duplicate(), {0, 2}};
#endif
  static_cast<void>(even.size());
}

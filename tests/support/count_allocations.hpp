// SPDX-License-Identifier: BSL-1.0
//
// Counts the calls of operator new in a program. For one source file of the program, where allocation_count.hpp defines
// GRADUS_TEST_COUNTS_ALLOCATIONS.
#pragma once

#include <cstddef>  // std::size_t
#include <cstdlib>  // std::aligned_alloc, std::free, std::malloc
#include <new>      // std::align_val_t, std::bad_alloc

#include "allocation_count.hpp"

namespace counted {

inline void* checked(void* memory) {
  ++allocations;
  if (memory == nullptr) {
    throw std::bad_alloc{};
  }
  return memory;
}

}  // namespace counted

// Not inlined, or the compiler compares them with the ones of the library. The array forms call these.
[[gnu::noinline]] void* operator new(std::size_t size) {
  return counted::checked(std::malloc(size == 0 ? 1 : size));
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  return counted::checked(std::aligned_alloc(unit, (size + unit - 1) / unit * unit));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

// SPDX-License-Identifier: BSL-1.0
//
// Models of the policies with the required members and nothing else: code that compiles with them asks for no more.
#pragma once

#include <cstddef>      // std::size_t
#include <cstring>      // std::memcpy, std::memset
#include <new>          // std::align_val_t
#include <string_view>  // std::string_view

#include "gradus/device/device_policy.hpp"

namespace archetypes {

/// Host memory that counts its blocks.
class device {
 public:
  static constexpr std::string_view name = "archetype";

  device() = default;
  device(const device&) = delete;
  device& operator=(const device&) = delete;
  ~device() = default;

  void* allocate(std::size_t bytes) {
    ++blocks_;
    return ::operator new (bytes, std::align_val_t{64});
  }
  void deallocate(void* pointer, std::size_t) noexcept {
    --blocks_;
    ::operator delete (pointer, std::align_val_t{64});
  }
  void copy(void* destination, const void* source, std::size_t bytes) { std::memcpy(destination, source, bytes); }
  void copy_from_host(void* destination, const void* source, std::size_t bytes) { copy(destination, source, bytes); }
  void copy_to_host(void* destination, const void* source, std::size_t bytes) { copy(destination, source, bytes); }
  void fill_zero(void* destination, std::size_t bytes) { std::memset(destination, 0, bytes); }
  void synchronize() {}

  /// Blocks in use: for the tests, not for the library.
  [[nodiscard]] int blocks() const { return blocks_; }

 private:
  int blocks_ = 0;
};
static_assert(gradus::device_policy<device>);

}  // namespace archetypes

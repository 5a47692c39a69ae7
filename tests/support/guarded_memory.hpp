// SPDX-License-Identifier: BSL-1.0
//
// Memory between inaccessible pages, in which one array after another is placed at either end.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "gradus/conformance/sanitizers.hpp"

#if GRADUS_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) (static_cast<void>(address), static_cast<void>(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) (static_cast<void>(address), static_cast<void>(size))
#endif

namespace gradus_test {

/// The end of an array that touches a guarded page; the bytes beyond the other end must not change.
enum class guarded_end : unsigned char { front, back };

/// Holds one array at a time. A read or a write beyond the end at the page ends the program at once. Beyond the other
/// end AddressSanitizer reports it; without AddressSanitizer, intact() detects writes, and reads find NaN.
class guarded_memory {
 public:
  guarded_memory() = default;
  guarded_memory(guarded_memory&& other) noexcept
      : inside_{other.inside_},
        offset_{other.offset_},
        bytes_{other.bytes_},
        begin_{std::exchange(other.begin_, nullptr)} {}
  guarded_memory& operator=(guarded_memory&&) = delete;
  ~guarded_memory() { release(); }

  /// An array of `size` elements in place of the one before. All bits are set: NaN in every floating-point type, so
  /// that what is not written, or read before it is, shows.
  /// @param alignment  of the first element, in bytes, a power of two: `back` leaves the bytes between the last element
  ///                   and the page that this needs
  template <class Element>
  [[nodiscard]] Element* place(std::size_t size, guarded_end end, std::size_t alignment = alignof(Element)) {
    static_assert(std::is_trivially_copyable_v<Element>);
    const std::size_t bytes = size * sizeof(Element);
    if (begin_ == nullptr || bytes + alignment > inside_) {
      release();
      map(bytes + alignment);
    } else {
      ASAN_UNPOISON_MEMORY_REGION(first(), inside_);
      std::memset(first() + offset_, 0xff, bytes_);
    }
    bytes_ = bytes;
    offset_ = end == guarded_end::front ? 0 : (inside_ - bytes) / alignment * alignment;
    ASAN_POISON_MEMORY_REGION(first(), offset_);
    ASAN_POISON_MEMORY_REGION(first() + offset_ + bytes_, inside_ - offset_ - bytes_);
    return reinterpret_cast<Element*>(first() + offset_);
  }

  /// Whether the bytes beside the array, at most `margin` of them on each side, are as they were.
  [[nodiscard]] bool intact(std::size_t margin = 4096) const {
    if (begin_ == nullptr) {
      return true;
    }
    ASAN_UNPOISON_MEMORY_REGION(first(), inside_);
    const auto untouched = [&](std::size_t from, std::size_t to) {
      return std::all_of(first() + from, first() + to, [](std::byte b) { return b == std::byte{0xff}; });
    };
    const std::size_t end = offset_ + bytes_;
    return untouched(offset_ - std::min(offset_, margin), offset_) &&
           untouched(end, end + std::min(inside_ - end, margin));
  }

 private:
  [[nodiscard]] static std::size_t page() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }
  [[nodiscard]] std::byte* first() const noexcept { return begin_ + page(); }

  void map(std::size_t bytes) {
    inside_ = (bytes + page() - 1) / page() * page();
    void* const memory = ::mmap(nullptr, inside_ + 2 * page(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      throw std::bad_alloc{};
    }
    begin_ = static_cast<std::byte*>(memory);
    if (::mprotect(first(), inside_, PROT_READ | PROT_WRITE) != 0) {
      release();
      throw std::bad_alloc{};
    }
    std::memset(first(), 0xff, inside_);
  }
  void release() noexcept {
    if (begin_ != nullptr) {
      ASAN_UNPOISON_MEMORY_REGION(first(), inside_);
      ::munmap(begin_, inside_ + 2 * page());
      begin_ = nullptr;
    }
  }

  std::size_t inside_ = 0;  // bytes between the guarded pages
  std::size_t offset_ = 0;  // of the array
  std::size_t bytes_ = 0;
  std::byte* begin_ = nullptr;
};

}  // namespace gradus_test

// SPDX-License-Identifier: BSL-1.0
//
// Arrays between pages that nobody may touch: a read or a write outside of them ends the program at once.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace gradus_test {

/// Which end of an array lies at a guarded page; on the other side are bytes that must stay as they are.
enum class guarded_end : unsigned char { front, back };

/// `size` elements that end where a guarded page begins, or begin where one ends. All bits of the elements are set at
/// first: NaN in every floating-point type, so that what is not written, or read before it is, shows.
template <class Element>
class guarded_array {
  static_assert(std::is_trivially_copyable_v<Element>);

 public:
  /// @param alignment  of the first element, in bytes, a power of two: `back` leaves the bytes between the last element
  ///                   and the page that this needs, and intact() looks at them
  explicit guarded_array(std::size_t size, guarded_end end = guarded_end::back,
                         std::size_t alignment = alignof(Element))
      : size_{size} {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t bytes = size * sizeof(Element);
    inside_ = (bytes + alignment + page - 1) / page * page;
    mapped_ = inside_ + 2 * page;
    void* const memory = ::mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      throw std::bad_alloc{};
    }
    begin_ = static_cast<std::byte*>(memory);
    std::byte* const first = begin_ + page;
    if (::mprotect(first, inside_, PROT_READ | PROT_WRITE) != 0) {
      ::munmap(begin_, mapped_);
      throw std::bad_alloc{};
    }
    std::memset(first, 0xff, inside_);
    offset_ = end == guarded_end::front ? 0 : (inside_ - bytes) / alignment * alignment;
    data_ = reinterpret_cast<Element*>(first + offset_);
  }
  guarded_array(guarded_array&& other) noexcept
      : size_{other.size_},
        inside_{other.inside_},
        mapped_{other.mapped_},
        offset_{other.offset_},
        begin_{std::exchange(other.begin_, nullptr)},
        data_{other.data_} {}
  guarded_array& operator=(guarded_array&&) = delete;
  ~guarded_array() {
    if (begin_ != nullptr) {
      ::munmap(begin_, mapped_);
    }
  }

  [[nodiscard]] Element* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::span<Element> elements() const noexcept { return {data_, size_}; }
  [[nodiscard]] Element& operator[](std::size_t i) const noexcept { return data_[i]; }

  /// Whether the bytes beside the elements, up to the guarded pages, are as they were.
  [[nodiscard]] bool intact() const noexcept {
    const std::byte* const first = reinterpret_cast<const std::byte*>(data_) - offset_;
    for (std::size_t b = 0; b < inside_; ++b) {
      if (b == offset_) {
        b += size_ * sizeof(Element);
      }
      if (b < inside_ && first[b] != std::byte{0xff}) {
        return false;
      }
    }
    return true;
  }

 private:
  std::size_t size_ = 0;
  std::size_t inside_ = 0;  // bytes between the guarded pages
  std::size_t mapped_ = 0;
  std::size_t offset_ = 0;  // of the first element
  std::byte* begin_ = nullptr;
  Element* data_ = nullptr;
};

}  // namespace gradus_test

// SPDX-License-Identifier: BSL-1.0
//
// Arrays between inaccessible pages: a read or a write outside of them ends the program at once.
#pragma once

#include <cstddef>
#include <span>

#include "guarded_memory.hpp"

namespace gradus_test {

/// `size` elements that end where a guarded page begins, or begin where one ends. All bits of the elements are set at
/// first: NaN in every floating-point type, so that what is not written, or read before it is, shows.
template <class Element>
class guarded_array {
 public:
  /// @param alignment  of the first element, in bytes, a power of two: `back` leaves the bytes between the last element
  ///                   and the page that this needs, and intact() looks at them
  explicit guarded_array(std::size_t size, guarded_end end = guarded_end::back,
                         std::size_t alignment = alignof(Element))
      : size_{size}, data_{memory_.place<Element>(size, end, alignment)} {}

  [[nodiscard]] Element* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::span<Element> elements() const noexcept { return {data_, size_}; }
  [[nodiscard]] Element& operator[](std::size_t i) const noexcept { return data_[i]; }

  /// Whether the bytes beside the elements are as they were.
  [[nodiscard]] bool intact() const { return memory_.intact(); }

 private:
  guarded_memory memory_;
  std::size_t size_;
  Element* data_;
};

}  // namespace gradus_test

// SPDX-License-Identifier: BSL-1.0
//
// A growing array for use inside the library: the parts of std::vector that it needs, quick to compile.
#pragma once

#include <cstddef>           // std::ptrdiff_t, std::size_t
#include <cstring>           // std::memcpy, std::memset
#include <initializer_list>  // std::initializer_list
#include <new>               // std::align_val_t, placement new, std::bad_array_new_length
#include <stdexcept>         // std::out_of_range
#include <type_traits>  // std::is_nothrow_move_constructible_v, std::is_trivially_copyable_v, std::is_trivially_default_constructible_v, std::is_trivially_destructible_v
#include <utility>      // std::exchange, std::forward, std::move, std::swap

#include "gradus/core/config.hpp"

namespace gradus {

// Array operations on trivially copyable elements are compiled once for all element types.

/// Uninitialized memory for `count` elements. @throws std::bad_alloc
[[nodiscard]] GRADUS_NEVER_INLINE inline void* allocate_array(std::size_t count, std::size_t element_bytes,
                                                              std::size_t alignment) {
  if (count > static_cast<std::size_t>(-1) / 2 / element_bytes) {
    throw std::bad_array_new_length{};
  }
  return ::operator new (count* element_bytes, std::align_val_t{alignment});
}
/// Frees memory of allocate_array, zero_array or copy_array; null is allowed.
GRADUS_NEVER_INLINE inline void deallocate_array(void* data, std::size_t alignment) noexcept {
  ::operator delete (data, std::align_val_t{alignment});
}
/// Memory for `count` elements with all bytes 0. @throws std::bad_alloc
[[nodiscard]] GRADUS_NEVER_INLINE inline void* zero_array(std::size_t count, std::size_t element_bytes,
                                                          std::size_t alignment) {
  return std::memset(allocate_array(count, element_bytes, alignment), 0, count * element_bytes);
}
/// Copies the first `size` elements into new memory for `capacity` elements. @throws std::bad_alloc
[[nodiscard]] GRADUS_NEVER_INLINE inline void* copy_array(const void* from, std::size_t size, std::size_t capacity,
                                                          std::size_t element_bytes, std::size_t alignment) {
  void* const copied = allocate_array(capacity, element_bytes, alignment);
  return size == 0 ? copied : std::memcpy(copied, from, size * element_bytes);
}

/// Consecutive elements in memory that the array owns. Members behave as those of std::vector.
///
/// For each element type that a program stores in a std::vector, GCC needs 30 to 80 ms at -O2, because it compiles
/// about fifty functions; here it compiles ten. Networks, communicators and trainers store about forty types in arrays,
/// and every program compiles each of them. This class saves a tenth of the compile time of a small program. Interfaces
/// for users take and return std::vector or std::span.
template <class Element>
class dynamic_array {
 public:
  using value_type = Element;              ///< as in std::vector
  using size_type = std::size_t;           ///< of sizes and indices
  using difference_type = std::ptrdiff_t;  ///< of distances between iterators
  using reference = Element&;              ///< what operator[] returns for an array that can be changed
  using const_reference = const Element&;  ///< what operator[] returns for a constant array
  using iterator = Element*;               ///< a pointer: valid until the array allocates again
  using const_iterator = const Element*;   ///< the same for constant elements

  // Constructors delegate, so the destructor releases the elements made so far when an element's constructor throws.
  constexpr dynamic_array() noexcept = default;
  /// `size` value-initialized elements. @throws std::bad_alloc
  explicit dynamic_array(std::size_t size) : dynamic_array{} {
    if constexpr (std::is_trivially_default_constructible_v<Element> && std::is_trivially_copyable_v<Element>) {
      data_ = static_cast<Element*>(zero_array(size, sizeof(Element), alignof(Element)));
      size_ = capacity_ = size;
    } else {
      make(size);
    }
  }
  /// `size` copies of `value`. @throws std::bad_alloc
  dynamic_array(std::size_t size, const Element& value) : dynamic_array{} {
    data_ = allocate(size);
    for (capacity_ = size; size_ < size; ++size_) {
      ::new (slot(size_)) Element(value);
    }
  }
  /// Copies of the values. @throws std::bad_alloc
  dynamic_array(std::initializer_list<Element> values) : dynamic_array{} { copy(values.begin(), values.size()); }
  /// A copy of the elements. @throws std::bad_alloc
  dynamic_array(const dynamic_array& other) : dynamic_array{} { copy(other.data_, other.size_); }
  /// Takes over the elements; `other` is empty afterwards.
  dynamic_array(dynamic_array&& other) noexcept
      : data_{std::exchange(other.data_, nullptr)},
        size_{std::exchange(other.size_, 0)},
        capacity_{std::exchange(other.capacity_, 0)} {}
  /// Replaces the elements by those of `other`.
  dynamic_array& operator=(dynamic_array other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  ~dynamic_array() {
    if constexpr (std::is_trivially_destructible_v<Element>) {
      deallocate(data_);
    } else {
      destroy();
    }
  }

  /// True if there are no elements.
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  /// The number of elements.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// The first element; null for an array that has never had elements.
  [[nodiscard]] Element* data() noexcept { return data_; }
  /// The first element; null for an array that has never had elements.
  [[nodiscard]] const Element* data() const noexcept { return data_; }
  /// The first element.
  [[nodiscard]] Element* begin() noexcept { return data_; }
  /// The first element.
  [[nodiscard]] const Element* begin() const noexcept { return data_; }
  /// The position after the last element.
  [[nodiscard]] Element* end() noexcept { return data_ + size_; }
  /// The position after the last element.
  [[nodiscard]] const Element* end() const noexcept { return data_ + size_; }

  /// Element i. @pre i < size()
  [[nodiscard]] Element& operator[](std::size_t i) noexcept {
    GRADUS_ASSERT(i < size_);
    return data_[i];
  }
  /// Element i. @pre i < size()
  [[nodiscard]] const Element& operator[](std::size_t i) const noexcept {
    GRADUS_ASSERT(i < size_);
    return data_[i];
  }
  /// @throws std::out_of_range if i >= size()
  [[nodiscard]] const Element& at(std::size_t i) const {
    if (i >= size_) {
      throw std::out_of_range{"an index outside an array"};
    }
    return data_[i];
  }
  /// The first element. @pre !empty()
  [[nodiscard]] Element& front() noexcept { return (*this)[0]; }
  /// The first element. @pre !empty()
  [[nodiscard]] const Element& front() const noexcept { return (*this)[0]; }
  /// The last element. @pre !empty()
  [[nodiscard]] Element& back() noexcept { return (*this)[size_ - 1]; }
  /// The last element. @pre !empty()
  [[nodiscard]] const Element& back() const noexcept { return (*this)[size_ - 1]; }

  /// Removes all elements; keeps the memory.
  void clear() noexcept {
    if constexpr (std::is_trivially_destructible_v<Element>) {
      size_ = 0;
    } else {
      while (size_ != 0) {
        pop_back();
      }
    }
  }
  /// Removes the last element. @pre !empty()
  void pop_back() noexcept { data_[--size_].~Element(); }

  /// Appends an element. @throws std::bad_alloc
  void push_back(Element value) { emplace_back(std::move(value)); }

  /// Appends an element made from the arguments and returns it. @pre no argument refers to an element of this array
  template <class... Arguments>
  Element& emplace_back(Arguments&&... arguments) {
    if (size_ == capacity_) {
      grow(capacity_ == 0 ? 4 : 2 * capacity_);
    }
    Element* const made = ::new (slot(size_)) Element(std::forward<Arguments>(arguments)...);
    ++size_;
    return *made;
  }

  /// Inserts before `position`; returns a pointer to the new element.
  Element* insert(const Element* position, Element value) {
    const auto at = static_cast<std::size_t>(position - data_);
    push_back(std::move(value));
    for (std::size_t i = size_ - 1; i > at; --i) {
      std::swap(data_[i], data_[i - 1]);
    }
    return data_ + at;
  }

  /// Allocates memory for at least `capacity` elements. @throws std::bad_alloc
  void reserve(std::size_t capacity) {
    if (capacity > capacity_) {
      grow(capacity);
    }
  }

 private:
  static Element* allocate(std::size_t count) {
    return static_cast<Element*>(allocate_array(count, sizeof(Element), alignof(Element)));
  }
  static void deallocate(Element* data) noexcept { deallocate_array(data, alignof(Element)); }

  [[nodiscard]] void* slot(std::size_t i) noexcept { return data_ + i; }

  void make(std::size_t size) {
    data_ = allocate(size);
    for (capacity_ = size; size_ < size; ++size_) {
      ::new (slot(size_)) Element();
    }
  }

  GRADUS_NEVER_INLINE void destroy() noexcept {
    clear();
    deallocate(data_);
  }

  void copy(const Element* from, std::size_t count) {
    if constexpr (std::is_trivially_copyable_v<Element>) {
      data_ = static_cast<Element*>(copy_array(from, count, count, sizeof(Element), alignof(Element)));
      size_ = capacity_ = count;
    } else {
      data_ = allocate(count);
      for (capacity_ = count; size_ < count; ++size_) {
        ::new (slot(size_)) Element(from[size_]);
      }
    }
  }

  GRADUS_NEVER_INLINE void grow(std::size_t capacity) {
    static_assert(std::is_nothrow_move_constructible_v<Element>, "gradus: elements move when their array grows");
    Element* larger = nullptr;
    if constexpr (std::is_trivially_copyable_v<Element>) {
      larger = static_cast<Element*>(copy_array(data_, size_, capacity, sizeof(Element), alignof(Element)));
    } else {
      larger = allocate(capacity);
      for (std::size_t i = 0; i < size_; ++i) {
        ::new (static_cast<void*>(larger + i)) Element(std::move(data_[i]));
        data_[i].~Element();
      }
    }
    deallocate(data_);
    data_ = larger;
    capacity_ = capacity;
  }

  Element* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace gradus

// SPDX-License-Identifier: BSL-1.0
//
// The tensor view: a dense tensor in memory that it does not own.
#pragma once

#include <array>        // std::array
#include <concepts>     // std::convertible_to
#include <cstddef>      // std::size_t
#include <string>       // std::string, std::to_string
#include <type_traits>  // std::is_const_v, std::remove_const_t, std::remove_cvref_t

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/reference.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/layout/mapping.hpp"

namespace gradus {

template <class Destination, class Operand>
void assign(Destination&& destination, const Operand& values, error_location where = error_location::current());

namespace detail {

/// The first coordinate of an element, and the location of the call that gives it. The others are a pack, behind which
/// a function has no argument with a default.
struct first_coordinate {
  template <std::convertible_to<index_t> Number>
  constexpr first_coordinate(const Number& number, error_location call = error_location::current())
      : value{static_cast<index_t>(number)}, where{call} {}

  index_t value;
  error_location where;
};

}  // namespace detail

/// A dense tensor of `Rank` axes in memory that it does not own. With `const Element` it is read-only.
///
/// Coordinates are in logical order (n, c, h, w for images), whatever the memory order. A view consists of a pointer
/// and extents and is cheap to copy. The memory and the device must outlive it.
template <class Element, int Rank, class Layout = row_major, class Device = cpu>
class tensor_view {
  static_assert(explain_element<std::remove_const_t<Element>>());
  static_assert(explain_tensor_layout<Layout, Rank>());
  static_assert(explain_device_policy<Device>());

 public:
  using element_type = Element;                     ///< const if the view is read-only
  using value_type = std::remove_const_t<Element>;  ///< type of the values in expressions
  using layout_type = Layout;                       ///< order of the axes in memory
  using device_type = Device;                       ///< type of the device with the memory
  static constexpr int rank = Rank;                 ///< number of axes

  /// @pre data points at shape.size() elements in the memory of `device`
  tensor_view(borrowed<Device> device, Element* data, const extents<Rank>& shape) noexcept
      : device_{&device.get()}, data_{data}, extents_{shape} {}

  /// Converts a writable view to a read-only view.
  template <class Other>
  requires(std::is_const_v<Element>&& std::same_as<Other, value_type>)
      tensor_view(const tensor_view<Other, Rank, Layout, Device>& other)
  noexcept : device_{&other.device()}, data_{other.data()}, extents_{other.extents()} {}

  /// The device that holds the memory.
  [[nodiscard]] Device& device() const noexcept { return *device_; }
  /// The first element, in the memory of the device.
  [[nodiscard]] Element* data() const noexcept { return data_; }
  /// The extents, in logical order.
  [[nodiscard]] const gradus::extents<Rank>& extents() const noexcept { return extents_; }
  /// The extent of one axis. @pre 0 <= axis < Rank
  [[nodiscard]] index_t extent(int axis) const noexcept { return extents_[axis]; }
  /// The extent of an axis of images.
  [[nodiscard]] index_t extent(axis a) const noexcept requires(Rank == 4) { return extents_[static_cast<int>(a)]; }
  /// The number of elements.
  [[nodiscard]] index_t size() const { return extents_.size(); }
  /// True if there are no elements.
  [[nodiscard]] bool empty() const { return size() == 0; }

  /// The element at the coordinates, in host memory.
  /// @pre every coordinate is inside its extent
  template <std::convertible_to<index_t>... Coordinates>
  requires(sizeof...(Coordinates) == static_cast<std::size_t>(Rank)) [[nodiscard]] Element& operator()(
      Coordinates... coordinates) const noexcept {
    static_assert(has_host_memory<Device>,
                  "gradus: the elements of a tensor on this device are not in the memory of the host: copy it first, "
                  "gradus::to(host, x)");
    const std::array<index_t, static_cast<std::size_t>(Rank)> at{static_cast<index_t>(coordinates)...};
    GRADUS_ASSERT(contains(at));
    return data_[offset(at)];
  }

  /// The element at the coordinates, in host memory.
  /// @throws shape_error when a coordinate is outside its extent
  template <std::convertible_to<index_t>... Others>
  requires(sizeof...(Others) + 1 == static_cast<std::size_t>(Rank))
      [[nodiscard]] Element& at(detail::first_coordinate first, Others... others) const {
    static_assert(has_host_memory<Device>,
                  "gradus: the elements of a tensor on this device are not in the memory of the host: copy it first, "
                  "gradus::to(host, x)");
    const std::array<index_t, static_cast<std::size_t>(Rank)> at{first.value, static_cast<index_t>(others)...};
    if (!contains(at)) {
      std::string text{"("};
      for (std::size_t i = 0; i < at.size(); ++i) {
        text.append(i == 0 ? "" : ", ").append(std::to_string(at[i]));
      }
      raise<shape_error>("tensor.at", "coordinates inside " + to_string(extents_), text + ")", {}, first.where);
    }
    return data_[offset(at)];
  }
  /// The element of a tensor of rank 0, in host memory.
  [[nodiscard]] Element& at() const requires(Rank == 0) { return (*this)(); }

  /// The offset of the element at the coordinates from data(), in elements.
  [[nodiscard]] index_t offset(const std::array<index_t, static_cast<std::size_t>(Rank)>& at) const noexcept {
    const auto strides = dense_strides<Layout, Rank>(extents_);
    index_t result = 0;
    for (std::size_t i = 0; i < at.size(); ++i) {
      result += at[i] * strides[i];
    }
    return result;
  }

  /// A view of `count` entries of the slowest axis, starting at `begin`; of a batch: some of its images.
  /// @throws shape_error when the range is not inside the extent
  [[nodiscard]] tensor_view slice(index_t begin, index_t count, error_location where = error_location::current()) const
      requires(Rank > 0) {
    constexpr int slowest = memory_order<Layout, Rank>[0];
    if (begin < 0 || count < 0 || begin > extents_[slowest] - count) {
      raise<shape_error>("tensor.slice", "a part of the slowest axis of " + to_string(extents_),
                         std::to_string(count) + " entries from " + std::to_string(begin), {}, where);
    }
    auto values = extents_.values();
    values[static_cast<std::size_t>(slowest)] = count;
    const gradus::extents<Rank> part{values};
    return {*device_, data_ + begin * dense_strides<Layout, Rank>(extents_)[static_cast<std::size_t>(slowest)], part};
  }

  /// A view of the same elements in memory order, with other extents.
  /// @throws shape_error when the number of elements differs
  template <int NewRank>
  [[nodiscard]] tensor_view<Element, NewRank, row_major, Device> reshape(
      const gradus::extents<NewRank>& shape, error_location where = error_location::current()) const
      requires(std::same_as<Layout, row_major>) {
    if (shape.size() != size()) {
      raise<shape_error>("tensor.reshape", std::to_string(size()) + " elements as in " + to_string(extents_),
                         to_string(shape) + ", which has " + std::to_string(shape.size()), {}, where);
    }
    return {*device_, data_, shape};
  }

  /// The element of a view of rank 0. Waits for the device.
  [[nodiscard]] value_type value() const requires(Rank == 0) {
    value_type result{};
    device_->copy_to_host(&result, data_, sizeof(result));
    return result;
  }

  /// Evaluates an expression into the memory of this view. The expression may read this view, see tensor::operator=.
  /// @throws shape_error when the shapes differ
  template <class Operand>
  const tensor_view& assign(const Operand& values, error_location where = error_location::current()) const {
    using gradus::assign;  // of gradus/tensor/expressions.hpp
    assign(*this, values, where);
    return *this;
  }
  /// Adds an expression or a number. @throws shape_error when the shapes differ
  template <class Operand>
  const tensor_view& operator+=(const Operand& values) const {
    return assign(*this + values);
  }
  /// Subtracts an expression or a number. @throws shape_error when the shapes differ
  template <class Operand>
  const tensor_view& operator-=(const Operand& values) const {
    return assign(*this - values);
  }
  /// Multiplies by an expression or a number, element by element. @throws shape_error when the shapes differ
  template <class Operand>
  const tensor_view& operator*=(const Operand& values) const {
    return assign(*this * values);
  }
  /// Divides by an expression or a number, element by element. @throws shape_error when the shapes differ
  template <class Operand>
  const tensor_view& operator/=(const Operand& values) const {
    return assign(*this / values);
  }

 private:
  [[nodiscard]] bool contains(const std::array<index_t, static_cast<std::size_t>(Rank)>& at) const noexcept {
    for (int i = 0; i < Rank; ++i) {
      if (at[static_cast<std::size_t>(i)] < 0 || at[static_cast<std::size_t>(i)] >= extents_[i]) {
        return false;
      }
    }
    return true;
  }

  Device* device_;
  Element* data_;
  gradus::extents<Rank> extents_;
};

template <class Element, int Rank, class Device>
tensor_view(Device&&, Element*, const extents<Rank>&)
    -> tensor_view<Element, Rank, row_major, std::remove_cvref_t<Device>>;

/// A batch of images (n, c, h, w) in memory that it does not own.
template <class Element, class Layout, class Device = cpu>
using image_view = tensor_view<Element, 4, Layout, Device>;

}  // namespace gradus

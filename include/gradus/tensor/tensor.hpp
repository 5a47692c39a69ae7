// SPDX-License-Identifier: BSL-1.0
//
// The tensor: a dense array that owns its memory on a device.
#pragma once

#include <concepts>     // std::convertible_to
#include <cstddef>      // std::size_t
#include <type_traits>  // std::is_const_v
#include <utility>      // std::exchange, std::swap

#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/reference.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/tensor/expression_base.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus {

/// A dense tensor of `Rank` axes that owns its memory. Copies are deep. The device must outlive it.
template <class Element, int Rank, class Layout = row_major, class Device = cpu>
class tensor {
  static_assert(!std::is_const_v<Element>, "gradus: a tensor owns elements that can be written: use a tensor_view");

 public:
  using element_type = Element;                                              ///< type of the stored elements
  using value_type = Element;                                                ///< type of the values in expressions
  using layout_type = Layout;                                                ///< order of the axes in memory
  using device_type = Device;                                                ///< type of the device with the memory
  using view_type = tensor_view<Element, Rank, Layout, Device>;              ///< view that can write the elements
  using const_view_type = tensor_view<const Element, Rank, Layout, Device>;  ///< view that only reads
  static constexpr int rank = Rank;                                          ///< number of axes

  /// A tensor of zeros. @throws device_error when there is not enough memory
  tensor(borrowed<Device> device, const gradus::extents<Rank>& shape, error_location where = error_location::current())
      : view_{device, at_call(where, [&] { return allocate(device, shape); }), shape} {
    device.get().fill_zero(data(), bytes());
  }

  /// Evaluates an expression of the same element type, rank, layout and device into new memory.
  /// @throws device_error when there is not enough memory
  template <expression Expression>
  tensor(const Expression& values)  // NOLINT: an expression is a tensor that is not yet computed
      : view_{values.device(), allocate(values.device(), values.extents()), values.extents()} {
    try {
      assign(view_, values);
    } catch (...) {
      device().deallocate(data(), bytes());
      throw;
    }
  }

  /// A deep copy, on the same device. @throws device_error when there is not enough memory
  tensor(const tensor& other) : view_{other.device(), allocate(other.device(), other.extents()), other.extents()} {
    device().copy(data(), other.data(), bytes());
  }
  /// Takes the memory of `other`, which can then only be destroyed and assigned to.
  tensor(tensor&& other) noexcept
      : view_{std::exchange(other.view_, view_type{other.device(), nullptr, gradus::extents<Rank>{}})} {}
  /// Takes the memory of `other`, a copy or a tensor that was moved, and frees its own. The shape and the device become
  /// those of `other`, so views of this tensor are no longer valid.
  tensor& operator=(tensor other) noexcept {
    std::swap(view_, other.view_);
    return *this;
  }
  /// Evaluates an expression into the memory of this tensor. The expression may read this tensor: element-wise
  /// operations read an element before they write it, and operations that read other elements (products, transposition,
  /// reductions, layout_cast) are already evaluated. If the expression reads this memory at other positions, as through
  /// a slice, all values are computed before the first is written.
  /// @throws shape_error when the shapes differ
  template <expression Expression>
  tensor& operator=(const Expression& values) {
    assign(view_, values);
    return *this;
  }
  /// Adds an expression or a number. @throws shape_error when the shapes differ
  template <class Operand>
  tensor& operator+=(const Operand& values) {
    view_ += values;
    return *this;
  }
  /// Subtracts an expression or a number. @throws shape_error when the shapes differ
  template <class Operand>
  tensor& operator-=(const Operand& values) {
    view_ -= values;
    return *this;
  }
  /// Multiplies by an expression or a number, element by element. @throws shape_error when the shapes differ
  template <class Operand>
  tensor& operator*=(const Operand& values) {
    view_ *= values;
    return *this;
  }
  /// Divides by an expression or a number, element by element. @throws shape_error when the shapes differ
  template <class Operand>
  tensor& operator/=(const Operand& values) {
    view_ /= values;
    return *this;
  }

  ~tensor() {
    if (data() != nullptr) {
      device().deallocate(data(), bytes());
    }
  }

  /// A view of the elements, valid as long as the tensor.
  [[nodiscard]] view_type view() noexcept { return view_; }
  /// A read-only view of the elements, valid as long as the tensor.
  [[nodiscard]] const_view_type view() const noexcept { return view_; }
  /// The same as view().
  operator view_type() noexcept { return view_; }
  /// The same as view() of a constant tensor.
  operator const_view_type() const noexcept { return view_; }

  /// The device that holds the memory.
  [[nodiscard]] Device& device() const noexcept { return view_.device(); }
  /// The first element, in the memory of the device.
  [[nodiscard]] Element* data() noexcept { return view_.data(); }
  /// The first element, in the memory of the device.
  [[nodiscard]] const Element* data() const noexcept { return view_.data(); }
  /// The extents, in logical order.
  [[nodiscard]] const gradus::extents<Rank>& extents() const noexcept { return view_.extents(); }
  /// The extent of one axis. @pre 0 <= axis < Rank
  [[nodiscard]] index_t extent(int axis) const noexcept { return view_.extent(axis); }
  /// The number of elements.
  [[nodiscard]] index_t size() const { return view_.size(); }

  /// The element at the coordinates, in host memory, without a check.
  template <std::convertible_to<index_t>... Coordinates>
  [[nodiscard]] Element& operator()(Coordinates... coordinates) noexcept {
    return view_(coordinates...);
  }
  /// The element at the coordinates, in host memory, without a check.
  template <std::convertible_to<index_t>... Coordinates>
  [[nodiscard]] const Element& operator()(Coordinates... coordinates) const noexcept {
    return view_(coordinates...);
  }
  /// The element at the coordinates, in host memory. @throws shape_error when a coordinate is outside its extent
  template <std::convertible_to<index_t>... Others>
  requires(sizeof...(Others) + 1 == static_cast<std::size_t>(Rank))
      [[nodiscard]] Element& at(detail::first_coordinate first, Others... others) {
    return view_.at(first, others...);
  }
  /// The element at the coordinates, in host memory. @throws shape_error when a coordinate is outside its extent
  template <std::convertible_to<index_t>... Others>
  requires(sizeof...(Others) + 1 == static_cast<std::size_t>(Rank))
      [[nodiscard]] const Element& at(detail::first_coordinate first, Others... others) const {
    return view_.at(first, others...);
  }
  /// The element of a tensor of rank 0, in host memory.
  [[nodiscard]] Element& at() requires(Rank == 0) { return view_(); }
  /// The element of a tensor of rank 0, in host memory.
  [[nodiscard]] const Element& at() const requires(Rank == 0) { return view_(); }

  /// The element of a tensor of rank 0. Waits for the device.
  [[nodiscard]] Element value() const requires(Rank == 0) { return view_.value(); }

  /// Gives up the memory; the caller frees it with device().deallocate.
  /// @post the tensor can only be destroyed and assigned to
  [[nodiscard]] Element* release() noexcept {
    return std::exchange(view_, view_type{device(), nullptr, gradus::extents<Rank>{}}).data();
  }

 private:
  static Element* allocate(Device& device, const gradus::extents<Rank>& shape) {
    const auto count = static_cast<std::size_t>(gradus::detail::checked_product(shape.size(), sizeof(Element)));
    return static_cast<Element*>(device.allocate(count));
  }
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(size()) * sizeof(Element); }

  view_type view_;
};

/// A batch of images (n, c, h, w) that owns its memory.
template <class Element, class Layout, class Device = cpu>
using image_tensor = tensor<Element, 4, Layout, Device>;

}  // namespace gradus

// SPDX-License-Identifier: BSL-1.0
//
// Eigen and tensors in the same memory, without a copy: as_eigen, as_tensor, as_transposed_tensor.
//
//   as_eigen(x).rowwise().normalize();                       // a tensor of rank 1 or 2 as an Eigen::Map
//   Eigen::Matrix<float, -1, -1, Eigen::RowMajor> m(2, 3);
//   const auto view = gradus::as_tensor(device, m);          // a tensor_view<float, 2>
//
// Eigen stores matrices by columns unless their type says Eigen::RowMajor. A tensor is row_major, so as_tensor refuses
// such a matrix at compile time; as_transposed_tensor gives a view of its transpose.
#pragma once

#include <Eigen/Core>  // Eigen::Map, Eigen::Matrix

#include <type_traits>  // std::conditional_t, std::is_base_of_v, std::is_const_v, std::remove_const_t, std::remove_cvref_t

#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/tensor/tensor.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus {

namespace detail {

template <class Element>
using eigen_vector = Eigen::Matrix<std::remove_const_t<Element>, Eigen::Dynamic, 1>;
template <class Element>
using eigen_matrix = Eigen::Matrix<std::remove_const_t<Element>, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// The type, const if the element is const.
template <class Element, class Type>
using const_as = std::conditional_t<std::is_const_v<Element>, const Type, Type>;

/// An object of Eigen with its elements in memory.
template <class Object>
concept eigen_object = requires(const std::remove_cvref_t<Object>& object) {
  typename std::remove_cvref_t<Object>::Scalar;
  object.derived();
  object.rows();
  object.cols();
};

/// Reports at compile time why a tensor cannot be a view of the object. Returns true if it compiles.
template <class Object>
consteval bool explain_eigen_object() {
  using type = std::remove_cvref_t<Object>;
  static_assert((static_cast<int>(type::Flags) & static_cast<int>(Eigen::DirectAccessBit)) != 0,
                "gradus: this expression of Eigen has no memory: evaluate it first, auto m = (...).eval();");
  static_assert(
      std::is_lvalue_reference_v<Object> || !std::is_base_of_v<Eigen::PlainObjectBase<type>, type>,
      "gradus: the matrix is a temporary that is destroyed at the end of this statement, but a view refers to "
      "its memory: give it a name on the line before (auto m = ...;) and pass the name");
  return true;
}

/// The pointer to the first element, const if the object cannot be written.
template <class Object>
[[nodiscard]] auto* eigen_data(Object& object) {
  using type = std::remove_cvref_t<Object>;
  using element = typename type::Scalar;
  constexpr bool writable =
      !std::is_const_v<Object> && (static_cast<int>(type::Flags) & static_cast<int>(Eigen::LvalueBit)) != 0;
  if constexpr (writable) {
    return static_cast<element*>(object.data());
  } else {
    return static_cast<const element*>(object.data());
  }
}

/// A view of the elements in the order of their memory.
template <int Rank, class Object>
[[nodiscard]] auto eigen_view(const char* operation, cpu& device, Object& object, const extents<Rank>& shape,
                              error_location where) {
  const bool adjacent = object.innerStride() == 1 || object.innerSize() <= 1;
  const bool rows_adjacent = object.outerStride() == object.innerSize() || object.outerSize() <= 1;
  if (shape.size() > 1 && !(adjacent && rows_adjacent)) {
    raise<shape_error>(operation, "elements without gaps in memory",
                       {"an inner stride of ", object.innerStride(), " and an outer stride of ", object.outerStride(),
                        " for an inner size of ", object.innerSize()},
                       "copy the block to a matrix, auto m = block.eval();", where);
  }
  auto* const data = eigen_data(object);
  return tensor_view<std::remove_reference_t<decltype(*data)>, Rank>{device, data, shape};
}

template <class Matrix>
[[nodiscard]] auto eigen_map(Matrix* data, const extents<1>& shape) {
  return Eigen::Map<const_as<Matrix, eigen_vector<Matrix>>>{data, shape[0]};
}
template <class Matrix>
[[nodiscard]] auto eigen_map(Matrix* data, const extents<2>& shape) {
  return Eigen::Map<const_as<Matrix, eigen_matrix<Matrix>>>{data, shape[0], shape[1]};
}

}  // namespace detail

/// The elements of a tensor or view of rank 1 or 2 as an Eigen::Map: a column vector, or a matrix with Eigen::RowMajor.
/// A constant tensor or a read-only view gives a map of a constant matrix. The map is valid as long as the memory.
template <class Tensor>
[[nodiscard]] auto as_eigen(Tensor&& x) {
  using type = std::remove_cvref_t<Tensor>;
  static_assert(type::rank == 1 || type::rank == 2,
                "gradus::as_eigen: a tensor of rank 1 or 2: use reshape of its view");
  static_assert(has_host_memory<typename type::device_type>,
                "gradus: the elements of a tensor on this device are not in the memory of the host: copy it first, "
                "gradus::to(host, x)");
  static_assert(
      std::is_lvalue_reference_v<Tensor> || !requires { x.release(); },
      "gradus: the tensor is a temporary that is destroyed at the end of this statement, but a map refers to "
      "its memory: give it a name on the line before and pass the name");
  return detail::eigen_map(x.data(), x.extents());
}

/// A view of the elements of an Eigen object, without a copy: rank 1 for vectors, rank 2 for matrices with
/// Eigen::RowMajor. An object that can be written gives a view that can write. The object must outlive the view and not
/// be resized. A matrix that is stored by columns does not compile: see as_transposed_tensor.
/// @throws shape_error when there are gaps between the rows or the elements, as in a block of a larger matrix
template <detail::eigen_object Object>
[[nodiscard]] auto as_tensor(cpu& device, Object&& object, error_location where = error_location::current()) {
  static_assert(detail::explain_eigen_object<Object>());
  using type = std::remove_cvref_t<Object>;
  if constexpr (type::IsVectorAtCompileTime) {
    return detail::eigen_view<1>("as_tensor", device, object, extents<1>{static_cast<index_t>(object.size())}, where);
  } else {
    static_assert(static_cast<bool>(type::IsRowMajor),
                  "gradus::as_tensor: Eigen stores this matrix by columns, and a tensor is row_major: give its type "
                  "Eigen::RowMajor, or use as_transposed_tensor(device, m), a view of its transpose");
    return detail::eigen_view<2>("as_tensor", device, object,
                                 extents<2>{static_cast<index_t>(object.rows()), static_cast<index_t>(object.cols())},
                                 where);
  }
}

/// A view of the transpose of an Eigen matrix that is stored by columns: (columns, rows), without a copy.
/// `gradus::tensor<float, 2> x = transpose(as_transposed_tensor(device, m))` copies it to its own order.
/// @throws shape_error when there are gaps between the columns or the elements
template <detail::eigen_object Object>
[[nodiscard]] auto as_transposed_tensor(cpu& device, Object&& object,
                                        error_location where = error_location::current()) {
  static_assert(detail::explain_eigen_object<Object>());
  using type = std::remove_cvref_t<Object>;
  static_assert(!static_cast<bool>(type::IsRowMajor) && !static_cast<bool>(type::IsVectorAtCompileTime),
                "gradus::as_transposed_tensor: a matrix that Eigen stores by columns: use as_tensor(device, m)");
  return detail::eigen_view<2>("as_transposed_tensor", device, object,
                               extents<2>{static_cast<index_t>(object.cols()), static_cast<index_t>(object.rows())},
                               where);
}

}  // namespace gradus

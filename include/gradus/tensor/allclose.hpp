// SPDX-License-Identifier: BSL-1.0
//
// Comparison of tensors with a tolerance: allclose and max_difference. The host compares.
#pragma once

#include <cmath>     // std::abs
#include <concepts>  // std::integral
#include <cstddef>   // std::size_t
#include <cstdint>   // std::int64_t, std::uint64_t

#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/index.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/tensor/detail/host/logical_order.hpp"
#include "gradus/tensor/expression_base.hpp"
#include "gradus/tensor/tensor.hpp"

namespace gradus {

/// How far elements may differ in allclose. The defaults are NumPy's; for sums of many floats they are narrow.
struct tolerance {
  double relative = 1e-5;  ///< as a factor of the second element's absolute value
  double absolute = 1e-8;  ///< in addition, for elements near 0
  bool equal_nan = false;  ///< NaN is close to NaN
};

namespace detail {

/// Calls visit(a, b) for the elements with the same coordinates until it returns false.
template <class Left, class Right, class Visitor>
void for_pairs(const char* operation, const Left& left, const Right& right, error_location where,
               const Visitor& visit) {
  if constexpr (expression<Left>) {
    for_pairs(
        operation,
        tensor<typename Left::value_type, Left::rank, typename Left::layout_type, typename Left::device_type>{left},
        right, where, visit);
  } else if constexpr (expression<Right>) {
    for_pairs(operation, left,
              tensor<typename Right::value_type, Right::rank, typename Right::layout_type, typename Right::device_type>{
                  right},
              where, visit);
  } else {
    static_assert(Left::rank == Right::rank, "gradus: a comparison of tensors of the same rank");
    constexpr int rank = Left::rank;
    const auto& shape = left.extents();
    if (shape != right.extents()) {
      raise<shape_error>(operation, "tensors of one shape", {to_string(shape), " and ", to_string(right.extents())}, {},
                         where);
    }
    const host_elements a{left};
    const host_elements b{right};
    const index_t size = shape.size();
    if constexpr (memory_order<typename Left::layout_type, rank> == memory_order<typename Right::layout_type, rank>) {
      for (index_t i = 0; i < size && visit(a.data()[i], b.data()[i]); ++i) {
      }
    } else {
      const auto left_strides = dense_strides<typename Left::layout_type, rank>(shape);
      const auto right_strides = dense_strides<typename Right::layout_type, rank>(shape);
      for (index_t i = 0; i < size; ++i) {
        index_t rest = i;
        index_t left_offset = 0;
        index_t right_offset = 0;
        for (int axis = rank - 1; axis >= 0; --axis) {
          const index_t coordinate = rest % shape[axis];
          left_offset += coordinate * left_strides[static_cast<std::size_t>(axis)];
          right_offset += coordinate * right_strides[static_cast<std::size_t>(axis)];
          rest /= shape[axis];
        }
        if (!visit(a.data()[left_offset], b.data()[right_offset])) {
          return;
        }
      }
    }
  }
}

/// |a - b|: 0 for equal infinities, NaN if one of them is NaN. Whole numbers are subtracted exactly.
template <class Left, class Right>
[[nodiscard]] double distance(Left a, Right b) noexcept {
  if constexpr (std::integral<Left> && std::integral<Right>) {
    const auto x = static_cast<std::int64_t>(a);
    const auto y = static_cast<std::int64_t>(b);
    return static_cast<double>(x < y ? static_cast<std::uint64_t>(y) - static_cast<std::uint64_t>(x)
                                     : static_cast<std::uint64_t>(x) - static_cast<std::uint64_t>(y));
  } else {
    const auto x = static_cast<double>(a);
    const auto y = static_cast<double>(b);
    return x == y ? 0.0 : std::abs(x - y);
  }
}

[[nodiscard]] inline bool is_nan(double x) noexcept {
  return !is_finite(x) && !(x > 0) && !(x < 0);
}

}  // namespace detail

/// True if all elements of a and b are close, as numpy.allclose:
///
///   |a - b| <= absolute + relative * |b|
///
/// in double. b is the reference: the relation is not symmetric. Equal infinities are close, and an infinity is close
/// to nothing else. NaN is close to NaN with `equal_nan`, else to nothing. Tensors without elements are close. a and b
/// are tensors, views or expressions of one shape; layouts, devices and element types may differ.
/// @throws shape_error when the shapes differ; there is no broadcasting
/// @throws configuration_error when a tolerance is negative or NaN
template <class Left, class Right>
[[nodiscard]] bool allclose(const Left& a, const Right& b, const tolerance& allowed = {},
                            error_location where = error_location::current()) {
  if (!(allowed.relative >= 0) || !(allowed.absolute >= 0)) {
    raise<configuration_error>("allclose", "tolerances of at least 0",
                               {"relative ", allowed.relative, " and absolute ", allowed.absolute}, {}, where);
  }
  bool close = true;
  detail::for_pairs("allclose", a, b, where, [&](auto x, auto y) {
    const double difference = detail::distance(x, y);
    if (is_finite(difference)) {
      close = difference <= allowed.absolute + allowed.relative * std::abs(static_cast<double>(y));
    } else {
      close = allowed.equal_nan && detail::is_nan(static_cast<double>(x)) && detail::is_nan(static_cast<double>(y));
    }
    return close;
  });
  return close;
}

/// The largest |a - b| of the elements, in double: 0 for tensors without elements, NaN if an element is NaN. Equal
/// infinities differ by 0. a and b are as for allclose.
/// @throws shape_error when the shapes differ
template <class Left, class Right>
[[nodiscard]] double max_difference(const Left& a, const Right& b, error_location where = error_location::current()) {
  double largest = 0;
  detail::for_pairs("max_difference", a, b, where, [&](auto x, auto y) {
    const double difference = detail::distance(x, y);
    largest = difference > largest || difference != difference ? difference : largest;
    return largest == largest;
  });
  return largest;
}

}  // namespace gradus

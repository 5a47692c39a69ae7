// SPDX-License-Identifier: BSL-1.0
//
// Tensors, views and expressions as text, like numpy.array2string with the element type and the shape above it:
//
//   float32 (2, 3)
//   [[1.  2.  3. ]
//    [4.5 5.  6. ]]
//
// The elements are in logical order for every layout. The first line also says a layout other than row_major and a
// device other than the cpu: "float32 (8, 3, 32, 32) nhwc on cuda". Elements on a device are copied first.
#pragma once

#include <array>     // std::array
#include <concepts>  // std::same_as
#include <cstddef>   // std::size_t
#include <iosfwd>    // std::ostream
#include <ostream>   // std::ostream
#include <string>    // std::string
#include <vector>    // std::vector

#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/tensor/detail/host/logical_order.hpp"
#include "gradus/tensor/detail/text/brackets.hpp"
#include "gradus/tensor/detail/text/numbers.hpp"
#include "gradus/tensor/expression_base.hpp"
#include "gradus/tensor/tensor.hpp"

namespace gradus {

/// How to_string writes a tensor. The defaults are NumPy's.
struct print_options {
  int precision = 8;         ///< most digits after the decimal point, at least 0
  index_t threshold = 1000;  ///< a tensor of more elements is shortened
  index_t edge_items = 3;    ///< entries at each end of a shortened axis, at least 1
  int line_width = 75;       ///< characters of a line, in which a row is broken
  bool heading = true;       ///< a first line with the element type and the shape
};

namespace detail {

/// A tensor or view: not an expression.
template <class Tensor>
concept printed_tensor = requires(const Tensor& x) {
  typename Tensor::value_type;
  typename Tensor::layout_type;
  { Tensor::rank + 0 } -> std::same_as<int>;
  x.data();
  x.extents();
  x.device();
}
&&!expression<Tensor>;

template <class Tensor>
[[nodiscard]] std::string tensor_text(const Tensor& x, const print_options& options) {
  using element = typename Tensor::value_type;
  constexpr int rank = Tensor::rank;
  const auto& shape = x.extents();
  std::string text;
  if (options.heading) {
    append_text(text, {element_name<element>, " ", to_string(shape)});
    if constexpr (!std::same_as<typename Tensor::layout_type, row_major>) {
      append_text(text, {" ", Tensor::layout_type::name});
    }
    if constexpr (!std::same_as<typename Tensor::device_type, cpu>) {
      append_text(text, {" on ", Tensor::device_type::name});
    }
    text += "\n";
  }
  if (shape.size() == 0) {
    return text + "[]";
  }
  const bool shortened = shape.size() > options.threshold;
  std::array<printed_axis, static_cast<std::size_t>(rank)> axes{};
  index_t count = 1;
  for (int axis = 0; axis < rank; ++axis) {
    const bool dots = shortened && shape[axis] > 2 * options.edge_items;
    axes[static_cast<std::size_t>(axis)] = {shape[axis], dots ? options.edge_items : -1};
    count *= axes[static_cast<std::size_t>(axis)].count();
  }
  const host_elements elements{x};
  const auto strides = dense_strides<typename Tensor::layout_type, rank>(shape);
  std::vector<element> values;
  for (index_t i = 0; i < count; ++i) {
    index_t rest = i;
    index_t offset = 0;
    for (std::size_t axis = static_cast<std::size_t>(rank); axis-- > 0;) {
      offset += axes[axis].coordinate(rest % axes[axis].count()) * strides[axis];
      rest /= axes[axis].count();
    }
    values.push_back(elements.data()[offset]);
  }
  std::vector<std::string> texts;
  if constexpr (std::same_as<element, bool>) {
    for (const bool value : values) {
      texts.emplace_back(value ? (rank == 0 ? "True" : " True") : "False");
    }
  } else {
    texts = element_texts(values, options.precision);
  }
  return text + bracket_writer{axes, texts, options.line_width}.write();
}

}  // namespace detail

/// The text of a tensor or view, as above.
/// @throws configuration_error when an option is out of range
template <class Tensor>
requires(detail::printed_tensor<Tensor> || expression<Tensor>) [[nodiscard]] std::string
    to_string(const Tensor& x, const print_options& options = {}, error_location where = error_location::current()) {
  if (options.precision < 0 || options.precision > 300 || options.edge_items < 1) {
    raise<configuration_error>("to_string", "a precision of 0 to 300 and at least 1 edge item",
                               {"precision ", options.precision, " and ", options.edge_items, " edge items"}, {},
                               where);
  }
  if constexpr (expression<Tensor>) {
    return detail::tensor_text(
        tensor<typename Tensor::value_type, Tensor::rank, typename Tensor::layout_type, typename Tensor::device_type>{
            x},
        options);
  } else {
    return detail::tensor_text(x, options);
  }
}

/// Writes the text of a tensor, view or expression, without a line break behind it.
template <class Tensor>
requires(detail::printed_tensor<Tensor> || expression<Tensor>) std::ostream& operator<<(std::ostream& out,
                                                                                        const Tensor& x) {
  return out << to_string(x);
}

}  // namespace gradus

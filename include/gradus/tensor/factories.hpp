// SPDX-License-Identifier: BSL-1.0
//
// New tensors with given values: zeros, ones, full, eye, arange, linspace, from_list, from_span.
//
//   const auto x = gradus::zeros<float>(device, {2, 3});
//   const auto images = gradus::full<float, gradus::nhwc>(device, {8, 3, 32, 32}, 0.5F);
//   const auto table = gradus::from_list<double, 2>(device, {{1, 2, 3}, {4, 5, 6}});
//
// The host computes the values, so they work on every device. Random numbers are in gradus/tensor/random.hpp.
#pragma once

#include <algorithm>         // std::copy, std::min
#include <array>             // std::array
#include <cmath>             // std::ceil
#include <concepts>          // std::integral, std::same_as
#include <cstddef>           // std::size_t
#include <cstdint>           // std::int64_t, std::uint64_t
#include <initializer_list>  // std::initializer_list
#include <limits>            // std::numeric_limits
#include <memory>            // std::make_unique_for_overwrite
#include <span>              // std::span
#include <type_traits>       // std::conditional_t, std::remove_const_t

#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/index.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/tensor/detail/host/fill.hpp"
#include "gradus/tensor/tensor.hpp"

namespace gradus {

/// A tensor of zeros.
template <class Element, class Layout = row_major, class Device, detail::shape_variable Shape>
[[nodiscard]] auto zeros(Device& device, const Shape& shape, error_location where = error_location::current()) {
  const auto extents = detail::extents_of_shape(shape, where);
  return tensor<Element, decltype(extents)::rank, Layout, Device>{device, extents, where};
}

/// The same for a shape in braces: `zeros<float>(device, {2, 3})`. @throws shape_error when an extent is negative
template <class Element, class Layout = row_major, class Device, std::size_t Rank>
[[nodiscard]] auto zeros(Device& device, const index_t (&shape)[Rank],
                         error_location where = error_location::current()) {
  return zeros<Element, Layout>(device, detail::extents_of_list(shape, where), where);
}

/// A tensor with one value in all elements.
template <class Element, class Layout = row_major, class Device, detail::shape_variable Shape>
[[nodiscard]] auto full(Device& device, const Shape& shape, Element value,
                        error_location where = error_location::current()) {
  return detail::tensor_of<Element, Layout>(
      device, detail::extents_of_shape(shape, where), [value](index_t) { return value; }, where);
}

/// The same for a shape in braces: `full<float>(device, {2, 3}, 0.5F)`. @throws shape_error when an extent is negative
template <class Element, class Layout = row_major, class Device, std::size_t Rank>
[[nodiscard]] auto full(Device& device, const index_t (&shape)[Rank], Element value,
                        error_location where = error_location::current()) {
  return full<Element, Layout>(device, detail::extents_of_list(shape, where), value, where);
}

/// A tensor of ones.
template <class Element, class Layout = row_major, class Device, detail::shape_variable Shape>
[[nodiscard]] auto ones(Device& device, const Shape& shape, error_location where = error_location::current()) {
  return full<Element, Layout>(device, shape, static_cast<Element>(1), where);
}

/// The same for a shape in braces: `ones<float>(device, {2, 3})`. @throws shape_error when an extent is negative
template <class Element, class Layout = row_major, class Device, std::size_t Rank>
[[nodiscard]] auto ones(Device& device, const index_t (&shape)[Rank],
                        error_location where = error_location::current()) {
  return full<Element, Layout>(device, shape, static_cast<Element>(1), where);
}

/// A matrix with ones on the main diagonal and zeros elsewhere: `eye<float>(device, {2, 3})`.
/// @throws shape_error when an extent is negative
template <class Element, class Device>
[[nodiscard]] auto eye(Device& device, const index_t (&shape)[2], error_location where = error_location::current()) {
  const index_t next = shape[1] + 1;  // from one element of the diagonal to the next
  const index_t end = shape[1] * std::min(shape[0], shape[1]);
  return detail::tensor_of<Element, row_major>(
      device, detail::extents_of_list(shape, where),
      [=](index_t i) { return static_cast<Element>(i < end && i % next == 0 ? 1 : 0); }, where);
}

/// The square matrix of `size` rows with ones on the main diagonal. @throws shape_error when the size is negative
template <class Element, class Device>
[[nodiscard]] auto eye(Device& device, index_t size, error_location where = error_location::current()) {
  return eye<Element>(device, {size, size}, where);
}

/// The numbers of arange: start, start + step, ... below `stop`, or above it if the step is negative.
template <class Number>
struct arange_options {
  Number start = 0;  ///< the first number
  Number stop = 0;   ///< the end, which is not one of the numbers
  Number step = 1;   ///< the distance of neighbors, not 0
};

namespace detail {

/// The type in which arange and linspace compute elements.
template <class Element>
using arange_number = std::conditional_t<std::integral<Element>, std::int64_t, double>;

/// The number of steps from start to stop, of which the last may be shorter.
[[nodiscard]] inline double steps_between(double start, double stop, double step) {
  return std::ceil((stop - start) / step);
}
[[nodiscard]] inline double steps_between(std::int64_t start, std::int64_t stop, std::int64_t step) {
  if (step > 0 ? stop <= start : stop >= start) {
    return 0;
  }
  const auto distance = step > 0 ? static_cast<std::uint64_t>(stop) - static_cast<std::uint64_t>(start)
                                 : static_cast<std::uint64_t>(start) - static_cast<std::uint64_t>(stop);
  const auto size = step > 0 ? static_cast<std::uint64_t>(step) : 0 - static_cast<std::uint64_t>(step);
  return static_cast<double>((distance - 1) / size + 1);
}

/// True if an element can hold the number, rounded.
template <class Element, class Number>
[[nodiscard]] bool fits(Number number) {
  if constexpr (std::integral<Element>) {
    return number >= static_cast<Number>(std::numeric_limits<Element>::min()) &&
           number <= static_cast<Number>(std::numeric_limits<Element>::max());
  } else {
    return is_finite(static_cast<Element>(number));
  }
}

}  // namespace detail

/// A vector of evenly spaced numbers, as numpy.arange: `arange<float>(device, {.start = 1, .stop = 2, .step = 0.25})`
/// is 1, 1.25, 1.5, 1.75. The vector has ceil((stop - start) / step) elements, or none if that is negative; element i
/// is start + i * step, computed in double (whole numbers in std::int64_t) and rounded once. With a step that is not a
/// binary fraction the number of elements depends on rounding: use linspace.
/// @throws configuration_error when the step is 0, a number is not finite, or an element type cannot hold a number
template <class Element, class Device>
[[nodiscard]] auto arange(Device& device, const arange_options<detail::arange_number<Element>>& options,
                          error_location where = error_location::current()) {
  static_assert(real_element<Element> || (std::integral<Element> && !std::same_as<Element, bool>),
                "gradus::arange: float, double or whole numbers: use cast<...>(x)");
  using number = detail::arange_number<Element>;
  const auto [start, stop, step] = options;
  const double count = detail::steps_between(start, stop, step == 0 ? number{1} : step);
  constexpr double most = 0x1.0p62;
  if (step == 0 || !is_finite(static_cast<double>(start)) || !is_finite(static_cast<double>(step)) || !(count < most)) {
    raise<configuration_error>("arange", "finite numbers and a step that is not 0",
                               {"start ", start, ", stop ", stop, " and step ", step}, {}, where);
  }
  const auto size = count > 0 ? static_cast<index_t>(count) : index_t{0};
  if (size > 0 &&
      !(detail::fits<Element>(start) && detail::fits<Element>(start + static_cast<number>(size - 1) * step))) {
    raise<configuration_error>("arange", {"numbers that ", element_name<Element>, " can hold"},
                               {"start ", start, ", stop ", stop, " and step ", step}, "use another element type",
                               where);
  }
  return detail::tensor_of<Element, row_major>(
      device, extents<1>{size},
      [&](index_t i) { return static_cast<Element>(options.start + static_cast<number>(i) * options.step); }, where);
}

/// The whole numbers 0, 1, ..., stop - 1; none if stop is negative: `arange<std::int64_t>(device, 10)`.
/// @throws configuration_error when the element type cannot hold the last one
template <class Element, class Device>
[[nodiscard]] auto arange(Device& device, index_t stop, error_location where = error_location::current()) {
  using number = detail::arange_number<Element>;
  return arange<Element>(device, arange_options<number>{.stop = static_cast<number>(stop)}, where);
}

/// The numbers of linspace.
struct linspace_options {
  double start = 0;    ///< the first number
  double stop = 1;     ///< the last number
  index_t count = 50;  ///< how many, at least 0
};

/// A vector of `count` evenly spaced numbers from start to stop, as numpy.linspace: `linspace<float>(device, {.start =
/// -1, .stop = 1, .count = 5})`. Element i is start + i * ((stop - start) / (count - 1)), computed in double and
/// rounded once. The first element is start and the last is stop, exactly; a single element is start.
/// @throws shape_error when the count is negative
/// @throws configuration_error when start, stop or their difference is not finite
template <class Element, class Device>
[[nodiscard]] auto linspace(Device& device, const linspace_options& options,
                            error_location where = error_location::current()) {
  static_assert(explain_real_element<Element>());
  if (options.count < 0) {
    raise<shape_error>("linspace", "a count of at least 0", {options.count}, {}, where);
  }
  if (!is_finite(options.start) || !is_finite(options.stop) || !is_finite(options.stop - options.start)) {
    raise<configuration_error>("linspace", "finite numbers with a finite difference",
                               {"start ", options.start, " and stop ", options.stop}, {}, where);
  }
  const index_t last = options.count - 1;
  const double step = last > 0 ? (options.stop - options.start) / static_cast<double>(last) : 0.0;
  return detail::tensor_of<Element, row_major>(
      device, extents<1>{options.count},
      [&](index_t i) {
        return static_cast<Element>(i == last && i > 0 ? options.stop : options.start + static_cast<double>(i) * step);
      },
      where);
}

/// A tensor with a copy of `values`, which are in row-major order: the last axis is the fastest, whatever the layout
/// is. `from_span(device, std::span{numbers}, {2, 3})`.
/// @throws shape_error when the number of values is not that of the shape
template <class Layout = row_major, class Element, std::size_t Count, class Device, detail::shape_variable Shape>
[[nodiscard]] auto from_span(Device& device, std::span<Element, Count> values, const Shape& shape,
                             error_location where = error_location::current()) {
  using element = std::remove_const_t<Element>;
  const auto extents = detail::extents_of_shape(shape, where);
  const index_t size = at_call(where, [&] { return extents.size(); });
  if (static_cast<std::size_t>(size) != values.size()) {
    raise<shape_error>("from_span", {size, " values for the shape ", to_string(extents)}, {values.size()}, {}, where);
  }
  return detail::tensor_of<element, Layout>(
      device, extents, [values](index_t i) { return values[static_cast<std::size_t>(i)]; }, where);
}

/// The same for a shape in braces. @throws shape_error when the number of values is not that of the shape
template <class Layout = row_major, class Element, std::size_t Count, class Device, std::size_t Rank>
[[nodiscard]] auto from_span(Device& device, std::span<Element, Count> values, const index_t (&shape)[Rank],
                             error_location where = error_location::current()) {
  return from_span<Layout>(device, values, detail::extents_of_list(shape, where), where);
}

namespace detail {

template <class Element, int Rank>
struct nested_list {
  using type = std::initializer_list<typename nested_list<Element, Rank - 1>::type>;
};
template <class Element>
struct nested_list<Element, 0> {
  using type = Element;
};

/// Writes the extents of a list, taken from its first entries.
template <class List>
void put_list_extents(index_t* extents, const List& list) {
  if constexpr (requires { list.begin(); }) {
    *extents = static_cast<index_t>(list.size());
    if (list.size() > 0) {
      put_list_extents(extents + 1, *list.begin());
    }
  }
}

/// Copies the elements of a list. @throws shape_error when a list is not as long as the first of its depth
template <class Element, class List>
Element* copy_list(Element* out, const List& list, const index_t* extents, error_location where) {
  if constexpr (requires { list.begin(); }) {
    if (static_cast<index_t>(list.size()) != *extents) {
      raise<shape_error>("from_list", {"lists of one length, ", *extents, " as the first"}, {list.size(), " entries"},
                         {}, where);
    }
    for (const auto& entry : list) {
      out = copy_list(out, entry, extents + 1, where);
    }
    return out;
  } else {
    *out = list;
    return out + 1;
  }
}

}  // namespace detail

/// A tensor with the values of nested lists, one for each axis, of rank 1 to 4: `from_list<float, 2>(device, {{1, 2},
/// {3, 4}})`. For images the lists are those of n, c, h, w in every layout.
/// @throws shape_error when the lists of one depth have different lengths
template <class Element, int Rank, class Layout = row_major, class Device>
[[nodiscard]] auto from_list(Device& device, const typename detail::nested_list<Element, Rank>::type& values,
                             error_location where = error_location::current()) {
  static_assert(Rank >= 1 && Rank <= 4, "gradus::from_list: nested lists of rank 1 to 4: use from_span");
  std::array<index_t, static_cast<std::size_t>(Rank)> sizes{};
  detail::put_list_extents(sizes.data(), values);
  const extents<Rank> shape{sizes};
  const auto count = static_cast<std::size_t>(shape.size());
  // Lists that are longer than the first of their depth are refused before they are written.
  const auto elements = std::make_unique_for_overwrite<Element[]>(count);
  detail::copy_list(elements.get(), values, sizes.data(), where);
  return from_span<Layout>(device, std::span<const Element>{elements.get(), count}, shape, where);
}

}  // namespace gradus

// SPDX-License-Identifier: BSL-1.0
//
// Tensors of random numbers. The element with the row-major index i is a function of the stream and i: the same on
// every device, in every layout and for any number of threads. The host computes it.
//
//   const auto x = gradus::random_normal<float>(device, {32, 10}, gradus::random_stream{7, "x"});
//
// Tensors of one stream share their numbers: give each tensor a stream with a name of its own.
#pragma once

#include <cmath>    // std::nextafter
#include <cstddef>  // std::size_t
#include <cstdint>  // std::uint64_t

#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/random.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/tensor/detail/host/fill.hpp"
#include "gradus/tensor/tensor.hpp"

namespace gradus {

/// The interval of random_uniform.
struct uniform_options {
  double low = 0;   ///< the smallest number
  double high = 1;  ///< above all numbers
};

/// The distribution of random_normal.
struct normal_options {
  double mean = 0;       ///< the expected value
  double deviation = 1;  ///< the standard deviation, at least 0
};

/// A tensor of numbers that are uniformly distributed on [low, high). The element with the row-major index i is
/// low + (high - low) * stream.uniform(i), computed in double and rounded once; a number that is rounded to `high` is
/// replaced by the element below it.
/// @throws configuration_error when low, high or their difference is not finite, or low is not below high as elements
template <class Element, class Layout = row_major, class Device, detail::shape_variable Shape>
[[nodiscard]] auto random_uniform(Device& device, const Shape& shape, const random_stream& stream,
                                  const uniform_options& options = {},
                                  error_location where = error_location::current()) {
  static_assert(explain_real_element<Element>());
  const auto low = static_cast<Element>(options.low);
  const auto high = static_cast<Element>(options.high);
  if (!is_finite(low) || !is_finite(high) || !(low < high) || !is_finite(options.high - options.low)) {
    raise<configuration_error>("random_uniform", "finite numbers, low < high, and a finite difference",
                               {"low ", options.low, " and high ", options.high}, {}, where);
  }
  const double width = options.high - options.low;
  return detail::tensor_of<Element, Layout>(
      device, detail::extents_of_shape(shape, where),
      [&](index_t i) {
        const auto value = static_cast<Element>(options.low + width * stream.uniform(static_cast<std::uint64_t>(i)));
        return value < high ? value : std::nextafter(high, low);
      },
      where);
}

/// The same for a shape in braces: `random_uniform<float>(device, {2, 3}, stream)`.
template <class Element, class Layout = row_major, class Device, std::size_t Rank>
[[nodiscard]] auto random_uniform(Device& device, const index_t (&shape)[Rank], const random_stream& stream,
                                  const uniform_options& options = {},
                                  error_location where = error_location::current()) {
  return random_uniform<Element, Layout>(device, detail::extents_of_list(shape, where), stream, options, where);
}

/// A tensor of numbers with a normal distribution. The element with the row-major index i is
/// mean + deviation * stream.normal(i), computed in double and rounded once.
/// @throws configuration_error when mean and deviation are not finite, or the deviation is negative
template <class Element, class Layout = row_major, class Device, detail::shape_variable Shape>
[[nodiscard]] auto random_normal(Device& device, const Shape& shape, const random_stream& stream,
                                 const normal_options& options = {}, error_location where = error_location::current()) {
  static_assert(explain_real_element<Element>());
  if (!is_finite(options.mean) || !is_finite(options.deviation) || options.deviation < 0) {
    raise<configuration_error>("random_normal", "finite numbers, a deviation of at least 0",
                               {"mean ", options.mean, " and deviation ", options.deviation}, {}, where);
  }
  return detail::tensor_of<Element, Layout>(
      device, detail::extents_of_shape(shape, where),
      [&](index_t i) {
        return static_cast<Element>(options.mean + options.deviation * stream.normal(static_cast<std::uint64_t>(i)));
      },
      where);
}

/// The same for a shape in braces: `random_normal<float>(device, {2, 3}, stream)`.
template <class Element, class Layout = row_major, class Device, std::size_t Rank>
[[nodiscard]] auto random_normal(Device& device, const index_t (&shape)[Rank], const random_stream& stream,
                                 const normal_options& options = {}, error_location where = error_location::current()) {
  return random_normal<Element, Layout>(device, detail::extents_of_list(shape, where), stream, options, where);
}

}  // namespace gradus

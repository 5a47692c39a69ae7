// SPDX-License-Identifier: BSL-1.0
//
// The contract of dropout kernels. The mask depends on positions in the data set, not on the machine.
#pragma once

#include <cmath>    // std::ldexp, std::floor
#include <cstdint>  // std::uint32_t, std::uint64_t

#include "gradus/core/index.hpp"
#include "gradus/core/random.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

/// Dropout drops an element whose 32-bit random word is below this threshold: rate * 2^32, rounded down.
/// @pre 0 <= rate < 1
[[nodiscard]] inline std::uint32_t dropout_threshold(double rate) noexcept {
  return static_cast<std::uint32_t>(std::ldexp(rate, 32));
}

/// True if dropout keeps an element. `index` is its index in the example in the order (c, h, w), for every layout. Four
/// adjacent indices share one block of the random stream. At most 2^32 examples of 2^34 elements.
[[nodiscard]] constexpr bool dropout_keeps(const random_stream& stream, std::uint64_t step, std::uint64_t example,
                                           index_t index, std::uint32_t threshold) noexcept {
  const auto position = static_cast<std::uint64_t>(index);
  return stream.block((example << 32U) + position / 4, step)[position % 4] >= threshold;
}

/// A requirement of `has_dropout`: dropout_forward overwrites y with keep * x / (1 - rate), both (N, C, H, W), where
/// keep is 1 where dropout_keeps and 0 elsewhere. Unless it is null, mask (N * C * H * W) receives keep in the memory
/// order of y. Image n of x is example first_example + n. A NaN stays NaN even where it is dropped. y may be x.
template <class Device, class Element, class Layout>
concept has_dropout_forward = requires(Device& device, image_view<const Element, Layout, Device> x,
                                       image_view<Element, Layout, Device> y, double rate, const random_stream& stream,
                                       std::uint64_t step, std::uint64_t first_example, std::uint8_t* mask) {
  dropout_forward(device, x, y, rate, stream, step, first_example, mask);
};

/// A requirement of `has_dropout`: dropout_backward computes dx = scale * mask * dy, or dx += that if `accumulate`,
/// over `count` elements in memory order; scale is 1 / (1 - rate), and mask is that of forward. A NaN stays NaN even
/// where it is dropped. dx may be dy.
template <class Device, class Element>
concept has_dropout_backward = requires(Device& device, index_t count, const Element* dy, const std::uint8_t* mask,
                                        double scale, Element* dx, bool accumulate) {
  dropout_backward(device, count, dy, mask, scale, dx, accumulate);
};

/// A device that drops elements; nn::dropout asks for it.
template <class Device, class Element, class Layout>
concept has_dropout = has_dropout_forward<Device, Element, Layout> && has_dropout_backward<Device, Element>;

/// Says which overload of `has_dropout` the device misses. Always true when it compiles.
template <class Device, class Element, class Layout>
consteval bool explain_dropout() {
  static_assert(has_dropout_forward<Device, Element, Layout>,
                "gradus: the device lacks a kernel of the network: overload void dropout_forward(Device&, x, y, double "
                "rate, const random_stream&, std::uint64_t step, std::uint64_t first_example, std::uint8_t* mask); for "
                "gradus::cuda include gradus/kernels/cuda.cuh");
  static_assert(has_dropout_backward<Device, Element>,
                "gradus: the device lacks a kernel of the network: overload void dropout_backward(Device&, index_t "
                "count, const Element* dy, const std::uint8_t* mask, double scale, Element* dx, bool accumulate); for "
                "gradus::cuda include gradus/kernels/cuda.cuh");
  return true;
}

}  // namespace gradus::kernels

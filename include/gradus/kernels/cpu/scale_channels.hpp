// SPDX-License-Identifier: BSL-1.0
//
// Products of images and factors of their channels on the CPU.
#pragma once

#include <algorithm>  // std::max, std::min
#include <cstddef>    // std::size_t

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/cpu/detail/simd/packets.hpp"
#include "gradus/kernels/cpu/elementwise.hpp"
#include "gradus/kernels/scale_channels.hpp"

namespace gradus::kernels::detail {

/// Channels of one task in nhwc: two cache lines of float.
inline constexpr index_t summed_channels = 32;

}  // namespace gradus::kernels::detail

#define GRADUS_TARGET_BODY "gradus/kernels/cpu/detail/scale_channels/scale_channels_body.hpp"
#include "gradus/simd/for_each_target.hpp"

namespace gradus::kernels {

namespace detail {

/// to (+)= factors * x
template <class Element>
void multiply_channels(cpu& device, const scale_channels_shape& s, const Element* x, const Element* factors,
                       Element* to, bool accumulate) {
  if (s.pixels == 1) {
    for_each_range(device, s.examples * s.channels, [&](auto target, index_t begin, index_t end) {
      multiply_run(target, begin, end, x, factors, to, accumulate);
    });
    return;
  }
  const auto multiply = [&](auto target, index_t begin, index_t end) {
    multiply_rows(target, s, begin, end, x, factors, to, accumulate);
  };
  for_each_range(device, s.examples * (s.channels_last ? s.pixels : s.channels), multiply,
                 s.channels_last ? s.channels : s.pixels);
}

}  // namespace detail

/// Implements has_scale_channels_forward on the CPU.
template <network_element Element>
void scale_channels_forward(cpu& device, const scale_channels_shape& shape, const Element* x, const Element* factors,
                            Element* y) {
  detail::multiply_channels(device, shape, x, factors, y, false);
}

/// Implements has_scale_channels_backward on the CPU.
template <network_element Element>
void scale_channels_backward(cpu& device, const scale_channels_shape& shape, const Element* x, const Element* factors,
                             const Element* dy, const scale_channels_gradients<Element>& gradients) {
  const scale_channels_shape& s = shape;
  if (gradients.dx != nullptr) {
    detail::multiply_channels(device, s, dy, factors, gradients.dx, gradients.accumulate_dx);
  }
  if (gradients.dfactors == nullptr) {
    return;
  }
  if (s.pixels == 1) {
    detail::multiply_channels(device, s, dy, x, gradients.dfactors, gradients.accumulate_dfactors);
    return;
  }
  const index_t channels = s.channels_last ? detail::summed_channels : 1;  // of one sum
  const index_t parts = (s.channels + channels - 1) / channels;
  const auto sum = [&](auto target, index_t begin, index_t end) {
    sum_products(target, s, begin, end, x, dy, gradients.dfactors, gradients.accumulate_dfactors);
  };
  detail::for_each_range(device, s.examples * parts, sum, s.pixels * channels);
}

}  // namespace gradus::kernels

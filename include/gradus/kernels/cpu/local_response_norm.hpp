// SPDX-License-Identifier: BSL-1.0
//
// Local response normalization across channels on the CPU.
#pragma once

#include <algorithm>    // std::max, std::min
#include <array>        // std::array
#include <string>       // std::to_string
#include <type_traits>  // std::type_identity_t

#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/norm/local_response_norm.hpp"
#include "gradus/kernels/local_response_norm.hpp"
#include "gradus/layout/layout_policy.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

namespace detail {

template <class Layout>
consteval bool explain_response_layout() {
  static_assert(Layout::order[0] == axis::n && (Layout::order[1] == axis::c || Layout::order[3] == axis::c),
                "gradus: local response normalization on the CPU needs a layout with channels just after the images or "
                "last");
  return true;
}

/// Checks the parameters and limits the radius to the number of channels; a larger radius gives the same result.
[[nodiscard]] inline local_response_norm_parameters checked_response(const local_response_norm_parameters& parameters,
                                                                     index_t channels) {
  local_response_norm_parameters result = parameters;
  result.radius = std::min(parameters.radius, std::max(index_t{0}, channels - 1));
  if (parameters.radius < 0 || !response_fits_pixel(channels, result.radius) || response_tile(result.radius) == 0) {
    raise<configuration_error>(
        "local_response_norm",
        "a radius of at least 0 and channels + 2 * radius of at most " + std::to_string(response_capacity),
        "radius " + std::to_string(parameters.radius) + " with " + std::to_string(channels) + " channels",
        "the radius counts channels to each side; 2 is the usual value");
  }
  return result;
}

/// Runs a pass on all threads, for ranges of pixels if channels are adjacent, else for tiles of adjacent pixels.
template <class Layout, class Element>
void respond(cpu& device, const image_extents& shape, const local_response_norm_parameters& parameters,
             const response_arrays<Element>& arrays) {
  static_assert(explain_response_layout<Layout>());
  const response<computed<Element>> rule{checked_response(parameters, shape.c)};
  const index_t count = shape.h * shape.w;
  // Images are the slowest axis, so for planes of one pixel the channels are adjacent in every layout.
  if (Layout::order[3] == axis::c || count == 1) {
    const index_t grain = std::max(index_t{1}, 8192 / std::max(index_t{1}, shape.c));
    device.parallel_for(shape.n * count, grain, [&](index_t begin, index_t end) {
      on_target([&](auto target) { respond_pixels(target, rule, shape.c, begin, end, arrays); });
    });
    return;
  }
  const index_t tile = response_tile(rule.radius);
  const index_t tiles = (count + tile - 1) / tile;
  const index_t grain = std::max(index_t{1}, 8192 / std::max(index_t{1}, tile * shape.c));
  device.parallel_for(shape.n * tiles, grain, [&](index_t begin, index_t end) {
    on_target([&](auto target) {
      for (index_t i = begin; i < end; ++i) {
        const index_t first = i % tiles * tile;
        respond_planes(target, rule, shape.c, count, i / tiles * shape.c * count + first, std::min(tile, count - first),
                       arrays);
      }
    });
  });
}

}  // namespace detail

/// Implements has_local_response_norm_forward on the CPU.
/// @throws configuration_error when the radius is negative, or channels + 2 * radius is above 4096
template <network_element Element, layout_policy Layout>
void local_response_norm_forward(cpu& device, std::type_identity_t<image_view<const Element, Layout, cpu>> x,
                                 image_view<Element, Layout, cpu> y, const local_response_norm_parameters& parameters) {
  detail::respond<Layout, Element>(device, y.extents(), parameters, {.x = x.data(), .to = y.data()});
}

/// Implements has_local_response_norm_backward on the CPU.
/// @throws configuration_error when the radius is negative, or channels + 2 * radius is above 4096
template <network_element Element, layout_policy Layout>
void local_response_norm_backward(cpu& device, std::type_identity_t<image_view<const Element, Layout, cpu>> x,
                                  std::type_identity_t<image_view<const Element, Layout, cpu>> dy,
                                  image_view<Element, Layout, cpu> dx, const local_response_norm_parameters& parameters,
                                  const std::type_identity_t<backward_epilogue<Element>>& epilogue) {
  detail::respond<Layout, Element>(device, dx.extents(), parameters,
                                   {x.data(), dx.data(), dy.data(), epilogue.relu_output, epilogue.accumulate});
}

}  // namespace gradus::kernels

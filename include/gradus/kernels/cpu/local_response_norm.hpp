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

/// Runs on all threads: pixels(begin, end) for ranges of pixels if channels are adjacent, else planes(begin, end, tiles
/// of an image) for ranges of tiles of adjacent pixels.
template <class Layout, class Pixels, class Planes>
void for_each_response(cpu& device, const image_extents& shape, index_t tile, const Pixels& pixels,
                       const Planes& planes) {
  const index_t count = shape.h * shape.w;
  // Images are the slowest axis, so for planes of one pixel the channels are adjacent in every layout.
  if (Layout::order[3] == axis::c || count == 1) {
    const index_t grain = std::max(index_t{1}, 8192 / std::max(index_t{1}, shape.c));
    device.parallel_for(shape.n * count, grain, [&](index_t begin, index_t end) { pixels(begin, end); });
    return;
  }
  const index_t tiles = (count + tile - 1) / tile;
  const index_t grain = std::max(index_t{1}, 8192 / std::max(index_t{1}, tile * shape.c));
  device.parallel_for(shape.n * tiles, grain, [&](index_t begin, index_t end) { planes(begin, end, tiles); });
}

}  // namespace detail

/// See has_local_response_norm_forward.
/// @throws configuration_error when the radius is negative, or channels + 2 * radius is above 4096
template <network_element Element, layout_policy Layout>
void local_response_norm_forward(cpu& device, std::type_identity_t<image_view<const Element, Layout, cpu>> x,
                                 image_view<Element, Layout, cpu> y, const local_response_norm_parameters& parameters) {
  static_assert(detail::explain_response_layout<Layout>());
  const image_extents shape{y.extents()};
  const detail::response<detail::computed<Element>> rule{detail::checked_response(parameters, shape.c)};
  const index_t pixels = shape.h * shape.w;
  constexpr index_t tile = 64;
  detail::for_each_response<Layout>(
      device, shape, tile,
      [&](index_t begin, index_t end) {
        detail::response_buffer<detail::computed<Element>> squares;
        for (index_t i = begin * shape.c; i < end * shape.c; i += shape.c) {
          detail::respond_pixel(rule, shape.c, x.data() + i, y.data() + i, squares);
        }
      },
      [&](index_t begin, index_t end, index_t tiles) {
        for (index_t i = begin; i < end; ++i) {
          const index_t first = i % tiles * tile;
          const index_t offset = i / tiles * shape.c * pixels + first;
          detail::respond_planes(rule, shape.c, pixels, std::min(tile, pixels - first), x.data() + offset,
                                 y.data() + offset);
        }
      });
}

/// See has_local_response_norm_backward.
/// @throws configuration_error when the radius is negative, or channels + 2 * radius is above 4096
template <network_element Element, layout_policy Layout>
void local_response_norm_backward(cpu& device, std::type_identity_t<image_view<const Element, Layout, cpu>> x,
                                  std::type_identity_t<image_view<const Element, Layout, cpu>> dy,
                                  image_view<Element, Layout, cpu> dx, const local_response_norm_parameters& parameters,
                                  const std::type_identity_t<backward_epilogue<Element>>& epilogue) {
  static_assert(detail::explain_response_layout<Layout>());
  const image_extents shape{dx.extents()};
  const detail::response<detail::computed<Element>> rule{detail::checked_response(parameters, shape.c)};
  const index_t pixels = shape.h * shape.w;
  const index_t tile = detail::response_tile(rule.radius);
  detail::for_each_response<Layout>(
      device, shape, tile,
      [&](index_t begin, index_t end) {
        detail::response_buffers<detail::computed<Element>> buffers;
        for (index_t i = begin * shape.c; i < end * shape.c; i += shape.c) {
          detail::respond_gradients_pixel(rule, shape.c, x.data() + i, dy.data() + i, dx.data() + i, epilogue, i,
                                          buffers);
        }
      },
      [&](index_t begin, index_t end, index_t tiles) {
        detail::response_buffers<detail::computed<Element>> buffers;
        for (index_t i = begin; i < end; ++i) {
          const index_t first = i % tiles * tile;
          const index_t offset = i / tiles * shape.c * pixels + first;
          detail::respond_gradients_planes(rule, shape.c, pixels, std::min(tile, pixels - first), x.data() + offset,
                                           dy.data() + offset, dx.data() + offset, epilogue, offset, buffers);
        }
      });
}

}  // namespace gradus::kernels

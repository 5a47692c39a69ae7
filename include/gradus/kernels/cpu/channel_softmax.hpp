// SPDX-License-Identifier: BSL-1.0
//
// Softmax over channels on the CPU.
#pragma once

#include <algorithm>    // std::max, std::min
#include <array>        // std::array
#include <cmath>        // std::log
#include <cstddef>      // std::byte, std::size_t
#include <type_traits>  // std::is_same_v

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/channel_softmax.hpp"
#include "gradus/kernels/cpu/detail/copy/move.hpp"
#include "gradus/kernels/cpu/detail/softmax/loops.hpp"

namespace gradus::kernels::detail {

/// Adjacent pixels whose channels are read together.
inline constexpr index_t softmax_pixels = 64;

}  // namespace gradus::kernels::detail

#define GRADUS_TARGET_BODY "gradus/kernels/cpu/detail/softmax/channels_body.hpp"
#include "gradus/simd/for_each_target.hpp"

namespace gradus::kernels {

namespace detail {

/// Calls rows(target, offset, count) for pixels with adjacent channels, or pixels(target, offset, count) for adjacent
/// pixels, both for groups of up to softmax_pixels, on all threads.
template <class Rows, class Pixels>
void for_each_softmax(cpu& device, const channel_softmax_shape& s, const Rows& rows, const Pixels& pixels) {
  if (s.channels == 0) {
    return;
  }
  if (s.inner == 1) {
    // Long rows are few in a task, short ones fill the groups.
    const index_t grain = s.channels <= softmax_pixels ? softmax_pixels * std::max(index_t{1}, 128 / s.channels)
                                                       : std::max(index_t{1}, 8192 / s.channels);
    device.parallel_for(s.outer, grain, [&](index_t begin, index_t end) {
      on_target([&](auto target) {
        for (index_t i = begin; i < end; i += softmax_pixels) {
          rows(target, i * s.channels, std::min(softmax_pixels, end - i));
        }
      });
    });
    return;
  }
  const index_t groups = (s.inner + softmax_pixels - 1) / softmax_pixels;
  const index_t grain = std::max(index_t{1}, 8192 / (s.channels * softmax_pixels));
  device.parallel_for(s.outer * groups, grain, [&](index_t begin, index_t end) {
    on_target([&](auto target) {
      for (index_t i = begin; i < end; ++i) {
        const index_t first = i % groups * softmax_pixels;
        pixels(target, i / groups * s.channels * s.inner + first, std::min(softmax_pixels, s.inner - first));
      }
    });
  });
}

/// Softmax of `count` pixels, at most softmax_pixels, with adjacent channels, at most softmax_pixels: transposed, so
/// that each SIMD lane has a pixel of its own.
template <class Target, class Element>
void softmax_of_short_rows(Target target, bool logarithm, index_t channels, index_t count, const Element* x,
                           Element* y) noexcept {
  constexpr auto edge = static_cast<std::size_t>(softmax_pixels);
  std::array<Element, edge * edge> block;
  std::array<index_t, edge> of_pixel;
  std::array<index_t, edge> of_channel;
  for (index_t i = 0; i < softmax_pixels; ++i) {
    of_pixel[static_cast<std::size_t>(i)] = i * channels;
    of_channel[static_cast<std::size_t>(i)] = i * softmax_pixels;
  }
  constexpr int size = sizeof(Element);
  auto* const bytes = reinterpret_cast<std::byte*>(block.data());
  transpose_elements<size>(channels, count, reinterpret_cast<const std::byte*>(x), of_pixel.data(), bytes,
                           of_channel.data());
  softmax_of_pixels(target, logarithm, channels, softmax_pixels, count, block.data(), block.data());
  transpose_elements<size>(count, channels, bytes, of_channel.data(), reinterpret_cast<std::byte*>(y), of_pixel.data());
}

}  // namespace detail

/// Implements has_channel_softmax_forward on the CPU.
template <network_element Element>
void channel_softmax_forward(cpu& device, const channel_softmax_shape& shape, const Element* x, Element* y) {
  const index_t channels = shape.channels;
  detail::for_each_softmax(
      device, shape,
      [&](auto target, index_t at, index_t count) {
        if (channels <= detail::softmax_pixels) {
          detail::softmax_of_short_rows(target, shape.logarithm, channels, count, x + at, y + at);
          return;
        }
        for (index_t i = 0; i < count; ++i, at += channels) {
          if (shape.logarithm) {
            log_softmax_of_row(target, channels, x + at, y + at);
          } else {
            const auto largest = largest_of(target, channels, x + at);
            softmax_of_row(target, channels, x + at, largest, 1.0, index_t{-1}, y + at);
          }
        }
      },
      [&](auto target, index_t at, index_t count) {
        softmax_of_pixels(target, shape.logarithm, channels, shape.inner, count, x + at, y + at);
      });
}

/// Implements has_channel_softmax_backward on the CPU.
template <network_element Element>
void channel_softmax_backward(cpu& device, const channel_softmax_shape& shape, const Element* y, const Element* dy,
                              Element* dx, bool accumulate) {
  const index_t channels = shape.channels;
  detail::for_each_softmax(
      device, shape,
      [&](auto target, index_t at, index_t count) {
        for (index_t i = 0; i < count; ++i, at += channels) {
          softmax_gradient_of_row(target, shape.logarithm, channels, y + at, dy + at, dx + at, accumulate);
        }
      },
      [&](auto target, index_t at, index_t count) {
        softmax_gradient_of_pixels(target, shape.logarithm, channels, shape.inner, count, y + at, dy + at, dx + at,
                                   accumulate);
      });
}

}  // namespace gradus::kernels

// SPDX-License-Identifier: BSL-1.0
//
// Local response normalisation across channels on the CPU.
// Module: kernels. Depends on: tensor.
#pragma once

#include <algorithm>    // std::max, std::min
#include <array>        // std::array
#include <cmath>        // std::pow, std::sqrt
#include <cstddef>      // std::size_t
#include <type_traits>  // std::type_identity_t

#include "gradus/core/element.hpp"                 // real_element
#include "gradus/core/extents.hpp"                 // image_extents
#include "gradus/core/index.hpp"                   // index_t
#include "gradus/device/cpu.hpp"                   // cpu
#include "gradus/kernels/conv2d.hpp"               // backward_epilogue
#include "gradus/kernels/local_response_norm.hpp"  // local_response_norm_parameters
#include "gradus/layout/layout_policy.hpp"         // axis, layout_policy
#include "gradus/layout/mapping.hpp"               // dense_mapping
#include "gradus/tensor/tensor_view.hpp"           // image_view

namespace gradus::kernels {

namespace detail {

/// d^-beta; the usual beta of 0.75 without a power.
template <class Element>
struct inverse_power {
  explicit inverse_power(double exponent) noexcept
      : beta{static_cast<Element>(exponent)}, three_quarters{exponent == 0.75} {}

  Element operator()(Element d) const noexcept {
    if (three_quarters) {
      const Element root = std::sqrt(d);
      return Element{1} / (root * std::sqrt(root));
    }
    return std::pow(d, -beta);
  }

  Element beta;
  bool three_quarters;
};

inline constexpr index_t response_tile = 16;  ///< pixels that are worked on together

/// Calls body(offset of pixel 0 in channel 0, pixels) for tiles of pixels that are adjacent in memory (planes) or
/// `pixel stride` apart (channels last), on all threads.
template <class Layout, class Body>
void for_each_response_tile(cpu& device, const image_extents& shape, const Body& body) {
  const dense_mapping<Layout> at{shape};
  const index_t pixels = shape.h * shape.w;
  const index_t tiles = (pixels + response_tile - 1) / response_tile;
  const index_t grain = std::max(index_t{1}, 8192 / std::max(index_t{1}, response_tile * shape.c));
  device.parallel_for(shape.n * tiles, grain, [&](index_t begin, index_t end) {
    for (index_t tile = begin; tile < end; ++tile) {
      const index_t first = tile % tiles * response_tile;
      body(at(tile / tiles, 0, first / shape.w, first % shape.w), std::min(response_tile, pixels - first));
    }
  });
}

/// The sum over a window of channels that moves up by one channel at a time, for a tile of pixels: `term(channel,
/// pixel)` is summed over [c - radius, c + radius] inside [0, channels). Entries are added anew for every c where the
/// window is short, which loses no digits; long windows move.
template <class Element, class Term>
void window_sums(index_t channels, index_t radius, index_t c, index_t pixels, const Term& term,
                 std::array<Element, static_cast<std::size_t>(response_tile)>& sums) {
  sums.fill(Element{0});
  const index_t last = std::min(channels - 1, c + radius);
  for (index_t j = std::max(index_t{0}, c - radius); j <= last; ++j) {
    for (index_t i = 0; i < pixels; ++i) {
      sums[static_cast<std::size_t>(i)] += term(j, i);
    }
  }
}

}  // namespace detail

/// See kernels/local_response_norm.hpp.
template <real_element Element, layout_policy Layout>
void local_response_norm_forward(cpu& device, std::type_identity_t<image_view<const Element, Layout, cpu>> x,
                                 image_view<Element, Layout, cpu> y, const local_response_norm_parameters& parameters) {
  static_assert(Layout::order[2] != axis::c,
                "gradus: local response normalisation needs the pixels of a channel, or "
                "the channels of a pixel, side by side");
  const image_extents shape{y.extents()};
  const dense_mapping<Layout> at{shape};
  const index_t channel_stride = at.stride(axis::c);
  const index_t pixel_stride = at.stride(axis::w);
  const auto alpha = static_cast<Element>(parameters.alpha);
  const auto k = static_cast<Element>(parameters.k);
  const detail::inverse_power<Element> power{parameters.beta};
  detail::for_each_response_tile<Layout>(device, shape, [&](index_t offset, index_t pixels) {
    const Element* const from = x.data() + offset;
    Element* const to = y.data() + offset;
    std::array<Element, static_cast<std::size_t>(detail::response_tile)> sums;
    for (index_t c = 0; c < shape.c; ++c) {
      detail::window_sums(
          shape.c, parameters.radius, c, pixels,
          [&](index_t j, index_t i) {
            const Element value = from[j * channel_stride + i * pixel_stride];
            return value * value;
          },
          sums);
      for (index_t i = 0; i < pixels; ++i) {
        const index_t place = c * channel_stride + i * pixel_stride;
        to[place] = from[place] * power(k + alpha * sums[static_cast<std::size_t>(i)]);
      }
    }
  });
}

/// See kernels/local_response_norm.hpp.
template <real_element Element, layout_policy Layout>
void local_response_norm_backward(cpu& device, std::type_identity_t<image_view<const Element, Layout, cpu>> x,
                                  std::type_identity_t<image_view<const Element, Layout, cpu>> dy,
                                  image_view<Element, Layout, cpu> dx, const local_response_norm_parameters& parameters,
                                  const std::type_identity_t<backward_epilogue<Element>>& epilogue) {
  static_assert(Layout::order[2] != axis::c,
                "gradus: local response normalisation needs the pixels of a channel, or "
                "the channels of a pixel, side by side");
  const image_extents shape{dx.extents()};
  const dense_mapping<Layout> at{shape};
  const index_t channel_stride = at.stride(axis::c);
  const index_t pixel_stride = at.stride(axis::w);
  const auto alpha = static_cast<Element>(parameters.alpha);
  const auto k = static_cast<Element>(parameters.k);
  const auto factor = static_cast<Element>(2 * parameters.alpha * parameters.beta);
  const detail::inverse_power<Element> power{parameters.beta};
  detail::for_each_response_tile<Layout>(device, shape, [&](index_t offset, index_t pixels) {
    const Element* const input = x.data() + offset;
    const Element* const slope = dy.data() + offset;
    Element* const to = dx.data() + offset;
    // Walks over the channels c and adds what dy(c) gives to all of its window; the first term of dx(j) comes at c = j.
    std::array<Element, static_cast<std::size_t>(detail::response_tile)> sums;
    std::array<Element, static_cast<std::size_t>(detail::response_tile)> shares;
    for (index_t j = 0; j < shape.c; ++j) {
      shares.fill(Element{0});
      std::array<Element, static_cast<std::size_t>(detail::response_tile)> own{};
      const index_t last = std::min(shape.c - 1, j + parameters.radius);
      for (index_t c = std::max(index_t{0}, j - parameters.radius); c <= last; ++c) {
        detail::window_sums(
            shape.c, parameters.radius, c, pixels,
            [&](index_t l, index_t i) {
              const Element value = input[l * channel_stride + i * pixel_stride];
              return value * value;
            },
            sums);
        for (index_t i = 0; i < pixels; ++i) {
          const index_t place = c * channel_stride + i * pixel_stride;
          const Element d = k + alpha * sums[static_cast<std::size_t>(i)];
          const Element p = power(d);
          shares[static_cast<std::size_t>(i)] += slope[place] * input[place] * p / d;
          if (c == j) {
            own[static_cast<std::size_t>(i)] = p;
          }
        }
      }
      for (index_t i = 0; i < pixels; ++i) {
        const index_t place = j * channel_stride + i * pixel_stride;
        Element value = slope[place] * own[static_cast<std::size_t>(i)] -
                        factor * input[place] * shares[static_cast<std::size_t>(i)];
        if (epilogue.accumulate) {
          value += to[place];
        }
        if (epilogue.relu_output != nullptr && !(epilogue.relu_output[offset + place] > 0)) {
          value = Element{0};
        }
        to[place] = value;
      }
    }
  });
}

}  // namespace gradus::kernels

// SPDX-License-Identifier: BSL-1.0
//
// Padding of images on the CPU.
#pragma once

#include <algorithm>    // std::fill_n, std::min
#include <type_traits>  // std::is_same_v

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/elementwise/activation.hpp"
#include "gradus/kernels/cpu/detail/simd/packets.hpp"
#include "gradus/kernels/cpu/detail/simd/storage.hpp"
#include "gradus/kernels/cpu/detail/simd/tile.hpp"
#include "gradus/kernels/pad2d.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

namespace detail {

/// The batch of images of a geometry.
template <class Element, class Layout>
[[nodiscard]] constexpr erased_images erased(index_t images) noexcept {
  return {.images = images, .channels_last = std::is_same_v<Layout, nhwc>, .element_bytes = sizeof(Element)};
}

/// Adds up the copies of elements. Sums are rounded once.
template <class Element>
void fold_copies(const fold_call& call) {
  constexpr index_t block = 256;
  computed<Element> sums[block];
  const tile_output<Element> output{
      .c = static_cast<Element*>(call.dx),
      .mask = static_cast<const Element*>(call.relu_output),
      .accumulate = call.accumulate,
      .derivative = held_derivative<computed<Element>>{call.mask},
  };
  on_target([&](auto target) {
    for (index_t first = 0; first < call.count; first += block) {
      const index_t length = std::min(block, call.count - first);
      const index_t offset = call.offset + first;
      std::fill_n(sums, length, computed<Element>{});
      for (index_t row = 0; row < call.rows.count(); ++row) {
        for (index_t column = 0; column < call.columns.count(); ++column) {
          const index_t pixel = call.rows.at(row) * call.width + call.columns.at(column);
          add_run(target, static_cast<const Element*>(call.dy) + call.image + pixel * call.run + first, length, sums);
        }
      }
      store_rows(target, sums, 1, 0, length, &offset, output);
    }
  });
}

}  // namespace detail

/// Implements has_pad2d on the CPU.
template <network_element Element, class Layout>
requires std::is_same_v<Layout, nhwc> || std::is_same_v<Layout, nchw>
void pad2d_forward(cpu& device, const pad2d_geometry& geometry, image_view<const Element, Layout, cpu> x,
                   image_view<Element, Layout, cpu> y) {
  const auto value = static_cast<Element>(static_cast<parameter_element_t<Element>>(geometry.value));
  geometry.mode.passes()->forward(device, geometry, detail::erased<Element, Layout>(x.extent(axis::n)), &value,
                                  x.data(), y.data());
}

/// Implements has_pad2d on the CPU.
template <network_element Element, class Layout>
requires std::is_same_v<Layout, nhwc> || std::is_same_v<Layout, nchw>
void pad2d_backward(cpu& device, const pad2d_geometry& geometry, image_view<const Element, Layout, cpu> dy,
                    image_view<Element, Layout, cpu> dx, const backward_epilogue<Element>& epilogue) {
  geometry.mode.passes()->backward(device, geometry, detail::erased<Element, Layout>(dy.extent(axis::n)),
                                   &detail::fold_copies<Element>, dy.data(), dx.data(), epilogue.accumulate,
                                   epilogue.relu_output, epilogue.mask);
}

}  // namespace gradus::kernels

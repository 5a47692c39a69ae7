// SPDX-License-Identifier: BSL-1.0
//
// 2-D convolution on the CPU: no matrix of patches is built, and both layouts have loops of their own.
// Module: kernels. Depends on: tensor.
#pragma once

#include <algorithm>    // std::fill_n
#include <cstddef>      // std::byte, std::size_t
#include <span>         // std::span
#include <type_traits>  // std::conditional_t, std::is_same_v

#include "gradus/core/element.hpp"                       // real_element
#include "gradus/core/index.hpp"                         // index_t
#include "gradus/device/cpu.hpp"                         // cpu
#include "gradus/kernels/conv2d.hpp"                     // conv2d_geometry and what may be fused
#include "gradus/kernels/cpu/detail/conv2d_pixels.hpp"   // pixel_correlations
#include "gradus/kernels/cpu/detail/conv2d_planes.hpp"   // plane_correlations
#include "gradus/kernels/cpu/detail/conv2d_weights.hpp"  // weight_gradients
#include "gradus/layout/layouts.hpp"                     // nchw, nhwc
#include "gradus/tensor/tensor_view.hpp"                 // image_view

namespace gradus::kernels {

namespace detail {

template <class Element, class Layout>
using correlations =
    std::conditional_t<std::is_same_v<Layout, nhwc>, pixel_correlations<Element>, plane_correlations<Element>>;

/// The layouts that have convolutions here.
template <class Layout>
concept convolution_layout = std::is_same_v<Layout, nhwc> || std::is_same_v<Layout, nchw>;

}  // namespace detail

/// See kernels/conv2d.hpp.
template <real_element Element, detail::convolution_layout Layout>
[[nodiscard]] std::size_t conv2d_workspace_bytes(cpu& device, const conv2d_geometry& geometry, index_t batch,
                                                 pass which) {
  return detail::largest_workspace<Element>([&](const detail::tile_kernels<Element>& kernels) {
    if (which == pass::backward_weights) {
      return detail::weight_gradients<Element, Layout>{kernels, geometry, batch, device.threads()}.workspace_bytes();
    }
    return detail::correlations<Element, Layout>{kernels, geometry, which, device.threads()}.workspace_bytes(batch);
  });
}

/// See kernels/conv2d.hpp.
template <real_element Element, detail::convolution_layout Layout>
void conv2d_forward(cpu& device, const conv2d_geometry& geometry, image_view<const Element, Layout, cpu> x,
                    image_view<const Element, Layout, cpu> w, image_view<Element, Layout, cpu> y,
                    const forward_epilogue<Element>& epilogue, std::span<std::byte> workspace) {
  const detail::correlations<Element, Layout> correlations{detail::current_tile_kernels<Element>(), geometry,
                                                           pass::forward, device.threads()};
  correlations.run(device, x.extent(axis::n), x.data(), w.data(), detail::output_of(y.data(), epilogue),
                   workspace.data());
}

/// See kernels/conv2d.hpp.
template <real_element Element, detail::convolution_layout Layout>
void conv2d_backward_data(cpu& device, const conv2d_geometry& geometry, image_view<const Element, Layout, cpu> dy,
                          image_view<const Element, Layout, cpu> w, image_view<Element, Layout, cpu> dx,
                          const backward_epilogue<Element>& epilogue, std::span<std::byte> workspace) {
  const detail::correlations<Element, Layout> correlations{detail::current_tile_kernels<Element>(), geometry,
                                                           pass::backward_data, device.threads()};
  correlations.run(device, dy.extent(axis::n), dy.data(), w.data(), detail::output_of(dx.data(), epilogue),
                   workspace.data());
}

/// See kernels/conv2d.hpp.
template <real_element Element, detail::convolution_layout Layout>
void conv2d_backward_weights(cpu& device, const conv2d_geometry& geometry, image_view<const Element, Layout, cpu> x,
                             image_view<const Element, Layout, cpu> dy, image_view<Element, Layout, cpu> dw,
                             Element* dbias, std::span<std::byte> workspace) {
  const detail::weight_gradients<Element, Layout> gradients{detail::current_tile_kernels<Element>(), geometry,
                                                            x.extent(axis::n), device.threads()};
  gradients.run(device, x.data(), dy.data(), dw.data(), dbias, workspace.data());
}

}  // namespace gradus::kernels

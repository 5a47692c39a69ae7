// SPDX-License-Identifier: BSL-1.0
//
// Transposed 2-D convolution on the CPU: the loops of the convolution whose gradient it is.
#pragma once

#include <algorithm>  // std::max
#include <cstddef>    // std::byte, std::size_t
#include <span>       // std::span

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/conv_transpose2d.hpp"
#include "gradus/kernels/cpu/conv2d.hpp"
#include "gradus/kernels/cpu/detail/conv2d/bias_gradients.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

/// Implements has_conv_transpose2d on the CPU.
template <network_element Element, detail::convolution_layout Layout>
[[nodiscard]] std::size_t conv_transpose2d_workspace_bytes(cpu& device, const conv2d_geometry& geometry, index_t batch,
                                                           pass which) {
  if (which == pass::backward_weights) {
    return std::max(
        conv2d_workspace_bytes<Element, Layout>(device, geometry, batch, which),
        detail::bias_gradients<Element>{geometry.input(batch), detail::channel_order_of<Layout>}.workspace_bytes());
  }
  return conv2d_workspace_bytes<Element, Layout>(device, geometry, batch,
                                                 which == pass::forward ? pass::backward_data : pass::forward);
}

/// Implements has_conv_transpose2d on the CPU.
template <network_element Element, detail::convolution_layout Layout>
void conv_transpose2d_forward(cpu& device, const conv2d_geometry& geometry, image_view<const Element, Layout, cpu> x,
                              image_view<const parameter_element_t<Element>, Layout, cpu> w,
                              image_view<Element, Layout, cpu> y, const forward_epilogue<Element>& epilogue,
                              std::span<std::byte> workspace) {
  detail::correlate<Layout>(device, geometry, pass::backward_data, x.extent(axis::n), x.data(), w.data(),
                            detail::output_of(y.data(), epilogue), workspace);
}

/// Implements has_conv_transpose2d on the CPU.
template <network_element Element, detail::convolution_layout Layout>
void conv_transpose2d_backward_data(cpu& device, const conv2d_geometry& geometry,
                                    image_view<const Element, Layout, cpu> dy,
                                    image_view<const parameter_element_t<Element>, Layout, cpu> w,
                                    image_view<Element, Layout, cpu> dx, const backward_epilogue<Element>& epilogue,
                                    std::span<std::byte> workspace) {
  detail::correlate<Layout>(device, geometry, pass::forward, dy.extent(axis::n), dy.data(), w.data(),
                            detail::output_of(dx.data(), epilogue), workspace);
}

/// Implements has_conv_transpose2d on the CPU.
template <network_element Element, detail::convolution_layout Layout>
void conv_transpose2d_backward_weights(cpu& device, const conv2d_geometry& geometry,
                                       image_view<const Element, Layout, cpu> x,
                                       image_view<const Element, Layout, cpu> dy,
                                       image_view<parameter_element_t<Element>, Layout, cpu> dw,
                                       parameter_element_t<Element>* dbias, std::span<std::byte> workspace) {
  if (dbias != nullptr) {
    const detail::bias_gradients<Element> sums{dy.extents(), detail::channel_order_of<Layout>};
    sums.run(device, dy.data(), dbias, workspace.data());
  }
  conv2d_backward_weights<Element, Layout>(device, geometry, dy, x, dw, nullptr, workspace);
}

}  // namespace gradus::kernels

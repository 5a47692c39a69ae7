// SPDX-License-Identifier: BSL-1.0
//
// Transposed 2-D convolution on CUDA with cuDNN: the passes of the convolution whose gradient it is.
#pragma once

#include <algorithm>  // std::max
#include <cstddef>    // std::byte, std::size_t
#include <span>       // std::span

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/kernels/conv_transpose2d.hpp"
#include "gradus/kernels/cuda/conv2d.cuh"
#include "gradus/kernels/cuda/detail/norm/channel_sums.cuh"
#include "gradus/kernels/cuda/matmul.cuh"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

/// See has_conv_transpose2d. Chooses the algorithm for the shape, as conv2d_workspace_bytes.
template <network_element Element, layout_policy Layout>
[[nodiscard]] std::size_t conv_transpose2d_workspace_bytes(cuda& device, const conv2d_geometry& geometry, index_t batch,
                                                           pass which) {
  if (which == pass::backward_weights) {
    return std::max(conv2d_workspace_bytes<Element, Layout>(device, geometry, batch, which),
                    detail::channel_sums_bytes(detail::channel_view::of<Layout>(geometry.input(batch))));
  }
  return conv2d_workspace_bytes<Element, Layout>(device, geometry, batch,
                                                 which == pass::forward ? pass::backward_data : pass::forward);
}

/// Implements has_conv_transpose2d on a GPU.
template <network_element Element, layout_policy Layout>
void conv_transpose2d_forward(cuda& device, const conv2d_geometry& geometry, image_view<const Element, Layout, cuda> x,
                              image_view<const parameter_element_t<Element>, Layout, cuda> w,
                              image_view<Element, Layout, cuda> y, const forward_epilogue<Element>& epilogue,
                              std::span<std::byte> workspace) {
  if (y.size() == 0) {
    return;
  }
  detail::convolve_backward(device, geometry, x, w, y, backward_epilogue<Element>{}, workspace);
  detail::apply_epilogue<Element, parameter_element_t<Element>>(
      device, y.size(), geometry.in_channels, detail::channel_view::of<Layout>(y.extents()).inner, epilogue.bias,
      epilogue.residual, epilogue.act, nullptr, y.data());
}

/// Implements has_conv_transpose2d on a GPU.
template <network_element Element, layout_policy Layout>
void conv_transpose2d_backward_data(cuda& device, const conv2d_geometry& geometry,
                                    image_view<const Element, Layout, cuda> dy,
                                    image_view<const parameter_element_t<Element>, Layout, cuda> w,
                                    image_view<Element, Layout, cuda> dx, const backward_epilogue<Element>& epilogue,
                                    std::span<std::byte> workspace) {
  if (dx.size() == 0) {
    return;
  }
  const detail::convolution_run<Element, Layout> run{device, geometry, dy.extent(0), pass::forward, workspace};
  const Element* const input = run.input(dy);
  const Element* const weights = run.weights(w.data());
  run.plan().template forward<detail::device_real<Element>>(run.handle(), input, weights, dx.data(),
                                                            epilogue.accumulate, run.workspace());
  detail::apply_epilogue<Element, parameter_element_t<Element>>(
      device, dx.size(), 1, 1, nullptr, nullptr, activation::identity, epilogue.relu_output, dx.data(), epilogue.mask);
}

/// See has_conv_transpose2d. For a storage element, the gradients of the weights are rounded to it once.
template <network_element Element, layout_policy Layout>
void conv_transpose2d_backward_weights(cuda& device, const conv2d_geometry& geometry,
                                       image_view<const Element, Layout, cuda> x,
                                       image_view<const Element, Layout, cuda> dy,
                                       image_view<parameter_element_t<Element>, Layout, cuda> dw,
                                       parameter_element_t<Element>* dbias, std::span<std::byte> workspace) {
  detail::convolve_weights_and_bias(device, "conv_transpose2d_backward_weights", geometry, dy, x, dy, dw, dbias,
                                    workspace);
}

}  // namespace gradus::kernels

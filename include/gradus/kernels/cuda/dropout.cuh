// SPDX-License-Identifier: BSL-1.0
//
// Dropout on CUDA, with the same masks as on the CPU.
#pragma once

#include <cstdint>  // std::uint8_t, std::uint32_t, std::uint64_t

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/random.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/device/cuda_step.cuh"
#include "gradus/kernels/cuda/detail/launch/launch.cuh"
#include "gradus/kernels/dropout.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

namespace detail {

template <class Layout, class Element>
__global__ void dropout_kernel(device_images<Layout> images, const Element* x, Element* y, device_real<Element> scale,
                               std::uint32_t threshold, random_stream stream, std::uint64_t step,
                               std::uint64_t first_example, const step_numbers* recorded, std::uint8_t* mask) {
  if (recorded != nullptr) {
    step = recorded->step;
    first_example = recorded->first_example;
  }
  for_each_in_images(images.examples, images.image_size(), [&](index_t n, std::uint32_t i) {
    const image_position at = images.position(i);
    const std::uint32_t logical = (at.c * images.height + at.h) * images.width + at.w;
    const bool kept = dropout_keeps(stream, step, first_example + static_cast<std::uint64_t>(n),
                                    static_cast<index_t>(logical), threshold);
    const index_t offset = n * images.image_size() + i;
    const device_real<Element> value = widen(x[offset]);
    y[offset] = narrow<Element>(value * (kept ? scale : device_real<Element>{0}));  // 0 * NaN is NaN
    if (mask != nullptr) {
      mask[offset] = kept ? 1 : 0;
    }
  });
}

template <class Element>
__global__ void dropout_backward_kernel(index_t count, const Element* dy, const std::uint8_t* mask,
                                        device_real<Element> scale, Element* dx, bool accumulate) {
  for (index_t i = thread_index(); i < count; i += thread_count()) {
    const device_real<Element> value = widen(dy[i]) * (mask[i] != 0 ? scale : device_real<Element>{0});
    dx[i] = narrow<Element>(accumulate ? widen(dx[i]) + value : value);
  }
}

}  // namespace detail

/// Implements has_dropout_forward on a GPU.
template <network_element Element, layout_policy Layout>
void dropout_forward(cuda& device, image_view<const Element, Layout, cuda> x, image_view<Element, Layout, cuda> y,
                     double rate, const random_stream& stream, std::uint64_t step, std::uint64_t first_example,
                     std::uint8_t* mask) {
  if (x.size() == 0) {
    return;
  }
  const auto images = detail::device_images<Layout>::of(x.extents());
  launch(device, "dropout_forward", detail::image_grid(images.examples, images.image_size()), detail::block_threads,
         &detail::dropout_kernel<Layout, Element>, images, x.data(), y.data(),
         static_cast<detail::device_real<Element>>(1.0 / (1.0 - rate)), dropout_threshold(rate), stream, step,
         first_example, device.context<captured_numbers>().for_kernels(), mask);
}

/// Implements has_dropout_backward on a GPU.
template <network_element Element>
void dropout_backward(cuda& device, index_t count, const Element* dy, const std::uint8_t* mask, double scale,
                      Element* dx, bool accumulate) {
  if (count == 0) {
    return;
  }
  launch(device, "dropout_backward", detail::blocks_for(count), detail::block_threads,
         &detail::dropout_backward_kernel<Element>, count, dy, mask, static_cast<detail::device_real<Element>>(scale),
         dx, accumulate);
}

}  // namespace gradus::kernels

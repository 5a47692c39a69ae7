// SPDX-License-Identifier: BSL-1.0
//
// Products of images and factors of their channels on CUDA.
#pragma once

#include <cstdint>  // std::uint32_t

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/kernels/cuda/detail/launch/launch.cuh"
#include "gradus/kernels/scale_channels.hpp"

namespace gradus::kernels {

namespace detail {

/// to (+)= factors * x; an image has `count` elements.
template <class Element>
__global__ void scale_channels_kernel(scale_channels_shape s, std::uint32_t count, const Element* x,
                                      const Element* factors, Element* to, bool accumulate) {
  const auto channels = static_cast<std::uint32_t>(s.channels);
  const auto pixels = static_cast<std::uint32_t>(s.pixels);
  for_each_in_images(s.examples, count, [&](index_t n, std::uint32_t i) {
    const std::uint32_t c = s.channels_last ? i % channels : i / pixels;
    const index_t at = n * count + i;
    const auto product = widen(x[at]) * widen(factors[n * channels + c]);
    to[at] = narrow<Element>(accumulate ? widen(to[at]) + product : product);
  });
}

/// dfactors (+)= the sum of x * dy over the pixels of a channel. A block sums `Channels` neighboring channels of an
/// image, in a fixed order.
template <int Channels, class Element>
__global__ void sum_channels_kernel(scale_channels_shape s, index_t groups, const Element* x, const Element* dy,
                                    Element* dfactors, bool accumulate) {
  using real = device_real<Element>;
  constexpr unsigned lanes = block_threads / Channels;
  __shared__ real sums[block_threads];
  const index_t channel_stride = s.channels_last ? index_t{1} : s.pixels;
  const index_t pixel_stride = s.channels_last ? s.channels : index_t{1};
  for (index_t block = blockIdx.x; block < s.examples * groups; block += gridDim.x) {
    const index_t n = block / groups;
    const index_t c = block % groups * Channels + threadIdx.x % Channels;
    const index_t at = n * s.channels * s.pixels + c * channel_stride;
    real sum = 0;
    for (index_t p = threadIdx.x / Channels; c < s.channels && p < s.pixels; p += lanes) {
      sum += widen(x[at + p * pixel_stride]) * widen(dy[at + p * pixel_stride]);
    }
    __syncthreads();  // the sums of the block before were read
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned half = lanes / 2; half > 0; half /= 2) {
      if (threadIdx.x < half * Channels) {
        sums[threadIdx.x] += sums[threadIdx.x + half * Channels];
      }
      __syncthreads();
    }
    if (threadIdx.x < Channels && c < s.channels) {
      Element& to = dfactors[n * s.channels + c];
      to = narrow<Element>(accumulate ? widen(to) + sums[threadIdx.x] : sums[threadIdx.x]);
    }
  }
}

template <class Element>
void launch_scale_channels(cuda& device, const scale_channels_shape& s, const Element* x, const Element* factors,
                           Element* to, bool accumulate) {
  const std::uint32_t count = elements_in_32_bits(s.channels * s.pixels);
  launch(device, "scale_channels", image_grid(s.examples, count), block_threads, &scale_channels_kernel<Element>, s,
         count, x, factors, to, accumulate);
}

}  // namespace detail

/// Implements has_scale_channels_forward on a GPU.
/// @throws shape_error when an image has 2^31 elements or more
template <network_element Element>
void scale_channels_forward(cuda& device, const scale_channels_shape& shape, const Element* x, const Element* factors,
                            Element* y) {
  if (shape.examples * shape.channels * shape.pixels != 0) {
    detail::launch_scale_channels(device, shape, x, factors, y, false);
  }
}

/// Implements has_scale_channels_backward on a GPU.
/// @throws shape_error when an image has 2^31 elements or more
template <network_element Element>
void scale_channels_backward(cuda& device, const scale_channels_shape& shape, const Element* x, const Element* factors,
                             const Element* dy, const scale_channels_gradients<Element>& gradients) {
  if (shape.examples * shape.channels * shape.pixels == 0) {
    return;
  }
  if (gradients.dx != nullptr) {
    detail::launch_scale_channels(device, shape, dy, factors, gradients.dx, gradients.accumulate_dx);
  }
  if (gradients.dfactors == nullptr) {
    return;
  }
  if (shape.pixels == 1) {
    detail::launch_scale_channels(device, shape, dy, x, gradients.dfactors, gradients.accumulate_dfactors);
  } else if (shape.channels_last) {
    constexpr int channels = 32;  // neighboring threads read neighboring channels
    const index_t groups = (shape.channels + channels - 1) / channels;
    launch(device, "sum_channels", detail::blocks_for(shape.examples * groups, 1), detail::block_threads,
           &detail::sum_channels_kernel<channels, Element>, shape, groups, x, dy, gradients.dfactors,
           gradients.accumulate_dfactors);
  } else {
    launch(device, "sum_channels", detail::blocks_for(shape.examples * shape.channels, 1), detail::block_threads,
           &detail::sum_channels_kernel<1, Element>, shape, shape.channels, x, dy, gradients.dfactors,
           gradients.accumulate_dfactors);
  }
}

}  // namespace gradus::kernels

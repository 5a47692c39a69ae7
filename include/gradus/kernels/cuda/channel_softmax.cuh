// SPDX-License-Identifier: BSL-1.0
//
// Softmax over channels on CUDA.
#pragma once

#include <cmath>  // INFINITY

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/kernels/channel_softmax.hpp"
#include "gradus/kernels/cuda/detail/launch/launch.cuh"
#include "gradus/kernels/cuda/softmax.cuh"

namespace gradus::kernels {

namespace detail {

/// The pixels of a softmax on the device. With `Shared` the threads of a block share the channels of a pixel, else each
/// thread has a pixel of its own.
template <bool Shared>
struct softmax_pixels_of_device {
  channel_softmax_shape shape;

  /// Calls body(offset of the pixel) for the pixels of this thread.
  template <class Body>
  __device__ void for_each_pixel(const Body& body) const {
    const index_t step = Shared ? static_cast<index_t>(gridDim.x) : thread_count();
    for (index_t p = Shared ? static_cast<index_t>(blockIdx.x) : thread_index(); p < shape.outer * shape.inner;
         p += step) {
      body(p / shape.inner * shape.channels * shape.inner + p % shape.inner);
    }
  }

  /// Calls body(offset from the pixel) for the channels of this thread.
  template <class Body>
  __device__ void for_each_channel(const Body& body) const {
    for (index_t c = Shared ? threadIdx.x : 0; c < shape.channels; c += Shared ? softmax_threads : 1) {
      body(c * shape.inner);
    }
  }

  /// The value of all threads that share a pixel.
  template <class Value, class Combine>
  __device__ Value combine(Value own, const Combine& function) const {
    if constexpr (Shared) {
      return combine_in_block(own, function);
    } else {
      return own;
    }
  }
};

template <bool Shared, class Element>
__global__ void channel_softmax_kernel(softmax_pixels_of_device<Shared> pixels, const Element* x, Element* y) {
  using real = device_real<Element>;
  pixels.for_each_pixel([&](index_t at) {
    real largest = -static_cast<real>(INFINITY);
    pixels.for_each_channel([&](index_t c) {
      const real next = widen(x[at + c]);
      largest = next > largest ? next : largest;
    });
    largest = pixels.combine(largest, [](real& a, real b) { a = b > a ? b : a; });
    real sum = 0;
    pixels.for_each_channel([&](index_t c) { sum += ::exp(widen(x[at + c]) - largest); });
    sum = pixels.combine(sum, [](real& a, real b) { a += b; });
    const real shift = pixels.shape.logarithm ? ::log(sum) : real{0};
    pixels.for_each_channel([&](index_t c) {
      const real above = widen(x[at + c]) - largest;
      y[at + c] = narrow<Element>(pixels.shape.logarithm ? above - shift : ::exp(above) / sum);
    });
  });
}

template <bool Shared, class Element>
__global__ void channel_softmax_backward_kernel(softmax_pixels_of_device<Shared> pixels, const Element* y,
                                                const Element* dy, Element* dx, bool accumulate) {
  using real = device_real<Element>;
  const bool logarithm = pixels.shape.logarithm;
  pixels.for_each_pixel([&](index_t at) {
    real sum = 0;
    pixels.for_each_channel(
        [&](index_t c) { sum += logarithm ? widen(dy[at + c]) : widen(y[at + c]) * widen(dy[at + c]); });
    sum = pixels.combine(sum, [](real& a, real b) { a += b; });
    pixels.for_each_channel([&](index_t c) {
      const real value = widen(y[at + c]);
      const real above = widen(dy[at + c]);
      const real gradient = logarithm ? above - ::exp(value) * sum : value * (above - sum);
      dx[at + c] = narrow<Element>(accumulate ? widen(dx[at + c]) + gradient : gradient);
    });
  });
}

/// True if the channels of a pixel are adjacent and enough for a block.
[[nodiscard]] inline bool shares_pixels(const channel_softmax_shape& shape) noexcept {
  return shape.inner == 1 && shape.channels >= 64;
}

}  // namespace detail

/// Implements has_channel_softmax_forward on a GPU.
template <network_element Element>
void channel_softmax_forward(cuda& device, const channel_softmax_shape& shape, const Element* x, Element* y) {
  const index_t pixels = shape.outer * shape.inner;
  if (pixels * shape.channels == 0) {
    return;
  }
  if (detail::shares_pixels(shape)) {
    launch(device, "channel_softmax", detail::blocks_for(pixels, 1), detail::softmax_threads,
           &detail::channel_softmax_kernel<true, Element>, detail::softmax_pixels_of_device<true>{shape}, x, y);
  } else {
    launch(device, "channel_softmax", detail::blocks_for(pixels), detail::block_threads,
           &detail::channel_softmax_kernel<false, Element>, detail::softmax_pixels_of_device<false>{shape}, x, y);
  }
}

/// Implements has_channel_softmax_backward on a GPU.
template <network_element Element>
void channel_softmax_backward(cuda& device, const channel_softmax_shape& shape, const Element* y, const Element* dy,
                              Element* dx, bool accumulate) {
  const index_t pixels = shape.outer * shape.inner;
  if (pixels * shape.channels == 0) {
    return;
  }
  if (detail::shares_pixels(shape)) {
    launch(device, "channel_softmax_backward", detail::blocks_for(pixels, 1), detail::softmax_threads,
           &detail::channel_softmax_backward_kernel<true, Element>, detail::softmax_pixels_of_device<true>{shape}, y,
           dy, dx, accumulate);
  } else {
    launch(device, "channel_softmax_backward", detail::blocks_for(pixels), detail::block_threads,
           &detail::channel_softmax_backward_kernel<false, Element>, detail::softmax_pixels_of_device<false>{shape}, y,
           dy, dx, accumulate);
  }
}

}  // namespace gradus::kernels

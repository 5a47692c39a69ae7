// SPDX-License-Identifier: BSL-1.0
//
// Local response normalization on CUDA.
#pragma once

#include <algorithm>  // std::min
#include <cstdint>    // std::int32_t, std::uint32_t

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cuda/detail/launch/launch.cuh"
#include "gradus/kernels/local_response_norm.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

namespace detail {

/// Local response normalization at one pixel.
template <class Layout, class Element>
struct device_response {
  using real = device_real<Element>;

  device_images<Layout> images;
  std::int32_t radius;
  real alpha, beta, k;

  device_response(const device_images<Layout>& batch, const local_response_norm_parameters& p)
      : images{batch},
        radius{static_cast<std::int32_t>(std::min<index_t>(p.radius, batch.channels))},
        alpha{static_cast<real>(p.alpha)},
        beta{static_cast<real>(p.beta)},
        k{static_cast<real>(p.k)} {}

  __device__ std::int32_t first(std::int32_t c) const { return c < radius ? 0 : c - radius; }
  __device__ std::int32_t last(std::int32_t c) const {
    const auto end = static_cast<std::int32_t>(images.channels) - 1;
    return c + radius < end ? c + radius : end;
  }

  __device__ real value(const Element* image, std::int32_t c, const image_position& at) const {
    return widen(image[images.offset(static_cast<std::uint32_t>(c), at.h, at.w)]);
  }

  /// d(c) of kernels/local_response_norm.hpp.
  __device__ real divisor(const Element* image, std::int32_t c, const image_position& at) const {
    real sum = 0;
    for (std::int32_t j = first(c); j <= last(c); ++j) {
      const real x = value(image, j, at);
      sum += x * x;
    }
    return k + alpha * sum;
  }
};

template <class Layout, class Element>
__global__ void response_norm_kernel(device_response<Layout, Element> norm, const Element* x, Element* y) {
  const device_images<Layout>& images = norm.images;
  for_each_in_images(images.examples, images.image_size(), [&](index_t n, std::uint32_t i) {
    const Element* const image = x + n * images.image_size();
    const image_position at = images.position(i);
    const auto d = norm.divisor(image, static_cast<std::int32_t>(at.c), at);
    y[n * images.image_size() + i] = narrow<Element>(widen(image[i]) * ::pow(d, -norm.beta));
  });
}

template <class Layout, class Element>
__global__ void response_norm_backward_kernel(device_response<Layout, Element> norm, const Element* x,
                                              const Element* dy, Element* dx, device_epilogue<Element> epilogue) {
  using real = device_real<Element>;
  const device_images<Layout>& images = norm.images;
  for_each_in_images(images.examples, images.image_size(), [&](index_t n, std::uint32_t i) {
    const Element* const image = x + n * images.image_size();
    const Element* const gradient = dy + n * images.image_size();
    const image_position at = images.position(i);
    const auto own = static_cast<std::int32_t>(at.c);
    real sum = 0;
    real result = 0;
    for (std::int32_t c = norm.first(own); c <= norm.last(own); ++c) {
      const real d = norm.divisor(image, c, at);
      const real power = ::pow(d, -norm.beta);
      const real g = norm.value(gradient, c, at);
      sum += g * norm.value(image, c, at) * power / d;
      if (c == own) {
        result = g * power;
      }
    }
    const index_t offset = n * images.image_size() + i;
    dx[offset] = epilogue.apply(result - 2 * norm.alpha * norm.beta * widen(image[i]) * sum, dx, offset);
  });
}

}  // namespace detail

/// Implements has_local_response_norm_forward on a GPU.
template <network_element Element, layout_policy Layout>
void local_response_norm_forward(cuda& device, image_view<const Element, Layout, cuda> x,
                                 image_view<Element, Layout, cuda> y,
                                 const local_response_norm_parameters& parameters) {
  const auto images = detail::device_images<Layout>::of(x.extents());
  if (x.size() != 0) {
    launch(device, "local_response_norm_forward", detail::image_grid(images.examples, images.image_size()),
           detail::block_threads, &detail::response_norm_kernel<Layout, Element>,
           detail::device_response<Layout, Element>{images, parameters}, x.data(), y.data());
  }
}

/// Implements has_local_response_norm_backward on a GPU.
template <network_element Element, layout_policy Layout>
void local_response_norm_backward(cuda& device, image_view<const Element, Layout, cuda> x,
                                  image_view<const Element, Layout, cuda> dy, image_view<Element, Layout, cuda> dx,
                                  const local_response_norm_parameters& parameters,
                                  const backward_epilogue<Element>& epilogue) {
  const auto images = detail::device_images<Layout>::of(x.extents());
  if (x.size() != 0) {
    launch(device, "local_response_norm_backward", detail::image_grid(images.examples, images.image_size()),
           detail::block_threads, &detail::response_norm_backward_kernel<Layout, Element>,
           detail::device_response<Layout, Element>{images, parameters}, x.data(), dy.data(), dx.data(),
           detail::device_epilogue<Element>{epilogue});
  }
}

}  // namespace gradus::kernels

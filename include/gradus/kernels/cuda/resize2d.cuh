// SPDX-License-Identifier: BSL-1.0
//
// Resizing of images on CUDA: a thread for each output, or for each gradient.
#pragma once

#include <algorithm>  // std::max
#include <cstdint>    // std::int32_t, std::uint32_t
#include <limits>     // std::numeric_limits

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cuda/detail/launch/launch.cuh"
#include "gradus/kernels/resize2d.hpp"

namespace gradus::kernels {

namespace detail {

/// A resizing on the device. Integer holds the positions (resize_axis).
template <class Integer>
struct device_resize {
  resize_axis<Integer> rows;
  resize_axis<Integer> columns;
  index_t planes;
  std::uint32_t run;
  std::uint32_t in_width;
  std::uint32_t out_width;
  std::uint32_t in_size;   ///< elements of a plane of x
  std::uint32_t out_size;  ///< elements of a plane of y
  bool bilinear;

  /// @throws shape_error when a plane has 2^31 elements or more
  explicit device_resize(const resize2d_geometry& g)
      : rows{g.in_height, g.out_height, g.mode, g.align_corners},
        columns{g.in_width, g.out_width, g.mode, g.align_corners},
        planes{g.planes},
        run{static_cast<std::uint32_t>(g.run)},
        in_width{static_cast<std::uint32_t>(g.in_width)},
        out_width{static_cast<std::uint32_t>(g.out_width)},
        in_size{elements_in_32_bits(g.in_height * g.in_width * g.run)},
        out_size{elements_in_32_bits(g.out_height * g.out_width * g.run)},
        bilinear{g.mode == interpolation::bilinear} {}
};

template <class Integer, class Element>
__global__ void resize2d_kernel(device_resize<Integer> r, const Element* x, Element* y) {
  using real = device_real<Element>;
  for_each_in_images(r.planes, r.out_size, [&](index_t n, std::uint32_t i) {
    const std::uint32_t c = i % r.run;
    const std::uint32_t pixel = i / r.run;
    const resize_tap<real> v = r.rows.template tap<real>(pixel / r.out_width);
    const resize_tap<real> h = r.columns.template tap<real>(pixel % r.out_width);
    const Element* const plane = x + n * r.in_size + c;
    const auto at = [&](index_t row, index_t column) { return plane[(row * r.in_width + column) * r.run]; };
    Element& to = y[n * r.out_size + i];
    if (!r.bilinear) {
      to = at(v.low, h.low);
      return;
    }
    const real up = real{1} - v.weight;
    const real left = widen(at(v.low, h.low)) * up + widen(at(v.high, h.low)) * v.weight;
    const real right = widen(at(v.low, h.high)) * up + widen(at(v.high, h.high)) * v.weight;
    to = narrow<Element>(left * (real{1} - h.weight) + right * h.weight);
  });
}

template <class Integer, class Element>
__global__ void resize2d_backward_kernel(device_resize<Integer> r, const Element* dy, Element* dx,
                                         device_epilogue<Element> epilogue) {
  using real = device_real<Element>;
  for_each_in_images(r.planes, r.in_size, [&](index_t n, std::uint32_t i) {
    const std::uint32_t pixel = i / r.run;
    const index_t row = pixel / r.in_width;
    const index_t column = pixel % r.in_width;
    const Element* const plane = dy + n * r.out_size + i % r.run;
    const index_t bottom = r.rows.end_of_readers(row);
    const index_t right = r.columns.end_of_readers(column);
    real sum = 0;
    for (index_t h = r.rows.first_reader(row); h < bottom; ++h) {
      const real down = r.rows.template weight<real>(h, row);
      for (index_t w = r.columns.first_reader(column); w < right; ++w) {
        sum += down * r.columns.template weight<real>(w, column) * widen(plane[(h * r.out_width + w) * r.run]);
      }
    }
    const index_t at = n * r.in_size + i;
    dx[at] = epilogue.apply(sum, dx, at);
  });
}

/// Calls body(device_resize) with the shortest integers that hold the positions.
template <class Body>
void with_resize(const resize2d_geometry& g, const Body& body) {
  const index_t largest = std::max(g.in_height * g.out_height, g.in_width * g.out_width);
  if (largest <= std::numeric_limits<std::int32_t>::max() / 4) {
    body(device_resize<std::int32_t>{g});
  } else {
    body(device_resize<index_t>{g});
  }
}

template <class Element, class Integer>
void launch_resize(cuda& device, const device_resize<Integer>& r, const Element* x, Element* y) {
  launch(device, "resize2d_forward", image_grid(r.planes, r.out_size), block_threads,
         &resize2d_kernel<Integer, Element>, r, x, y);
}

template <class Element, class Integer>
void launch_resize_backward(cuda& device, const device_resize<Integer>& r, const Element* dy, Element* dx,
                            const backward_epilogue<Element>& epilogue) {
  launch(device, "resize2d_backward", image_grid(r.planes, r.in_size), block_threads,
         &resize2d_backward_kernel<Integer, Element>, r, dy, dx, device_epilogue<Element>{epilogue});
}

}  // namespace detail

/// Implements has_resize2d_forward on a GPU.
/// @throws shape_error when a plane has 2^31 elements or more
template <network_element Element>
void resize2d_forward(cuda& device, const resize2d_geometry& geometry, const Element* x, Element* y) {
  if (geometry.planes * geometry.run == 0) {
    return;
  }
  detail::with_resize(geometry, [&](const auto& r) { detail::launch_resize(device, r, x, y); });
}

/// Implements has_resize2d_backward on a GPU.
/// @throws shape_error when a plane has 2^31 elements or more
template <network_element Element>
void resize2d_backward(cuda& device, const resize2d_geometry& geometry, const Element* dy, Element* dx,
                       const backward_epilogue<Element>& epilogue) {
  if (geometry.planes * geometry.run == 0) {
    return;
  }
  detail::with_resize(geometry, [&](const auto& r) { detail::launch_resize_backward(device, r, dy, dx, epilogue); });
}

}  // namespace gradus::kernels

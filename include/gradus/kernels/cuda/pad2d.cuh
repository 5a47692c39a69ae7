// SPDX-License-Identifier: BSL-1.0
//
// Padding of images on CUDA.
#pragma once

#include <cstdint>  // std::uint32_t

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cuda/detail/launch/launch.cuh"
#include "gradus/kernels/pad2d.hpp"
#include "gradus/layout/layout_policy.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

namespace detail {

template <class Layout, class Element>
__global__ void pad2d_kernel(device_images<Layout> in, device_images<Layout> out, padded_axis rows, padded_axis columns,
                             device_real<Element> value, const Element* x, Element* y) {
  for_each_in_images(out.examples, out.image_size(), [&](index_t n, std::uint32_t i) {
    const image_position at = out.position(i);
    const index_t h = rows.source(at.h);
    const index_t w = columns.source(at.w);
    Element result = narrow<Element>(value);
    if (h >= 0 && w >= 0) {
      result = x[n * in.image_size() + in.offset(at.c, static_cast<std::uint32_t>(h), static_cast<std::uint32_t>(w))];
    }
    y[n * out.image_size() + i] = result;
  });
}

/// Adds up the copies of each element of dx, in the order of rows and columns.
template <class Layout, class Element>
__global__ void fold2d_kernel(device_images<Layout> in, device_images<Layout> out, padded_axis rows,
                              padded_axis columns, const Element* dy, Element* dx, device_epilogue<Element> epilogue) {
  for_each_in_images(in.examples, in.image_size(), [&](index_t n, std::uint32_t i) {
    const image_position at = in.position(i);
    const padded_axis::copies h = rows.copies_of(at.h);
    const padded_axis::copies w = columns.copies_of(at.w);
    const Element* const image = dy + n * out.image_size();
    device_real<Element> gradient = 0;
    const auto add_row = [&](index_t row) {
      const auto add = [&](index_t column) {
        gradient += widen(image[out.offset(at.c, static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(column))]);
      };
      for (index_t column = w.low; column < w.low_end; ++column) {
        add(column);
      }
      add(w.own);
      for (index_t column = w.high; column < w.high_end; ++column) {
        add(column);
      }
    };
    for (index_t row = h.low; row < h.low_end; ++row) {
      add_row(row);
    }
    add_row(h.own);
    for (index_t row = h.high; row < h.high_end; ++row) {
      add_row(row);
    }
    const index_t offset = n * in.image_size() + i;
    dx[offset] = epilogue.apply(gradient, dx, offset);
  });
}

}  // namespace detail

/// Implements has_pad2d on a GPU.
template <network_element Element, layout_policy Layout>
void pad2d_forward(cuda& device, const pad2d_geometry& geometry, image_view<const Element, Layout, cuda> x,
                   image_view<Element, Layout, cuda> y) {
  if (y.size() == 0) {
    return;
  }
  const auto out = detail::device_images<Layout>::of(y.extents());
  launch(device, "pad2d_forward", detail::image_grid(out.examples, out.image_size()), detail::block_threads,
         &detail::pad2d_kernel<Layout, Element>, detail::device_images<Layout>::of(x.extents()), out,
         detail::padded_rows(geometry), detail::padded_columns_of(geometry),
         static_cast<detail::device_real<Element>>(geometry.value), x.data(), y.data());
}

/// Implements has_pad2d on a GPU.
template <network_element Element, layout_policy Layout>
void pad2d_backward(cuda& device, const pad2d_geometry& geometry, image_view<const Element, Layout, cuda> dy,
                    image_view<Element, Layout, cuda> dx, const backward_epilogue<Element>& epilogue) {
  if (dx.size() == 0) {
    return;
  }
  const auto in = detail::device_images<Layout>::of(dx.extents());
  launch(device, "pad2d_backward", detail::image_grid(in.examples, in.image_size()), detail::block_threads,
         &detail::fold2d_kernel<Layout, Element>, in, detail::device_images<Layout>::of(dy.extents()),
         detail::padded_rows(geometry), detail::padded_columns_of(geometry), dy.data(), dx.data(),
         detail::device_epilogue<Element>{epilogue});
}

}  // namespace gradus::kernels

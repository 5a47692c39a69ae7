// SPDX-License-Identifier: BSL-1.0
//
// Maximum and average pooling on the CPU.
// Module: kernels. Depends on: tensor.
#pragma once

#include <algorithm>    // std::max, std::min
#include <cstdint>      // std::uint8_t
#include <type_traits>  // std::type_identity_t

#include "gradus/core/element.hpp"          // real_element
#include "gradus/core/index.hpp"            // index_t
#include "gradus/device/cpu.hpp"            // cpu
#include "gradus/kernels/conv2d.hpp"        // backward_epilogue
#include "gradus/kernels/pool2d.hpp"        // pool2d_geometry
#include "gradus/layout/layout_policy.hpp"  // layout_policy
#include "gradus/layout/mapping.hpp"        // dense_mapping
#include "gradus/tensor/tensor_view.hpp"    // image_view

namespace gradus::kernels {

namespace detail {

/// The part of a window that lies inside the image, as offsets in the window.
struct pool_range {
  index_t start;  ///< the first row (column) of the window, may be negative
  index_t begin;  ///< the first offset inside the image
  index_t end;    ///< one past the last offset inside the image
};

[[nodiscard]] constexpr pool_range pool_window(index_t position, index_t stride, index_t pad, index_t kernel,
                                               index_t extent) noexcept {
  const index_t start = position * stride - pad;
  return {start, std::max(index_t{0}, -start), std::min(kernel, extent - start)};
}

/// Calls body(n, c) for every plane, on all threads.
template <class Body>
void for_each_plane(cpu& device, index_t images, index_t channels, const Body& body) {
  device.parallel_for(images * channels, 1, [&](index_t begin, index_t end) {
    for (index_t plane = begin; plane < end; ++plane) {
      body(plane / channels, plane % channels);
    }
  });
}

template <class Element, class Layout>
void apply_epilogue(const dense_mapping<Layout>& at, index_t n, index_t c, const backward_epilogue<Element>& epilogue,
                    Element* dx) {
  if (epilogue.relu_output == nullptr) {
    return;
  }
  for (index_t h = 0; h < at.extents().h; ++h) {
    for (index_t w = 0; w < at.extents().w; ++w) {
      const index_t i = at(n, c, h, w);
      dx[i] = epilogue.relu_output[i] > 0 ? dx[i] : Element{0};
    }
  }
}

template <class Element, class Layout>
void clear_plane(const dense_mapping<Layout>& at, index_t n, index_t c, Element* dx) {
  for (index_t h = 0; h < at.extents().h; ++h) {
    for (index_t w = 0; w < at.extents().w; ++w) {
      dx[at(n, c, h, w)] = Element{0};
    }
  }
}

}  // namespace detail

template <real_element Element, layout_policy Layout>
void max_pool2d_forward(cpu& device, const pool2d_geometry& shape,
                        std::type_identity_t<image_view<const Element, Layout, cpu>> x,
                        image_view<Element, Layout, cpu> y, std::uint8_t* choice) {
  const index_t images = y.extent(axis::n);
  const dense_mapping<Layout> in{shape.input(images)};
  const dense_mapping<Layout> out{shape.output(images)};
  detail::for_each_plane(device, images, shape.channels, [&](index_t n, index_t c) {
    for (index_t p = 0; p < shape.out_height; ++p) {
      const auto rows =
          detail::pool_window(p, shape.stride_height, shape.pad_top, shape.kernel_height, shape.in_height);
      for (index_t q = 0; q < shape.out_width; ++q) {
        const auto columns =
            detail::pool_window(q, shape.stride_width, shape.pad_left, shape.kernel_width, shape.in_width);
        Element best = x.data()[in(n, c, rows.start + rows.begin, columns.start + columns.begin)];
        index_t chosen = rows.begin * shape.kernel_width + columns.begin;
        for (index_t r = rows.begin; r < rows.end; ++r) {
          for (index_t s = columns.begin; s < columns.end; ++s) {
            const Element value = x.data()[in(n, c, rows.start + r, columns.start + s)];
            if (value > best || (value != value && best == best)) {
              best = value;
              chosen = r * shape.kernel_width + s;
            }
          }
        }
        const index_t i = out(n, c, p, q);
        y.data()[i] = best;
        if (choice != nullptr) {
          choice[i] = static_cast<std::uint8_t>(chosen);
        }
      }
    }
  });
}

template <real_element Element, layout_policy Layout>
void max_pool2d_backward(cpu& device, const pool2d_geometry& shape,
                         std::type_identity_t<image_view<const Element, Layout, cpu>> dy, const std::uint8_t* choice,
                         image_view<Element, Layout, cpu> dx,
                         const std::type_identity_t<backward_epilogue<Element>>& epilogue) {
  const index_t images = dx.extent(axis::n);
  const dense_mapping<Layout> in{shape.input(images)};
  const dense_mapping<Layout> out{shape.output(images)};
  detail::for_each_plane(device, images, shape.channels, [&](index_t n, index_t c) {
    if (!epilogue.accumulate) {
      detail::clear_plane(in, n, c, dx.data());
    }
    for (index_t p = 0; p < shape.out_height; ++p) {
      for (index_t q = 0; q < shape.out_width; ++q) {
        const index_t i = out(n, c, p, q);
        const index_t r = choice[i] / shape.kernel_width;
        const index_t s = choice[i] % shape.kernel_width;
        dx.data()[in(n, c, p * shape.stride_height - shape.pad_top + r, q * shape.stride_width - shape.pad_left + s)] +=
            dy.data()[i];
      }
    }
    detail::apply_epilogue(in, n, c, epilogue, dx.data());
  });
}

template <real_element Element, layout_policy Layout>
void average_pool2d_forward(cpu& device, const pool2d_geometry& shape,
                            std::type_identity_t<image_view<const Element, Layout, cpu>> x,
                            image_view<Element, Layout, cpu> y, bool count_padding) {
  const index_t images = y.extent(axis::n);
  const dense_mapping<Layout> in{shape.input(images)};
  const dense_mapping<Layout> out{shape.output(images)};
  detail::for_each_plane(device, images, shape.channels, [&](index_t n, index_t c) {
    for (index_t p = 0; p < shape.out_height; ++p) {
      const auto rows =
          detail::pool_window(p, shape.stride_height, shape.pad_top, shape.kernel_height, shape.in_height);
      for (index_t q = 0; q < shape.out_width; ++q) {
        const auto columns =
            detail::pool_window(q, shape.stride_width, shape.pad_left, shape.kernel_width, shape.in_width);
        Element sum = 0;
        for (index_t r = rows.begin; r < rows.end; ++r) {
          for (index_t s = columns.begin; s < columns.end; ++s) {
            sum += x.data()[in(n, c, rows.start + r, columns.start + s)];
          }
        }
        const index_t entries = count_padding ? shape.kernel_height * shape.kernel_width
                                              : (rows.end - rows.begin) * (columns.end - columns.begin);
        y.data()[out(n, c, p, q)] = sum / static_cast<Element>(entries);
      }
    }
  });
}

template <real_element Element, layout_policy Layout>
void average_pool2d_backward(cpu& device, const pool2d_geometry& shape,
                             std::type_identity_t<image_view<const Element, Layout, cpu>> dy,
                             image_view<Element, Layout, cpu> dx, bool count_padding,
                             const std::type_identity_t<backward_epilogue<Element>>& epilogue) {
  const index_t images = dx.extent(axis::n);
  const dense_mapping<Layout> in{shape.input(images)};
  const dense_mapping<Layout> out{shape.output(images)};
  detail::for_each_plane(device, images, shape.channels, [&](index_t n, index_t c) {
    if (!epilogue.accumulate) {
      detail::clear_plane(in, n, c, dx.data());
    }
    for (index_t p = 0; p < shape.out_height; ++p) {
      const auto rows =
          detail::pool_window(p, shape.stride_height, shape.pad_top, shape.kernel_height, shape.in_height);
      for (index_t q = 0; q < shape.out_width; ++q) {
        const auto columns =
            detail::pool_window(q, shape.stride_width, shape.pad_left, shape.kernel_width, shape.in_width);
        const index_t entries = count_padding ? shape.kernel_height * shape.kernel_width
                                              : (rows.end - rows.begin) * (columns.end - columns.begin);
        const Element share = dy.data()[out(n, c, p, q)] / static_cast<Element>(entries);
        for (index_t r = rows.begin; r < rows.end; ++r) {
          for (index_t s = columns.begin; s < columns.end; ++s) {
            dx.data()[in(n, c, rows.start + r, columns.start + s)] += share;
          }
        }
      }
    }
    detail::apply_epilogue(in, n, c, epilogue, dx.data());
  });
}

}  // namespace gradus::kernels

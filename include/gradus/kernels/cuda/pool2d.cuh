// SPDX-License-Identifier: BSL-1.0
//
// Max and average pooling on CUDA with our own kernels: cuDNN's backward pass of max pooling reads x and y, which the
// execution plan does not keep, and its padding is the same on both sides.
#pragma once

#include <cstdint>  // std::int32_t, std::uint8_t, std::uint32_t

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cuda/detail/launch/launch.cuh"
#include "gradus/kernels/pool2d.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

namespace detail {

/// The kernel size, strides and padding of a pooling, in 32 bits.
struct device_windows {
  std::int32_t kernel_height, kernel_width;
  std::int32_t stride_height, stride_width;
  std::int32_t pad_top, pad_left;

  explicit device_windows(const pool2d_geometry& g)
      : kernel_height{static_cast<std::int32_t>(g.kernel_height)},
        kernel_width{static_cast<std::int32_t>(g.kernel_width)},
        stride_height{static_cast<std::int32_t>(g.stride_height)},
        stride_width{static_cast<std::int32_t>(g.stride_width)},
        pad_top{static_cast<std::int32_t>(g.pad_top)},
        pad_left{static_cast<std::int32_t>(g.pad_left)} {}
};

/// The part of one kernel position that is inside the image: rows [top, bottom), columns [left, right).
struct device_window {
  std::int32_t first_row, first_column;  // of the whole kernel position
  std::int32_t top, bottom, left, right;

  template <class Layout>
  __device__ device_window(const device_windows& all, const device_images<Layout>& in, std::uint32_t p, std::uint32_t q)
      : first_row{static_cast<std::int32_t>(p) * all.stride_height - all.pad_top},
        first_column{static_cast<std::int32_t>(q) * all.stride_width - all.pad_left},
        top{first_row > 0 ? first_row : 0},
        bottom{least(first_row + all.kernel_height, static_cast<std::int32_t>(in.height))},
        left{first_column > 0 ? first_column : 0},
        right{least(first_column + all.kernel_width, static_cast<std::int32_t>(in.width))} {}

  __device__ static std::int32_t least(std::int32_t a, std::int32_t b) { return a < b ? a : b; }
};

/// The outputs along one axis whose kernels cover an input: [first, last].
struct covering_windows {
  std::int32_t first, last;

  __device__ covering_windows(std::uint32_t place, std::int32_t pad, std::int32_t kernel, std::int32_t stride,
                              std::uint32_t outputs) {
    const std::int32_t padded = static_cast<std::int32_t>(place) + pad;
    first = padded < kernel ? 0 : (padded - kernel) / stride + 1;
    last = device_window::least(padded / stride, static_cast<std::int32_t>(outputs) - 1);
  }
};

template <class Layout, class Element>
__global__ void max_pool_kernel(device_windows windows, device_images<Layout> in, device_images<Layout> out,
                                const Element* x, Element* y, std::uint8_t* choice) {
  for_each_in_images(out.examples, out.image_size(), [&](index_t n, std::uint32_t i) {
    const image_place at = out.place(i);
    const device_window window{windows, in, at.h, at.w};
    const Element* const image = x + n * in.image_size();
    device_real<Element> largest = 0;
    std::int32_t best = -1;
    for (std::int32_t h = window.top; h < window.bottom; ++h) {
      for (std::int32_t w = window.left; w < window.right; ++w) {
        const device_real<Element> value =
            widen(image[in.offset(at.c, static_cast<std::uint32_t>(h), static_cast<std::uint32_t>(w))]);
        if (best < 0 || value > largest || (value != value && largest == largest)) {  // the first NaN is kept
          largest = value;
          best = (h - window.first_row) * windows.kernel_width + (w - window.first_column);
        }
      }
    }
    const index_t place = n * out.image_size() + i;
    y[place] = narrow<Element>(largest);
    if (choice != nullptr) {
      choice[place] = static_cast<std::uint8_t>(best);
    }
  });
}

template <class Layout, class Element>
__global__ void max_pool_backward_kernel(device_windows windows, device_images<Layout> in, device_images<Layout> out,
                                         const Element* dy, const std::uint8_t* choice, Element* dx,
                                         device_epilogue<Element> epilogue) {
  for_each_in_images(in.examples, in.image_size(), [&](index_t n, std::uint32_t i) {
    const image_place at = in.place(i);
    const covering_windows rows{at.h, windows.pad_top, windows.kernel_height, windows.stride_height, out.height};
    const covering_windows columns{at.w, windows.pad_left, windows.kernel_width, windows.stride_width, out.width};
    device_real<Element> sum = 0;
    for (std::int32_t p = rows.first; p <= rows.last; ++p) {
      for (std::int32_t q = columns.first; q <= columns.last; ++q) {
        const index_t place =
            n * out.image_size() + out.offset(at.c, static_cast<std::uint32_t>(p), static_cast<std::uint32_t>(q));
        const std::int32_t row = static_cast<std::int32_t>(at.h) - (p * windows.stride_height - windows.pad_top);
        const std::int32_t column = static_cast<std::int32_t>(at.w) - (q * windows.stride_width - windows.pad_left);
        if (choice[place] == row * windows.kernel_width + column) {
          sum += widen(dy[place]);
        }
      }
    }
    const index_t place = n * in.image_size() + i;
    dx[place] = epilogue.apply(sum, dx, place);
  });
}

template <class Layout, class Element>
__global__ void average_pool_kernel(device_windows windows, device_images<Layout> in, device_images<Layout> out,
                                    const Element* x, Element* y, bool count_padding) {
  for_each_in_images(out.examples, out.image_size(), [&](index_t n, std::uint32_t i) {
    const image_place at = out.place(i);
    const device_window window{windows, in, at.h, at.w};
    const Element* const image = x + n * in.image_size();
    device_real<Element> sum = 0;
    for (std::int32_t h = window.top; h < window.bottom; ++h) {
      for (std::int32_t w = window.left; w < window.right; ++w) {
        sum += widen(image[in.offset(at.c, static_cast<std::uint32_t>(h), static_cast<std::uint32_t>(w))]);
      }
    }
    const std::int32_t entries = count_padding ? windows.kernel_height * windows.kernel_width
                                               : (window.bottom - window.top) * (window.right - window.left);
    y[n * out.image_size() + i] = narrow<Element>(sum / static_cast<device_real<Element>>(entries));
  });
}

template <class Layout, class Element>
__global__ void average_pool_backward_kernel(device_windows windows, device_images<Layout> in,
                                             device_images<Layout> out, const Element* dy, Element* dx,
                                             bool count_padding, device_epilogue<Element> epilogue) {
  for_each_in_images(in.examples, in.image_size(), [&](index_t n, std::uint32_t i) {
    const image_place at = in.place(i);
    const covering_windows rows{at.h, windows.pad_top, windows.kernel_height, windows.stride_height, out.height};
    const covering_windows columns{at.w, windows.pad_left, windows.kernel_width, windows.stride_width, out.width};
    device_real<Element> sum = 0;
    for (std::int32_t p = rows.first; p <= rows.last; ++p) {
      for (std::int32_t q = columns.first; q <= columns.last; ++q) {
        const device_window window{windows, in, static_cast<std::uint32_t>(p), static_cast<std::uint32_t>(q)};
        const std::int32_t entries = count_padding ? windows.kernel_height * windows.kernel_width
                                                   : (window.bottom - window.top) * (window.right - window.left);
        sum += widen(dy[n * out.image_size() +
                        out.offset(at.c, static_cast<std::uint32_t>(p), static_cast<std::uint32_t>(q))]) /
               static_cast<device_real<Element>>(entries);
      }
    }
    const index_t place = n * in.image_size() + i;
    dx[place] = epilogue.apply(sum, dx, place);
  });
}

}  // namespace detail

/// See has_max_pool2d_forward.
template <network_element Element, layout_policy Layout>
void max_pool2d_forward(cuda& device, const pool2d_geometry& geometry, image_view<const Element, Layout, cuda> x,
                        image_view<Element, Layout, cuda> y, std::uint8_t* choice) {
  const auto out = detail::device_images<Layout>::of(y.extents());
  if (y.size() != 0) {
    launch(device, "max_pool2d_forward", detail::image_grid(out.examples, out.image_size()), detail::block_threads,
           &detail::max_pool_kernel<Layout, Element>, detail::device_windows{geometry},
           detail::device_images<Layout>::of(x.extents()), out, x.data(), y.data(), choice);
  }
}

/// See has_max_pool2d_backward.
template <network_element Element, layout_policy Layout>
void max_pool2d_backward(cuda& device, const pool2d_geometry& geometry, image_view<const Element, Layout, cuda> dy,
                         const std::uint8_t* choice, image_view<Element, Layout, cuda> dx,
                         const backward_epilogue<Element>& epilogue) {
  const auto in = detail::device_images<Layout>::of(dx.extents());
  if (dx.size() != 0) {
    launch(device, "max_pool2d_backward", detail::image_grid(in.examples, in.image_size()), detail::block_threads,
           &detail::max_pool_backward_kernel<Layout, Element>, detail::device_windows{geometry}, in,
           detail::device_images<Layout>::of(dy.extents()), dy.data(), choice, dx.data(),
           detail::device_epilogue<Element>{epilogue});
  }
}

/// See has_average_pool2d_forward.
template <network_element Element, layout_policy Layout>
void average_pool2d_forward(cuda& device, const pool2d_geometry& geometry, image_view<const Element, Layout, cuda> x,
                            image_view<Element, Layout, cuda> y, bool count_padding) {
  const auto out = detail::device_images<Layout>::of(y.extents());
  if (y.size() != 0) {
    launch(device, "average_pool2d_forward", detail::image_grid(out.examples, out.image_size()), detail::block_threads,
           &detail::average_pool_kernel<Layout, Element>, detail::device_windows{geometry},
           detail::device_images<Layout>::of(x.extents()), out, x.data(), y.data(), count_padding);
  }
}

/// See has_average_pool2d_backward.
template <network_element Element, layout_policy Layout>
void average_pool2d_backward(cuda& device, const pool2d_geometry& geometry, image_view<const Element, Layout, cuda> dy,
                             image_view<Element, Layout, cuda> dx, bool count_padding,
                             const backward_epilogue<Element>& epilogue) {
  const auto in = detail::device_images<Layout>::of(dx.extents());
  if (dx.size() != 0) {
    launch(device, "average_pool2d_backward", detail::image_grid(in.examples, in.image_size()), detail::block_threads,
           &detail::average_pool_backward_kernel<Layout, Element>, detail::device_windows{geometry}, in,
           detail::device_images<Layout>::of(dy.extents()), dy.data(), dx.data(), count_padding,
           detail::device_epilogue<Element>{epilogue});
  }
}

}  // namespace gradus::kernels

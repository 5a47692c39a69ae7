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

/// The kernel size, strides, dilation and padding of a pooling, in 32 bits.
struct device_windows {
  std::int32_t kernel_height, kernel_width;
  std::int32_t stride_height, stride_width;
  std::int32_t pad_top, pad_left;
  std::int32_t padded_height, padded_width;
  std::int32_t dilation_height, dilation_width;
  bool adaptive;

  explicit device_windows(const pool2d_geometry& g)
      : kernel_height{static_cast<std::int32_t>(g.kernel_height)},
        kernel_width{static_cast<std::int32_t>(g.kernel_width)},
        stride_height{static_cast<std::int32_t>(g.stride_height)},
        stride_width{static_cast<std::int32_t>(g.stride_width)},
        pad_top{static_cast<std::int32_t>(g.pad_top)},
        pad_left{static_cast<std::int32_t>(g.pad_left)},
        padded_height{static_cast<std::int32_t>(g.padded_height)},
        padded_width{static_cast<std::int32_t>(g.padded_width)},
        dilation_height{static_cast<std::int32_t>(g.dilation_height)},
        dilation_width{static_cast<std::int32_t>(g.dilation_width)},
        adaptive{g.adaptive} {}
};

/// floor(i * part / whole) and ceil(i * part / whole).
__device__ inline std::int32_t share_below(std::int64_t i, std::uint32_t part, std::uint32_t whole) {
  return static_cast<std::int32_t>(i * part / whole);
}
__device__ inline std::int32_t share_above(std::int64_t i, std::uint32_t part, std::uint32_t whole) {
  return static_cast<std::int32_t>((i * part + whole - 1) / whole);
}

/// The inputs under one kernel position along one axis: begin, begin + step and so on before end.
struct device_window {
  std::int32_t first, begin, end;  ///< first: of the whole kernel position

  __device__ device_window(std::uint32_t output, std::int32_t kernel, std::int32_t stride, std::int32_t pad,
                           std::int32_t dilation, std::uint32_t inputs, std::uint32_t outputs, bool adaptive) {
    if (adaptive) {
      first = begin = share_below(output, inputs, outputs);
      end = share_above(std::int64_t{output} + 1, inputs, outputs);
    } else {
      first = static_cast<std::int32_t>(output) * stride - pad;
      begin = first >= 0 ? first : first + (dilation - 1 - first) / dilation * dilation;
      end = least(first + (kernel - 1) * dilation + 1, static_cast<std::int32_t>(inputs));
    }
  }

  template <class Layout>
  __device__ static device_window rows(const device_windows& all, const device_images<Layout>& in,
                                       const device_images<Layout>& out, std::uint32_t p) {
    return {p,         all.kernel_height, all.stride_height, all.pad_top, all.dilation_height,
            in.height, out.height,        all.adaptive};
  }
  template <class Layout>
  __device__ static device_window columns(const device_windows& all, const device_images<Layout>& in,
                                          const device_images<Layout>& out, std::uint32_t q) {
    return {q, all.kernel_width, all.stride_width, all.pad_left, all.dilation_width, in.width, out.width, all.adaptive};
  }

  __device__ static std::int32_t least(std::int32_t a, std::int32_t b) { return a < b ? a : b; }
};

/// What a mean is divided by.
template <class Layout>
__device__ std::int32_t divisor_of(const device_windows& all, const device_images<Layout>& in,
                                   const device_images<Layout>& out, std::uint32_t p, std::uint32_t q,
                                   bool count_padding) {
  if (!count_padding) {
    const device_window rows = device_window::rows(all, in, out, p);
    const device_window columns = device_window::columns(all, in, out, q);
    return (rows.end - rows.begin) * (columns.end - columns.begin);
  }
  const auto along = [](std::uint32_t output, std::int32_t kernel, std::int32_t stride, std::int32_t padded) {
    return padded == 0 ? kernel : device_window::least(kernel, padded - static_cast<std::int32_t>(output) * stride);
  };
  return along(p, all.kernel_height, all.stride_height, all.padded_height) *
         along(q, all.kernel_width, all.stride_width, all.padded_width);
}

/// The outputs along one axis whose kernels cover an input: [first, last].
struct covering_windows {
  std::int32_t first, last;

  __device__ covering_windows(std::uint32_t coordinate, std::int32_t pad, std::int32_t kernel, std::int32_t stride,
                              std::int32_t dilation, std::uint32_t inputs, std::uint32_t outputs, bool adaptive) {
    if (adaptive) {
      first = share_below(coordinate, outputs, inputs);
      last = share_above(std::int64_t{coordinate} + 1, outputs, inputs) - 1;
    } else {
      const std::int32_t padded = static_cast<std::int32_t>(coordinate) + pad;
      const std::int32_t reach = (kernel - 1) * dilation + 1;
      first = padded < reach ? 0 : (padded - reach) / stride + 1;
      last = device_window::least(padded / stride, static_cast<std::int32_t>(outputs) - 1);
    }
  }

  template <class Layout>
  __device__ static covering_windows rows(const device_windows& all, const device_images<Layout>& in,
                                          const device_images<Layout>& out, std::uint32_t h) {
    return {h,         all.pad_top, all.kernel_height, all.stride_height, all.dilation_height,
            in.height, out.height,  all.adaptive};
  }
  template <class Layout>
  __device__ static covering_windows columns(const device_windows& all, const device_images<Layout>& in,
                                             const device_images<Layout>& out, std::uint32_t w) {
    return {w, all.pad_left, all.kernel_width, all.stride_width, all.dilation_width, in.width, out.width, all.adaptive};
  }
};

template <class Layout, class Element>
__global__ void max_pool_kernel(device_windows windows, device_images<Layout> in, device_images<Layout> out,
                                const Element* x, Element* y, std::uint8_t* choice) {
  for_each_in_images(out.examples, out.image_size(), [&](index_t n, std::uint32_t i) {
    const image_position at = out.position(i);
    const device_window rows = device_window::rows(windows, in, out, at.h);
    const device_window columns = device_window::columns(windows, in, out, at.w);
    const Element* const image = x + n * in.image_size();
    device_real<Element> largest = 0;
    std::int32_t best = -1;
    for (std::int32_t h = rows.begin; h < rows.end; h += windows.dilation_height) {
      for (std::int32_t w = columns.begin; w < columns.end; w += windows.dilation_width) {
        const device_real<Element> value =
            widen(image[in.offset(at.c, static_cast<std::uint32_t>(h), static_cast<std::uint32_t>(w))]);
        if (best < 0 || value > largest || (value != value && largest == largest)) {  // the first NaN is kept
          largest = value;
          best = (h - rows.first) / windows.dilation_height * windows.kernel_width +
                 (w - columns.first) / windows.dilation_width;
        }
      }
    }
    const index_t offset = n * out.image_size() + i;
    y[offset] = narrow<Element>(largest);
    if (choice != nullptr) {
      choice[offset] = static_cast<std::uint8_t>(best);
    }
  });
}

template <class Layout, class Element>
__global__ void max_pool_backward_kernel(device_windows windows, device_images<Layout> in, device_images<Layout> out,
                                         const Element* dy, const std::uint8_t* choice, Element* dx,
                                         device_epilogue<Element> epilogue) {
  for_each_in_images(in.examples, in.image_size(), [&](index_t n, std::uint32_t i) {
    const image_position at = in.position(i);
    const covering_windows rows = covering_windows::rows(windows, in, out, at.h);
    const covering_windows columns = covering_windows::columns(windows, in, out, at.w);
    device_real<Element> sum = 0;
    for (std::int32_t p = rows.first; p <= rows.last; ++p) {
      for (std::int32_t q = columns.first; q <= columns.last; ++q) {
        const index_t offset =
            n * out.image_size() + out.offset(at.c, static_cast<std::uint32_t>(p), static_cast<std::uint32_t>(q));
        const std::int32_t row = static_cast<std::int32_t>(at.h) -
                                 device_window::rows(windows, in, out, static_cast<std::uint32_t>(p)).first;
        const std::int32_t column = static_cast<std::int32_t>(at.w) -
                                    device_window::columns(windows, in, out, static_cast<std::uint32_t>(q)).first;
        const bool entry = row % windows.dilation_height == 0 && column % windows.dilation_width == 0;
        if (entry &&
            choice[offset] == row / windows.dilation_height * windows.kernel_width + column / windows.dilation_width) {
          sum += widen(dy[offset]);
        }
      }
    }
    const index_t offset = n * in.image_size() + i;
    dx[offset] = epilogue.apply(sum, dx, offset);
  });
}

template <class Layout, class Element>
__global__ void average_pool_kernel(device_windows windows, device_images<Layout> in, device_images<Layout> out,
                                    const Element* x, Element* y, bool count_padding) {
  for_each_in_images(out.examples, out.image_size(), [&](index_t n, std::uint32_t i) {
    const image_position at = out.position(i);
    const device_window rows = device_window::rows(windows, in, out, at.h);
    const device_window columns = device_window::columns(windows, in, out, at.w);
    const Element* const image = x + n * in.image_size();
    device_real<Element> sum = 0;
    for (std::int32_t h = rows.begin; h < rows.end; ++h) {
      for (std::int32_t w = columns.begin; w < columns.end; ++w) {
        sum += widen(image[in.offset(at.c, static_cast<std::uint32_t>(h), static_cast<std::uint32_t>(w))]);
      }
    }
    const std::int32_t entries = divisor_of(windows, in, out, at.h, at.w, count_padding);
    y[n * out.image_size() + i] = narrow<Element>(sum / static_cast<device_real<Element>>(entries));
  });
}

template <class Layout, class Element>
__global__ void average_pool_backward_kernel(device_windows windows, device_images<Layout> in,
                                             device_images<Layout> out, const Element* dy, Element* dx,
                                             bool count_padding, device_epilogue<Element> epilogue) {
  for_each_in_images(in.examples, in.image_size(), [&](index_t n, std::uint32_t i) {
    const image_position at = in.position(i);
    const covering_windows rows = covering_windows::rows(windows, in, out, at.h);
    const covering_windows columns = covering_windows::columns(windows, in, out, at.w);
    device_real<Element> sum = 0;
    for (std::int32_t p = rows.first; p <= rows.last; ++p) {
      for (std::int32_t q = columns.first; q <= columns.last; ++q) {
        const std::int32_t entries =
            divisor_of(windows, in, out, static_cast<std::uint32_t>(p), static_cast<std::uint32_t>(q), count_padding);
        sum += widen(dy[n * out.image_size() +
                        out.offset(at.c, static_cast<std::uint32_t>(p), static_cast<std::uint32_t>(q))]) /
               static_cast<device_real<Element>>(entries);
      }
    }
    const index_t offset = n * in.image_size() + i;
    dx[offset] = epilogue.apply(sum, dx, offset);
  });
}

}  // namespace detail

/// Implements has_max_pool2d_forward on a GPU.
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

/// Implements has_max_pool2d_backward on a GPU.
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

/// Implements has_average_pool2d_forward on a GPU.
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

/// Implements has_average_pool2d_backward on a GPU.
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

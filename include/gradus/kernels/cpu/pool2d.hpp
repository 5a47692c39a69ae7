// SPDX-License-Identifier: BSL-1.0
//
// Maximum and average pooling on the CPU.
// Module: kernels. Depends on: tensor.
#pragma once

#include <algorithm>    // std::max
#include <array>        // std::array
#include <cstdint>      // std::uint8_t
#include <type_traits>  // std::type_identity_t

#include "gradus/core/element.hpp"                // real_element
#include "gradus/core/index.hpp"                  // index_t
#include "gradus/device/cpu.hpp"                  // cpu
#include "gradus/kernels/conv2d.hpp"              // backward_epilogue
#include "gradus/kernels/cpu/pool2d_pixels.hpp"   // max_pixels, ...
#include "gradus/kernels/cpu/pool2d_planes.hpp"   // max_plane, ...
#include "gradus/kernels/cpu/pool2d_windows.hpp"  // pool_divisors, pool_rows, ...
#include "gradus/kernels/pool2d.hpp"              // pool2d_geometry
#include "gradus/layout/layout_policy.hpp"        // axis, layout_policy
#include "gradus/layout/mapping.hpp"              // dense_mapping
#include "gradus/tensor/tensor_view.hpp"          // image_view

namespace gradus::kernels {

namespace detail {

/// How a layout is worked on: pixel by pixel, plane by plane, or, for others, element by element.
template <class Layout>
inline constexpr bool pools_pixels = Layout::order == std::array{axis::n, axis::h, axis::w, axis::c};
template <class Layout>
inline constexpr bool pools_planes = Layout::order == std::array{axis::n, axis::c, axis::h, axis::w};

/// Calls body(unit) for every unit (a row of an image or a plane) of `cost` steps, on all threads.
template <class Body>
void for_each_pool_unit(cpu& device, index_t units, index_t cost, const Body& body) {
  const index_t grain = std::max(index_t{1}, (index_t{1} << 15U) / std::max(index_t{1}, cost));
  device.parallel_for(units, grain, body);
}

/// dx with the epilogue's mask, element by element.
template <class Element, class Layout>
void finish_plane(const dense_mapping<Layout>& at, index_t n, index_t c, const backward_epilogue<Element>& epilogue,
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

template <class Element>
[[nodiscard]] backward_epilogue<Element> epilogue_from(backward_epilogue<Element> epilogue, index_t offset) noexcept {
  epilogue.relu_output += epilogue.relu_output == nullptr ? 0 : offset;
  return epilogue;
}

/// Any layout and any size, element by element: what the faster paths do not take.
template <class Element, class Layout>
void max_plane_by_element(const pool2d_geometry& g, const dense_mapping<Layout>& in, const dense_mapping<Layout>& out,
                          index_t n, index_t c, const Element* x, Element* y, std::uint8_t* choice) {
  for (index_t p = 0; p < g.out_height; ++p) {
    const pool_range rows = pool_rows(g, p);
    for (index_t q = 0; q < g.out_width; ++q) {
      const pool_range columns = pool_columns(g, q);
      Element best = x[in(n, c, rows.start + rows.begin, columns.start + columns.begin)];
      index_t chosen = rows.begin * g.kernel_width + columns.begin;
      for (index_t r = rows.begin; r < rows.end; ++r) {
        for (index_t s = columns.begin; s < columns.end; ++s) {
          const Element value = x[in(n, c, rows.start + r, columns.start + s)];
          if (value > best || (value != value && best == best)) {
            best = value;
            chosen = r * g.kernel_width + s;
          }
        }
      }
      const index_t i = out(n, c, p, q);
      y[i] = best;
      if (choice != nullptr) {
        choice[i] = static_cast<std::uint8_t>(chosen);
      }
    }
  }
}

template <class Element, class Layout>
void max_slopes_plane_by_element(const pool2d_geometry& g, const dense_mapping<Layout>& in,
                                 const dense_mapping<Layout>& out, index_t n, index_t c, const Element* dy,
                                 const std::uint8_t* choice, Element* dx, const backward_epilogue<Element>& epilogue) {
  if (!epilogue.accumulate) {
    clear_plane(in, n, c, dx);
  }
  for (index_t p = 0; p < g.out_height; ++p) {
    for (index_t q = 0; q < g.out_width; ++q) {
      const index_t i = out(n, c, p, q);
      const index_t r = choice[i] / g.kernel_width;
      const index_t s = choice[i] % g.kernel_width;
      dx[in(n, c, p * g.stride_height - g.pad_top + r, q * g.stride_width - g.pad_left + s)] += dy[i];
    }
  }
  finish_plane(in, n, c, epilogue, dx);
}

/// Calls body(h, w) for the entries of the window (p, q), and returns their number.
template <class Body>
index_t for_each_entry(const pool2d_geometry& g, index_t p, index_t q, const Body& body) {
  const pool_range rows = pool_rows(g, p);
  const pool_range columns = pool_columns(g, q);
  for (index_t r = rows.begin; r < rows.end; ++r) {
    for (index_t s = columns.begin; s < columns.end; ++s) {
      body(rows.start + r, columns.start + s);
    }
  }
  return (rows.end - rows.begin) * (columns.end - columns.begin);
}

template <class Element, class Layout>
void average_plane_by_element(const pool2d_geometry& g, const dense_mapping<Layout>& in,
                              const dense_mapping<Layout>& out, index_t n, index_t c, const Element* x, Element* y,
                              bool count_padding) {
  for (index_t p = 0; p < g.out_height; ++p) {
    for (index_t q = 0; q < g.out_width; ++q) {
      Element sum = 0;
      const index_t entries = for_each_entry(g, p, q, [&](index_t h, index_t w) { sum += x[in(n, c, h, w)]; });
      y[out(n, c, p, q)] = sum / static_cast<Element>(count_padding ? g.kernel_height * g.kernel_width : entries);
    }
  }
}

template <class Element, class Layout>
void average_slopes_plane_by_element(const pool2d_geometry& g, const dense_mapping<Layout>& in,
                                     const dense_mapping<Layout>& out, index_t n, index_t c, const Element* dy,
                                     Element* dx, bool count_padding, const backward_epilogue<Element>& epilogue) {
  if (!epilogue.accumulate) {
    clear_plane(in, n, c, dx);
  }
  for (index_t p = 0; p < g.out_height; ++p) {
    for (index_t q = 0; q < g.out_width; ++q) {
      const index_t inside = for_each_entry(g, p, q, [](index_t, index_t) {});
      const Element share =
          dy[out(n, c, p, q)] / static_cast<Element>(count_padding ? g.kernel_height * g.kernel_width : inside);
      for_each_entry(g, p, q, [&](index_t h, index_t w) { dx[in(n, c, h, w)] += share; });
    }
  }
  finish_plane(in, n, c, epilogue, dx);
}

}  // namespace detail

/// See kernels/pool2d.hpp.
template <real_element Element, layout_policy Layout>
void max_pool2d_forward(cpu& device, const pool2d_geometry& shape,
                        std::type_identity_t<image_view<const Element, Layout, cpu>> x,
                        image_view<Element, Layout, cpu> y, std::uint8_t* choice) {
  const index_t images = y.extent(axis::n);
  const index_t in_plane = shape.in_height * shape.in_width;
  const index_t out_plane = shape.out_height * shape.out_width;
  const index_t entries = shape.kernel_height * shape.kernel_width;
  if constexpr (detail::pools_pixels<Layout>) {
    const index_t row = shape.out_width * shape.channels;
    detail::for_each_pool_unit(device, images * shape.out_height, row * entries, [&](index_t begin, index_t end) {
      for (index_t unit = begin; unit < end; ++unit) {
        const Element* const image = x.data() + unit / shape.out_height * in_plane * shape.channels;
        if (choice == nullptr) {
          detail::max_pixels<false>(shape, unit % shape.out_height, image, y.data() + unit * row, choice);
        } else {
          detail::max_pixels<true>(shape, unit % shape.out_height, image, y.data() + unit * row, choice + unit * row);
        }
      }
    });
    return;
  }
  const detail::pool_phases<Element> phases{shape};
  if (detail::pools_planes<Layout> && phases.fits(shape, shape.kernel_height)) {
    detail::for_each_pool_unit(device, images * shape.channels, out_plane * entries, [&](index_t begin, index_t end) {
      detail::pool_buffers<Element> buffers{shape, phases};
      for (index_t plane = begin; plane < end; ++plane) {
        const Element* const from = x.data() + plane * in_plane;
        Element* const to = y.data() + plane * out_plane;
        if (choice == nullptr) {
          detail::max_plane<false>(shape, phases, buffers, from, to, choice);
        } else {
          detail::max_plane<true>(shape, phases, buffers, from, to, choice + plane * out_plane);
        }
      }
    });
    return;
  }
  const dense_mapping<Layout> in{shape.input(images)};
  const dense_mapping<Layout> out{shape.output(images)};
  detail::for_each_pool_unit(device, images * shape.channels, out_plane * entries, [&](index_t begin, index_t end) {
    for (index_t plane = begin; plane < end; ++plane) {
      detail::max_plane_by_element(shape, in, out, plane / shape.channels, plane % shape.channels, x.data(), y.data(),
                                   choice);
    }
  });
}

/// See kernels/pool2d.hpp.
template <real_element Element, layout_policy Layout>
void max_pool2d_backward(cpu& device, const pool2d_geometry& shape,
                         std::type_identity_t<image_view<const Element, Layout, cpu>> dy, const std::uint8_t* choice,
                         image_view<Element, Layout, cpu> dx,
                         const std::type_identity_t<backward_epilogue<Element>>& epilogue) {
  const index_t images = dx.extent(axis::n);
  const index_t in_plane = shape.in_height * shape.in_width;
  const index_t out_plane = shape.out_height * shape.out_width;
  const index_t entries = shape.kernel_height * shape.kernel_width;
  if constexpr (detail::pools_pixels<Layout>) {
    const index_t row = shape.in_width * shape.channels;
    detail::for_each_pool_unit(device, images * shape.in_height, 2 * row, [&](index_t begin, index_t end) {
      for (index_t unit = begin; unit < end; ++unit) {
        const index_t image = unit / shape.in_height * out_plane * shape.channels;
        detail::max_slopes_pixels(shape, unit % shape.in_height, dy.data() + image, choice + image,
                                  dx.data() + unit * row, detail::epilogue_from<Element>(epilogue, unit * row));
      }
    });
    return;
  }
  const detail::pool_phases<Element> phases{shape};
  if (detail::pools_planes<Layout> && phases.fits(shape, 1)) {
    detail::for_each_pool_unit(device, images * shape.channels, out_plane * entries, [&](index_t begin, index_t end) {
      detail::pool_buffers<Element> buffers{shape, phases};
      for (index_t plane = begin; plane < end; ++plane) {
        detail::max_slopes_plane(shape, phases, buffers, dy.data() + plane * out_plane, choice + plane * out_plane,
                                 dx.data() + plane * in_plane,
                                 detail::epilogue_from<Element>(epilogue, plane * in_plane));
      }
    });
    return;
  }
  const dense_mapping<Layout> in{shape.input(images)};
  const dense_mapping<Layout> out{shape.output(images)};
  detail::for_each_pool_unit(device, images * shape.channels, out_plane * entries, [&](index_t begin, index_t end) {
    for (index_t plane = begin; plane < end; ++plane) {
      detail::max_slopes_plane_by_element<Element>(shape, in, out, plane / shape.channels, plane % shape.channels,
                                                   dy.data(), choice, dx.data(), epilogue);
    }
  });
}

/// See kernels/pool2d.hpp.
template <real_element Element, layout_policy Layout>
void average_pool2d_forward(cpu& device, const pool2d_geometry& shape,
                            std::type_identity_t<image_view<const Element, Layout, cpu>> x,
                            image_view<Element, Layout, cpu> y, bool count_padding) {
  const index_t images = y.extent(axis::n);
  const index_t in_plane = shape.in_height * shape.in_width;
  const index_t out_plane = shape.out_height * shape.out_width;
  const index_t entries = shape.kernel_height * shape.kernel_width;
  const detail::pool_phases<Element> phases{shape};
  if (detail::pools_pixels<Layout> && detail::pool_divisors<Element>::fits(shape)) {
    const index_t row = shape.out_width * shape.channels;
    detail::for_each_pool_unit(device, images * shape.out_height, row * entries, [&](index_t begin, index_t end) {
      const detail::pool_divisors<Element> divisors{shape, count_padding};
      for (index_t unit = begin; unit < end; ++unit) {
        const Element* const image = x.data() + unit / shape.out_height * in_plane * shape.channels;
        detail::average_pixels(shape, unit % shape.out_height, image, y.data() + unit * row, divisors);
      }
    });
  } else if (detail::pools_planes<Layout> && phases.fits(shape, 1) && detail::pool_divisors<Element>::fits(shape)) {
    detail::for_each_pool_unit(device, images * shape.channels, in_plane, [&](index_t begin, index_t end) {
      const detail::pool_divisors<Element> divisors{shape, count_padding};
      detail::pool_buffers<Element> buffers{shape, phases};
      for (index_t plane = begin; plane < end; ++plane) {
        detail::average_plane(shape, phases, buffers, x.data() + plane * in_plane, y.data() + plane * out_plane,
                              divisors);
      }
    });
  } else {
    const dense_mapping<Layout> in{shape.input(images)};
    const dense_mapping<Layout> out{shape.output(images)};
    detail::for_each_pool_unit(device, images * shape.channels, out_plane * entries, [&](index_t begin, index_t end) {
      for (index_t plane = begin; plane < end; ++plane) {
        detail::average_plane_by_element(shape, in, out, plane / shape.channels, plane % shape.channels, x.data(),
                                         y.data(), count_padding);
      }
    });
  }
}

/// See kernels/pool2d.hpp.
template <real_element Element, layout_policy Layout>
void average_pool2d_backward(cpu& device, const pool2d_geometry& shape,
                             std::type_identity_t<image_view<const Element, Layout, cpu>> dy,
                             image_view<Element, Layout, cpu> dx, bool count_padding,
                             const std::type_identity_t<backward_epilogue<Element>>& epilogue) {
  const index_t images = dx.extent(axis::n);
  const index_t in_plane = shape.in_height * shape.in_width;
  const index_t out_plane = shape.out_height * shape.out_width;
  const detail::pool_phases<Element> phases{shape};
  if (detail::pools_pixels<Layout> && detail::pool_divisors<Element>::fits(shape)) {
    const index_t row = shape.in_width * shape.channels;
    detail::for_each_pool_unit(device, images * shape.in_height, 2 * row, [&](index_t begin, index_t end) {
      const detail::pool_divisors<Element> divisors{shape, count_padding};
      for (index_t unit = begin; unit < end; ++unit) {
        detail::average_slopes_pixels(
            shape, unit % shape.in_height, dy.data() + unit / shape.in_height * out_plane * shape.channels,
            dx.data() + unit * row, divisors, detail::epilogue_from<Element>(epilogue, unit * row));
      }
    });
  } else if (detail::pools_planes<Layout> && phases.fits(shape, 1) && detail::pool_divisors<Element>::fits(shape)) {
    detail::for_each_pool_unit(device, images * shape.channels, in_plane, [&](index_t begin, index_t end) {
      const detail::pool_divisors<Element> divisors{shape, count_padding};
      detail::pool_buffers<Element> buffers{shape, phases};
      for (index_t plane = begin; plane < end; ++plane) {
        detail::average_slopes_plane(shape, phases, buffers, dy.data() + plane * out_plane,
                                     dx.data() + plane * in_plane, divisors,
                                     detail::epilogue_from<Element>(epilogue, plane * in_plane));
      }
    });
  } else {
    const dense_mapping<Layout> in{shape.input(images)};
    const dense_mapping<Layout> out{shape.output(images)};
    detail::for_each_pool_unit(device, images * shape.channels, in_plane, [&](index_t begin, index_t end) {
      for (index_t plane = begin; plane < end; ++plane) {
        detail::average_slopes_plane_by_element<Element>(shape, in, out, plane / shape.channels, plane % shape.channels,
                                                         dy.data(), dx.data(), count_padding, epilogue);
      }
    });
  }
}

}  // namespace gradus::kernels

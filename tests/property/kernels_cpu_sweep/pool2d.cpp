// SPDX-License-Identifier: BSL-1.0
//
// Pooling against its definition: windows, strides, paddings and extents of every special path. See
// tests/support/sweep.hpp.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "gradus/kernels/cpu/pool2d.hpp"
#include "support.hpp"

namespace {

using namespace kernel_sweep;
using gradus::kernels::pool2d_geometry;

struct pool_axis {
  index_t in = 1;
  index_t out = 1;
  index_t kernel = 1;
  index_t stride = 1;
  index_t pad = 0;
  index_t dilation = 1;
  index_t padded = 0;
};

/// What all axes of a pooling have in common.
enum class windows { plain, halves, dilated, padded, adaptive };

/// The first input under the window of an output, and one past the last.
std::pair<index_t, index_t> adaptive_window(index_t output, index_t in, index_t out) {
  const double share = static_cast<double>(in) / static_cast<double>(out);
  const auto begin = static_cast<index_t>(std::floor(static_cast<double>(output) * share + 1e-9));
  const auto end = static_cast<index_t>(std::ceil(static_cast<double>(output + 1) * share - 1e-9));
  return {begin, end};
}

/// Whether all windows have an entry inside.
bool holds_entries(const pool_axis& axis) {
  for (index_t p = 0; p < axis.out; ++p) {
    bool any = false;
    for (index_t r = 0; r < axis.kernel; ++r) {
      const index_t h = p * axis.stride - axis.pad + r * axis.dilation;
      any = any || (h >= 0 && h < axis.in);
    }
    if (!any) {
      return false;
    }
  }
  return true;
}

/// Windows along one axis, each with an entry inside; the last ones may reach over the end, or leave some inputs out.
pool_axis draw_axis(sweep_case& test, index_t in, windows kind) {
  const bool halves = kind == windows::halves;
  pool_axis axis{.in = test.note("in", in)};
  if (kind == windows::adaptive) {
    axis.out = 1 + test.below(test.once_in(4) ? 2 * in : in);
    axis.stride = (in + axis.out - 1) / axis.out;
    for (index_t p = 0; p < axis.out; ++p) {
      const auto [begin, end] = adaptive_window(p, in, axis.out);
      axis.kernel = std::max(axis.kernel, end - begin);
    }
    axis.out = axis.kernel > 16 ? axis.in : axis.out;  // at most 256 entries
    axis.kernel = axis.kernel > 16 ? 1 : axis.kernel;
    axis.stride = axis.out == axis.in ? 1 : axis.stride;
  } else if (halves && in >= 2) {
    axis.kernel = 2;
    axis.stride = 2;
    axis.out = in / 2;
  } else {
    axis.kernel = test.once_in(16) ? 8 + test.below(9) : 1 + test.below(7);
    axis.stride = test.once_in(16) ? 4 + test.below(3) : 1 + test.below(3);
    axis.pad = test.once_in(2) ? 0 : test.below(axis.kernel);
    const index_t most = (in - 1 + axis.pad) / axis.stride + 1;
    const index_t whole = std::clamp<index_t>((in + axis.pad - axis.kernel) / axis.stride + 1, 1, most);
    axis.out = test.once_in(3) ? most : test.once_in(2) ? whole : 1 + test.below(most);
    if (kind == windows::padded) {  // as with ceil_mode
      axis.padded = axis.pad + in + test.below(axis.kernel);
      axis.padded = std::max(axis.padded, (axis.out - 1) * axis.stride + 1);
    }
    if (kind == windows::dilated) {
      axis.dilation = 1 + test.below(4);
      axis.pad = test.below((axis.kernel - 1) * axis.dilation + 1);
      axis.out = 1 + test.below((in - 1 + axis.pad) / axis.stride + 1);
      if (!holds_entries(axis)) {
        axis.pad = 0;
        axis.out = 1 + test.below((in - 1) / axis.stride + 1);
      }
    }
  }
  test.note("out", axis.out);
  test.note("kernel", axis.kernel);
  test.note("stride", axis.stride);
  test.note("pad", axis.pad);
  test.note("dilation", axis.dilation);
  test.note("padded", axis.padded);
  return axis;
}

struct pooling {
  image_extents in;
  image_extents out;
  pool2d_geometry shape;
};

/// Small images, lines, and once in a while what is larger than the buffers in which channels are turned: bands of some
/// rows of 2048 pixels, rows of 1024.
pooling draw_pooling(sweep_case& test, windows other) {
  const windows kind = test.once_in(6)   ? windows::halves
                       : test.once_in(4) ? windows::adaptive
                       : test.once_in(3) ? other
                                         : windows::plain;
  index_t height = 1 + test.below(9);
  index_t width = 1 + test.below(9);
  index_t most = 12000;  // elements of a batch, to keep a case short
  if (test.once_in(8)) {
    (test.once_in(2) ? height : width) = 1;
    (height == 1 ? width : height) = 1 + test.below(129);
  } else if (test.once_in(100)) {
    height = 1 + test.below(4);
    width = (test.once_in(2) ? 1020 : 2044) + test.below(9);
    most = 40000;
  } else if (test.once_in(100)) {
    height = 20 + test.below(90);
    width = 20 + test.below(60);
    most = 100000;
  }
  const pool_axis rows = draw_axis(test, height, kind);
  const pool_axis columns = draw_axis(test, width, kind);
  const index_t work = std::max(height * width, rows.out * columns.out * rows.kernel * columns.kernel / 8);
  index_t images = 1 + test.below(3);
  index_t channels =
      test.once_in(3) ? std::array<index_t, 8>{15, 16, 17, 20, 31, 32, 33, 48}[static_cast<std::size_t>(test.below(8))]
                      : 1 + test.below(9);
  while (images * channels * work > most && images * channels > 1) {
    (images > 1 ? images : channels) -= 1;
  }
  images = test.once_in(200) ? 0 : images;
  test.note("images", images);
  test.note("channels", channels);
  const pool2d_geometry shape{.channels = channels,
                              .in_height = rows.in,
                              .in_width = columns.in,
                              .out_height = rows.out,
                              .out_width = columns.out,
                              .kernel_height = rows.kernel,
                              .kernel_width = columns.kernel,
                              .stride_height = rows.stride,
                              .stride_width = columns.stride,
                              .pad_top = rows.pad,
                              .pad_left = columns.pad,
                              .padded_height = rows.padded,
                              .padded_width = columns.padded,
                              .dilation_height = rows.dilation,
                              .dilation_width = columns.dilation,
                              .adaptive = kind == windows::adaptive};
  return {shape.input(images), shape.output(images), shape};
}

/// Calls body(offset of an entry inside the image, its number) for the window of (n, c, p, q), in the window's order.
template <class Layout, class Body>
void for_each_entry(const pooling& pool, const gradus::dense_mapping<Layout>& in, index_t n, index_t c, index_t p,
                    index_t q, const Body& body) {
  const pool2d_geometry& g = pool.shape;
  if (g.adaptive) {
    const auto [top, bottom] = adaptive_window(p, g.in_height, g.out_height);
    const auto [left, right] = adaptive_window(q, g.in_width, g.out_width);
    for (index_t h = top; h < bottom; ++h) {
      for (index_t w = left; w < right; ++w) {
        body(static_cast<std::size_t>(in(n, c, h, w)), (h - top) * g.kernel_width + (w - left));
      }
    }
    return;
  }
  for (index_t r = 0; r < g.kernel_height; ++r) {
    for (index_t s = 0; s < g.kernel_width; ++s) {
      const index_t h = p * g.stride_height - g.pad_top + r * g.dilation_height;
      const index_t w = q * g.stride_width - g.pad_left + s * g.dilation_width;
      if (h >= 0 && w >= 0 && h < g.in_height && w < g.in_width) {
        body(static_cast<std::size_t>(in(n, c, h, w)), r * g.kernel_width + s);
      }
    }
  }
}

/// The positions of a window that are in the image or its padding.
index_t counted(index_t output, index_t kernel, index_t stride, index_t padded) {
  index_t count = 0;
  for (index_t r = 0; r < kernel; ++r) {
    count += padded == 0 || output * stride + r < padded ? 1 : 0;
  }
  return count;
}

/// What a backward pass does with its sums, which are exact but for `inexact` in proportion.
template <class Element, class Layout, class Run>
void check_gradients(sweep_case& test, cpu& device, const pooling& pool, const std::vector<double>& sums,
                     const std::vector<double>& sizes, double inexact, const Run& run) {
  const bool accumulate = test.flip("accumulate");
  const auto mask = filled<Element>(test, test.flip("mask") ? pool.in.size() : 0, test.once_in(4) ? 9 : 0);
  auto dx = test.array<Element>(pool.in.size());
  if (accumulate) {
    fill(test, dx, test.once_in(8) ? 9 : 0);
  }
  const std::vector<double> before = doubles(dx);
  const bool masks = mask.size() == dx.size() && dx.size() > 0;
  run(image_view<Element, Layout>{device, dx.data(), pool.in},
      gradus::kernels::backward_epilogue<Element>{accumulate, masks ? mask.data() : nullptr});
  std::vector<double> expected(sums.size());
  std::vector<double> allowed(sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const double value = accumulate ? sums[i] + before[i] : sums[i];
    const bool masked = masks && !(static_cast<double>(mask[i]) > 0);
    expected[i] = masked ? 0.0 : value;
    if (inexact == 0.0) {
      expected[i] = static_cast<double>(stored<Element>(expected[i]));
    } else if (!masked) {
      constexpr double once = sizeof(Element) == 8 ? 2 : 1;  // in double the reference rounds too
      allowed[i] = inexact * sizes[i] + once * rounding_of<Element>(value);
    }
  }
  all_agree(test, "dx", dx, expected, [&](std::size_t i) { return allowed[i]; });
}

template <class Element, class Layout>
void check_maximum(sweep_case& test) {
  cpu& device = device_of(test);
  const pooling pool = draw_pooling(test, windows::dilated);
  const auto x = filled<Element>(test, pool.in.size(), test.once_in(4) ? 1 + test.below(20) : 0);
  auto y = test.array<Element>(pool.out.size());
  const bool wants_choice = !test.flip("no choice", 4);
  auto choice = test.array<std::uint8_t>(pool.out.size());
  max_pool2d_forward(device, pool.shape, image_view<const Element, Layout>{device, x.data(), pool.in},
                     image_view<Element, Layout>{device, y.data(), pool.out}, wants_choice ? choice.data() : nullptr);
  const gradus::dense_mapping<Layout> in{pool.in};
  const gradus::dense_mapping<Layout> out{pool.out};
  auto dy = filled<Element>(test, pool.out.size(), test.once_in(4) ? 9 : 0);
  std::vector<double> largest(y.size());
  std::vector<double> chosen(y.size());
  std::vector<double> sums(x.size());
  for_each_coordinate(pool.out, [&](index_t n, index_t c, index_t p, index_t q) {
    const auto i = static_cast<std::size_t>(out(n, c, p, q));
    double best = 0;
    index_t entry = -1;
    std::size_t offset = 0;
    for_each_entry(pool, in, n, c, p, q, [&](std::size_t at, index_t number) {
      const auto value = static_cast<double>(x[at]);
      if (entry < 0 || value > best || (std::isnan(value) && !std::isnan(best))) {
        best = value;
        entry = number;
        offset = at;
      }
    });
    largest[i] = best;
    chosen[i] = static_cast<double>(entry);
    sums[offset] += static_cast<double>(dy[i]);
  });
  all_equal(test, "y", y, largest);
  for (std::size_t i = 0; i < y.size(); ++i) {  // of 0 and -0 the first too
    if (largest[i] == 0 && std::signbit(static_cast<double>(y[i])) != std::signbit(largest[i])) {
      test.fail("a zero has the other sign");
      break;
    }
  }
  if (wants_choice) {
    all_equal(test, "choice", choice, chosen);
  } else {
    all_equal(test, "choice", choice, std::vector<double>(choice.size(), 255.0));
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      choice[i] = static_cast<std::uint8_t>(chosen[i]);
    }
  }
  check_gradients<Element, Layout>(test, device, pool, sums, {}, 0, [&](const auto& dx, const auto& epilogue) {
    max_pool2d_backward(device, pool.shape, image_view<const Element, Layout>{device, dy.data(), pool.out},
                        choice.data(), dx, epilogue);
  });
}

template <class Element, class Layout>
void check_average(sweep_case& test) {
  cpu& device = device_of(test);
  const pooling pool = draw_pooling(test, windows::padded);
  const bool count_padding = test.flip("count_padding") && !pool.shape.adaptive;
  const auto x = filled<Element>(test, pool.in.size(), test.once_in(8) ? 9 : 0);
  auto y = test.array<Element>(pool.out.size());
  average_pool2d_forward(device, pool.shape, image_view<const Element, Layout>{device, x.data(), pool.in},
                         image_view<Element, Layout>{device, y.data(), pool.out}, count_padding);
  const gradus::dense_mapping<Layout> in{pool.in};
  const gradus::dense_mapping<Layout> out{pool.out};
  const auto dy = filled<Element>(test, pool.out.size(), test.once_in(8) ? 9 : 0);
  std::vector<double> means(y.size());
  std::vector<double> sums(x.size());
  std::vector<double> sizes(x.size());
  for_each_coordinate(pool.out, [&](index_t n, index_t c, index_t p, index_t q) {
    const auto i = static_cast<std::size_t>(out(n, c, p, q));
    double sum = 0;
    index_t entries = 0;
    for_each_entry(pool, in, n, c, p, q, [&](std::size_t at, index_t) {
      sum += static_cast<double>(x[at]);
      ++entries;
    });
    if (count_padding) {
      const pool2d_geometry& g = pool.shape;
      entries = counted(p, g.kernel_height, g.stride_height, g.padded_height) *
                counted(q, g.kernel_width, g.stride_width, g.padded_width);
    }
    const auto divisor = static_cast<double>(entries);
    means[i] = sum / divisor;
    for_each_entry(pool, in, n, c, p, q, [&](std::size_t at, index_t) {
      sums[at] += static_cast<double>(dy[i]) / divisor;
      sizes[at] += std::abs(static_cast<double>(dy[i])) / divisor;
    });
  });
  // Sums are exact; the quotient, and the product with it, are rounded.
  using real = parameter_element_t<Element>;
  const double inexact = 4 * rounding<real>;
  all_agree(test, "y", y, means,
            [&](std::size_t i) { return inexact * std::abs(means[i]) + rounding_of<Element>(means[i]); });
  const auto windows = static_cast<double>(1 + pool.shape.kernel_height * pool.shape.kernel_width);
  check_gradients<Element, Layout>(
      test, device, pool, sums, sizes, (4 + windows) * rounding<real>, [&](const auto& dx, const auto& epilogue) {
        average_pool2d_backward(device, pool.shape, image_view<const Element, Layout>{device, dy.data(), pool.out}, dx,
                                count_padding, epilogue);
      });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sweeps)

BOOST_AUTO_TEST_CASE(max_pool2d) {
  gradus_test::sweep("max_pool2d", 4000, [](sweep_case& test) {
    with_element(test, [&]<class Element>(Element) {
      with_layout<nchw, nhwc, chwn>(test, [&]<class Layout>(Layout) { check_maximum<Element, Layout>(test); });
    });
  });
}

BOOST_AUTO_TEST_CASE(average_pool2d) {
  gradus_test::sweep("average_pool2d", 3000, [](sweep_case& test) {
    with_element(test, [&]<class Element>(Element) {
      with_layout<nchw, nhwc, chwn>(test, [&]<class Layout>(Layout) { check_average<Element, Layout>(test); });
    });
  });
}

BOOST_AUTO_TEST_SUITE_END()

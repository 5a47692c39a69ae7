// SPDX-License-Identifier: BSL-1.0
//
// Max and average pooling on the CPU.
#pragma once

#include <algorithm>    // std::max, std::min
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t
#include <type_traits>  // std::type_identity_t

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/pool2d/plan.hpp"
#include "gradus/kernels/cpu/detail/pool2d/runs.hpp"
#include "gradus/kernels/cpu/detail/pool2d/transposed.hpp"
#include "gradus/kernels/cpu/detail/pool2d/windows.hpp"
#include "gradus/kernels/cpu/detail/simd/packets.hpp"
#include "gradus/kernels/pool2d.hpp"
#include "gradus/layout/layout_policy.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

namespace detail {

/// True if channels are adjacent.
template <class Layout>
inline constexpr bool pools_lanes = Layout::order.back() == axis::c;

/// A range of rows of some channels of one image.
struct pool_band {
  index_t n;
  index_t c;
  index_t lanes;
  pool_range rows;

  [[nodiscard]] index_t offset(const pool_strides& at) const noexcept { return n * at.n + c * at.c; }
};

/// The size of bands.
struct pool_bands {
  index_t lanes;
  index_t height;
};

/// Calls body(band) on all threads for bands that cover `rows` rows of all images. `cost` is the number of steps for a
/// row of a channel.
template <class Body>
void for_each_band(cpu& device, const pool_plan& plan, index_t rows, const pool_bands& cut, index_t cost,
                   const Body& body) {
  const index_t groups = (plan.channels + cut.lanes - 1) / cut.lanes;
  const index_t bands = (rows + cut.height - 1) / cut.height;
  const index_t grain = std::max(index_t{1}, (index_t{1} << 15U) / std::max(index_t{1}, cost * cut.lanes * cut.height));
  device.parallel_for(plan.images * groups * bands, grain, [&](index_t begin, index_t end) {
    for (index_t i = begin; i < end; ++i) {
      const index_t c = i / bands % groups * cut.lanes;
      const index_t row = i % bands * cut.height;
      body(pool_band{.n = i / bands / groups,
                     .c = c,
                     .lanes = std::min(cut.lanes, plan.channels - c),
                     .rows = {row, std::min(rows, row + cut.height)}});
    }
  });
}

/// The size of bands of `rows` rows of `width` pixels: if `transposed`, at most `height` rows, and few enough for the
/// results to fit row_pixels. If not even one row fits, channels are computed one by one without transposing. The
/// pooling sweeps in tests/property draw widths around both limits.
[[nodiscard]] inline pool_bands cut_bands(const pool_plan& plan, index_t rows, index_t width, index_t height,
                                          bool transposed) noexcept {
  if (!transposed) {
    return {std::max(index_t{1}, plan.channels), 1};
  }
  height = std::min({height, rows, plan.row_pixels / std::max(index_t{1}, width)});
  return height > 0 ? pool_bands{transposed_lanes, height} : pool_bands{1, std::max(index_t{1}, rows)};
}

template <class Element>
[[nodiscard]] backward_epilogue<Element> epilogue_from(backward_epilogue<Element> epilogue, index_t offset) noexcept {
  epilogue.relu_output += epilogue.relu_output == nullptr ? 0 : offset;
  return epilogue;
}

/// Computes row p of the outputs. call.x is the address of pixel (0, 0) of the image, which may be outside a transposed
/// band; call.y and call.choice point to the beginning of the row.
template <class Element>
void pool_row(const pool_plan& plan, const pool_forward<Element>& call, index_t p, index_t lanes, index_t in_h,
              index_t in_w, index_t out_w) {
  const pool_axis& columns = plan.columns;
  const pool_range whole = columns.whole_windows();
  const pool_range h = plan.rows.entries(p);
  const index_t row = plan.rows.input(h.begin, p) * in_h;
  const index_t divisor = plan.rows.divisor(p, plan.count_padding);
  for (index_t q = 0; q < columns.outputs;) {
    const pool_range w = columns.entries(q);
    const index_t pixels = q == whole.begin && whole.size() > 0 ? whole.size() : 1;
    const index_t entries = divisor * columns.divisor(q, plan.count_padding);
    call.run(window_run<Element>{.x = call.x + (row + columns.input(w.begin, q) * in_w),
                                 .rows = h.size(),
                                 .columns = w.size(),
                                 .row_step = plan.rows.dilation * in_h,
                                 .column_step = columns.dilation * in_w,
                                 .lanes = lanes,
                                 .pixels = pixels,
                                 .input_step = columns.stride * in_w,
                                 .output_step = out_w,
                                 .output = q * out_w,
                                 .entry = static_cast<int>(h.begin * columns.kernel + w.begin),
                                 .kernel_width = static_cast<int>(columns.kernel),
                                 .share = computed<Element>{1} / static_cast<computed<Element>>(entries)},
             call.y, call.choice);
    q += pixels;
  }
}

/// Computes a band of adjacent channels, or of one channel.
template <class Element>
void pool_plain_band(const pool_plan& plan, const pool_forward<Element>& call, const pool_band& band) {
  for (index_t p = band.rows.begin; p < band.rows.end; ++p) {
    const index_t row = band.offset(plan.out) + p * plan.out.h;
    pool_row<Element>(plan,
                      {call.run, call.x + band.offset(plan.in), call.y + row,
                       call.choice == nullptr ? nullptr : call.choice + row, call.average},
                      p, band.lanes, plan.in.h, plan.in.w, plan.out.w);
  }
}

/// Computes a band through a transposed copy.
template <class Element>
void pool_transposed_band(const pool_plan& plan, const pool_forward<Element>& call, const pool_band& band) {
  std::array<Element, pool_plan::band_pixels * transposed_lanes> transposed;
  std::array<Element, pool_plan::row_pixels * transposed_lanes> results;
  std::array<std::uint8_t, pool_plan::row_pixels * transposed_lanes> chosen;
  const pool_axis& rows = plan.rows;
  const index_t first = rows.window(band.rows.begin).begin;
  const index_t in_h = plan.columns.inputs * transposed_lanes;
  const index_t out_h = plan.columns.outputs * transposed_lanes;
  turn(pixel_rows<const Element>{call.x + band.offset(plan.in) + first * plan.in.h, band.lanes, plan.in.c,
                                 rows.window(band.rows.end - 1).end - first, plan.in.h, plan.columns.inputs, plan.in.w},
       transposed.data());
  for (index_t p = band.rows.begin; p < band.rows.end; ++p) {
    const index_t row = (p - band.rows.begin) * out_h;
    pool_row<Element>(plan,
                      {call.run, transposed.data() - first * in_h, results.data() + row,
                       call.choice == nullptr ? nullptr : chosen.data() + row, call.average},
                      p, band.lanes, in_h, transposed_lanes, transposed_lanes);
  }
  const auto target = [&]<class Type>(Type* data) {
    return pixel_rows<Type>{data + band.offset(plan.out) + band.rows.begin * plan.out.h,
                            band.lanes,
                            plan.out.c,
                            band.rows.size(),
                            plan.out.h,
                            plan.columns.outputs,
                            plan.out.w};
  };
  turn_back(results.data(), target(call.y));
  if (call.choice != nullptr) {
    turn_back(chosen.data(), target(call.choice));
  }
}

/// True for 2x2 pooling with stride 2. All kernel positions are inside the image and do not overlap, and the entries
/// left over are at the end of each row and below the last row.
[[nodiscard]] inline bool pools_two_by_two(const pool_plan& plan) noexcept {
  const auto halves = [](const pool_axis& a) {
    return a.kernel == 2 && a.stride == 2 && a.pad == 0 && a.dilation == 1 && !a.adaptive && 2 * a.outputs <= a.inputs;
  };
  return halves(plan.rows) && halves(plan.columns);
}

/// The same, of planes with adjacent pixels.
[[nodiscard]] inline bool pools_two_by_two_planes(const pool_plan& plan) noexcept {
  return pools_two_by_two(plan) && plan.in.w == 1 && plan.in.h == plan.columns.inputs && plan.out.w == 1 &&
         plan.out.h == plan.columns.outputs;
}

/// Calls body(target, plane, offset of its inputs, offset of its outputs) for all planes.
template <class Body>
void for_each_two_by_two_plane(cpu& device, const pool_plan& plan, const Body& body) {
  const two_by_two_plane plane{plan.rows.inputs, plan.columns.inputs, plan.rows.outputs, plan.columns.outputs};
  for_each_band(device, plan, 1, {1, 1}, plane.in_height * plane.in_width, [&](const pool_band& band) {
    const index_t in = band.offset(plan.in);
    const index_t out = band.offset(plan.out);
    // A part of a vector of AVX2 takes longer than vectors of 16 bytes.
    if (plane.out_width < 8 && current_instruction_set() == instruction_set::avx2) {
      body(portable::target{}, plane, in, out);
    } else {
      on_target([&](auto target) { body(target, plane, in, out); });
    }
  });
}

/// Pools all images.
/// @tparam Lanes  channels are adjacent
template <bool Lanes, class Element>
void pool_images(cpu& device, const pool_plan& plan, const pool_forward<Element>& call) {
  if constexpr (!Lanes) {
    if (pools_two_by_two_planes(plan)) {
      for_each_two_by_two_plane(device, plan, [&](auto target, const two_by_two_plane& plane, index_t in, index_t out) {
        pool_two_by_two(target, plane, call.x + in, call.y + out, call.choice == nullptr ? nullptr : call.choice + out,
                        call.average);
      });
      return;
    }
  }
  const pool_axis& rows = plan.rows;
  // A band of `height` outputs reads at most (height - 1) * stride + reach rows of inputs, and never more than all.
  const index_t most_rows = plan.band_pixels / std::max(index_t{1}, plan.columns.inputs);
  const index_t height =
      rows.inputs <= most_rows ? rows.outputs : (most_rows - rows.reach() + rows.stride) / rows.stride;
  const pool_bands cut = cut_bands(plan, rows.outputs, plan.columns.outputs, height, !Lanes);
  auto* do_band = &pool_plain_band<Element>;
  if constexpr (!Lanes) {
    do_band = cut.lanes > 1 ? &pool_transposed_band<Element> : do_band;
  }
  for_each_band(device, plan, rows.outputs, cut, plan.columns.outputs * rows.kernel * plan.columns.kernel,
                [&](const pool_band& band) { do_band(plan, call, band); });
}

/// Computes the gradients of a band of adjacent channels, or of one channel.
template <class Element>
void plain_band_of_gradients(const pool_plan& plan, const pool_backward<Element>& call, const pool_band& band) {
  for (index_t h = band.rows.begin; h < band.rows.end; ++h) {
    const pool_range p = plan.rows.windows_with(h);
    call.row(plan, call,
             {.columns = plan.columns,
              .p = p,
              .output = band.offset(plan.out) + p.begin * plan.out.h,
              .row_step = plan.out.h,
              .column_step = plan.out.w,
              .input = band.offset(plan.in) + h * plan.in.h,
              .input_step = plan.in.w,
              .lanes = band.lanes},
             h);
  }
}

/// Computes the gradients of a band through a transposed copy.
template <class Element>
void transposed_band_of_gradients(const pool_plan& plan, const pool_backward<Element>& call, const pool_band& band) {
  std::array<Element, pool_plan::band_pixels * transposed_lanes> transposed;
  std::array<std::uint8_t, pool_plan::band_pixels * transposed_lanes> chosen;
  std::array<computed<Element>, pool_plan::row_pixels * transposed_lanes> sums;  // rounded once, after the epilogue
  const pool_axis& rows = plan.rows;
  const index_t first = rows.windows_with(band.rows.begin).begin;
  const auto source = [&]<class Type>(const Type* data) {
    return pixel_rows<const Type>{data + band.offset(plan.out) + first * plan.out.h,
                                  band.lanes,
                                  plan.out.c,
                                  rows.windows_with(band.rows.end - 1).end - first,
                                  plan.out.h,
                                  plan.columns.outputs,
                                  plan.out.w};
  };
  turn(source(call.dy), transposed.data());
  if (call.choice != nullptr) {
    turn(source(call.choice), chosen.data());
  }
  const index_t out_h = plan.columns.outputs * transposed_lanes;
  const index_t in_h = plan.columns.inputs * transposed_lanes;
  for (index_t h = band.rows.begin; h < band.rows.end; ++h) {
    const pool_range p = rows.windows_with(h);
    call.row(plan, {call.row, transposed.data(), chosen.data(), {.sums = sums.data()}},
             {.columns = plan.columns,
              .p = p,
              .output = (p.begin - first) * out_h,
              .row_step = out_h,
              .column_step = transposed_lanes,
              .input = (h - band.rows.begin) * in_h,
              .input_step = transposed_lanes,
              .lanes = band.lanes},
             h);
  }
  const index_t target = band.offset(plan.in) + band.rows.begin * plan.in.h;
  turn_back_gradients(sums.data(),
                      pixel_rows<Element>{call.target.dx + target, band.lanes, plan.in.c, band.rows.size(), plan.in.h,
                                          plan.columns.inputs, plan.in.w},
                      epilogue_from(call.target.epilogue, target));
}

/// The gradients of all images.
/// @tparam Lanes  channels are adjacent
template <bool Lanes, class Element>
void gradients_of_images(cpu& device, const pool_plan& plan, const pool_backward<Element>& call) {
  if constexpr (!Lanes) {
    if (pools_two_by_two_planes(plan)) {
      for_each_two_by_two_plane(device, plan, [&](auto target, const two_by_two_plane& plane, index_t in, index_t out) {
        gradients_of_two_by_two(target, plane, call.dy + out, call.choice == nullptr ? nullptr : call.choice + out,
                                call.target.dx + in, epilogue_from(call.target.epilogue, in));
      });
      return;
    }
  }
  const pool_axis& rows = plan.rows;
  if constexpr (Lanes) {
    // With many channels, the streams of rows of inputs are as fast in float.
    const bool few = plan.channels <= 64 || storage_element<Element>;
    if (few && call.choice != nullptr && pools_two_by_two(plan)) {
      const pool_bands cut = cut_bands(plan, rows.outputs, plan.columns.outputs, 1, false);
      for_each_band(device, plan, rows.outputs, cut, 4 * plan.columns.outputs, [&](const pool_band& band) {
        const index_t p = band.rows.begin;
        on_target([&](auto target) {
          max_gradients_of_outputs(target, plan, call, p, band.offset(plan.out) + p * plan.out.h,
                                   band.offset(plan.in) + 2 * p * plan.in.h);
        });
      });
      return;
    }
  }
  // `height` rows of inputs are covered by at most (height + reach - 2) / stride + 1 rows of outputs, never more than
  // all.
  const index_t most_rows = plan.band_pixels / std::max(index_t{1}, plan.columns.outputs);
  const index_t height = rows.outputs <= most_rows ? rows.inputs : rows.inputs_of_windows(most_rows);
  const pool_bands cut = cut_bands(plan, rows.inputs, plan.columns.inputs, height, !Lanes);
  auto* do_band = &plain_band_of_gradients<Element>;
  if constexpr (!Lanes) {
    do_band = cut.lanes > 1 ? &transposed_band_of_gradients<Element> : do_band;
  }
  for_each_band(device, plan, rows.inputs, cut, 2 * plan.columns.inputs,
                [&](const pool_band& band) { do_band(plan, call, band); });
}

}  // namespace detail

/// Implements has_max_pool2d_forward on the CPU.
template <network_element Element, layout_policy Layout>
void max_pool2d_forward(cpu& device, const pool2d_geometry& shape,
                        std::type_identity_t<image_view<const Element, Layout, cpu>> x,
                        image_view<Element, Layout, cpu> y, std::uint8_t* choice) {
  const detail::pool_plan plan{shape, y.extent(axis::n), false, Layout{}};
  detail::pool_forward<Element> call{nullptr, x.data(), y.data(), choice, false};
  detail::on_target([&](auto target) { call.run = max_windows_of<Element>(target); });
  detail::pool_images<detail::pools_lanes<Layout>>(device, plan, call);
}

/// Implements has_max_pool2d_backward on the CPU.
template <network_element Element, layout_policy Layout>
void max_pool2d_backward(cpu& device, const pool2d_geometry& shape,
                         std::type_identity_t<image_view<const Element, Layout, cpu>> dy, const std::uint8_t* choice,
                         image_view<Element, Layout, cpu> dx,
                         const std::type_identity_t<backward_epilogue<Element>>& epilogue) {
  const detail::pool_plan plan{shape, dx.extent(axis::n), false, Layout{}};
  detail::pool_backward<Element> call{nullptr, dy.data(), choice, {dx.data(), epilogue}};
  detail::on_target([&](auto target) { call.row = max_gradients_of<Element>(target, plan.regular()); });
  detail::gradients_of_images<detail::pools_lanes<Layout>>(device, plan, call);
}

/// Implements has_average_pool2d_forward on the CPU.
template <network_element Element, layout_policy Layout>
void average_pool2d_forward(cpu& device, const pool2d_geometry& shape,
                            std::type_identity_t<image_view<const Element, Layout, cpu>> x,
                            image_view<Element, Layout, cpu> y, bool count_padding) {
  const detail::pool_plan plan{shape, y.extent(axis::n), count_padding, Layout{}};
  detail::pool_forward<Element> call{nullptr, x.data(), y.data(), nullptr, true};
  detail::on_target([&](auto target) { call.run = average_windows_of<Element>(target); });
  detail::pool_images<detail::pools_lanes<Layout>>(device, plan, call);
}

/// Implements has_average_pool2d_backward on the CPU.
template <network_element Element, layout_policy Layout>
void average_pool2d_backward(cpu& device, const pool2d_geometry& shape,
                             std::type_identity_t<image_view<const Element, Layout, cpu>> dy,
                             image_view<Element, Layout, cpu> dx, bool count_padding,
                             const std::type_identity_t<backward_epilogue<Element>>& epilogue) {
  const detail::pool_plan plan{shape, dx.extent(axis::n), count_padding, Layout{}};
  detail::pool_backward<Element> call{nullptr, dy.data(), nullptr, {dx.data(), epilogue}};
  detail::on_target([&](auto target) { call.row = average_gradients_of<Element>(target, plan.regular()); });
  detail::gradients_of_images<detail::pools_lanes<Layout>>(device, plan, call);
}

}  // namespace gradus::kernels

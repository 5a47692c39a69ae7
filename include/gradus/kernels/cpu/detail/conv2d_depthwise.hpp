// SPDX-License-Identifier: BSL-1.0
//
// Depthwise convolutions: every channel is correlated with a kernel of its own, vectors of channels at a time.
// Module: kernels. Depends on: tensor.
#pragma once

#include <algorithm>    // std::clamp, std::max
#include <cstddef>      // std::size_t
#include <type_traits>  // std::is_same_v

#include "gradus/core/index.hpp"                             // index_t
#include "gradus/kernels/conv2d.hpp"                         // conv2d_geometry, pass
#include "gradus/kernels/cpu/detail/conv2d_correlation.hpp"  // correlation, result_blocks, store_planes
#include "gradus/kernels/cpu/detail/conv2d_phases.hpp"       // correlations
#include "gradus/kernels/cpu/simd_panels.hpp"                // scratch, shifted
#include "gradus/kernels/cpu/simd_storage.hpp"               // read_rows, read_transposed, store_rows

namespace gradus::kernels::detail {

/// Whether every channel has a kernel of its own, of more than one tap.
[[nodiscard]] constexpr bool is_depthwise(const conv2d_geometry& g) noexcept {
  return g.groups > 1 && g.groups == g.in_channels && g.groups == g.out_channels &&
         g.kernel_height * g.kernel_width > 1;
}

/// `count` pixels of an image from `begin` on with the channels last: where they lie, or in `strip`.
template <class Element>
[[nodiscard]] const computed<Element>* with_channels_last(const tile_kernels<computed<Element>>& kernels,
                                                          channel_order order, const Element* image, index_t channels,
                                                          index_t plane, index_t begin, index_t count,
                                                          computed<Element>* strip) {
  if (order == channel_order::first) {
    read_transposed(kernels, image + begin, plane, channels, count, channels, strip);
    return strip;
  }
  if constexpr (std::is_same_v<Element, computed<Element>>) {
    return image + begin * channels;
  } else {
    read_rows(kernels, image + begin * channels, channels, count, channels, strip);
    return strip;
  }
}

/// Results row by row, all channels of a pixel.
template <class Element>
class depthwise_correlations final : public correlations<Element> {
  using base = correlations<Element>;
  using base::batch_, base::kernels_, base::order_, base::threads_;
  using typename base::real;

 public:
  /// @param batch  images at most
  depthwise_correlations(const tile_kernels<real>& kernels, const conv2d_geometry& g, channel_order order, pass which,
                         index_t threads, index_t batch)
      : base{kernels, g, order, which, threads, batch, true} {}

 private:
  static constexpr index_t block_elements = 32 * 1024;  // of the source: a part of the second cache

  [[nodiscard]] bool channels_last() const noexcept { return order_ == channel_order::last; }
  [[nodiscard]] bool in_place() const noexcept { return channels_last() && std::is_same_v<Element, real>; }

  [[nodiscard]] index_t most_rows(const correlation& c) const {
    const index_t of_row = std::max<index_t>(1, c.source_width * c.terms * c.step_height);
    return std::clamp<index_t>(block_elements / of_row, 1, std::max<index_t>(1, c.rows));
  }
  [[nodiscard]] result_blocks blocks(const correlation& c) const {
    return {batch_, c.rows, 1, most_rows(c), 4 * threads_};
  }
  [[nodiscard]] index_t block_tasks(const correlation& c) const override { return blocks(c).count(); }

  [[nodiscard]] index_t pack_tasks(const correlation& /*c*/) const override { return 1; }
  [[nodiscard]] index_t group_weights(const correlation& c) const override { return c.terms_of_all_taps(); }

  struct worker_memory {
    real* strip;    ///< rows of the source with the channels last
    real* results;  ///< nhwc: of a row; nchw: of a block
    real* planes;   ///< nchw: the same with the channels first
    index_t* c_row;
  };
  [[nodiscard]] worker_memory take(const correlation& c, scratch& memory) const {
    const index_t rows = most_rows(c);
    const index_t source_rows = (rows - 1) * c.step_height + c.taps_height;
    worker_memory m{};
    m.strip = memory.template take<real>(in_place() ? 0 : source_rows * c.source_width * c.terms);
    m.results = memory.template take<real>((channels_last() ? 1 : rows) * c.columns * c.terms);
    m.planes = memory.template take<real>(channels_last() ? 0 : rows * c.columns * c.terms);
    m.c_row = memory.template take<index_t>(std::max(c.columns, c.terms));
    return m;
  }
  [[nodiscard]] std::size_t memory_bytes(const correlation& c) const override {
    scratch memory;
    static_cast<void>(take(c, memory));
    return memory.used();
  }

  /// to: (r, s, channel)
  void pack(const correlation& c, index_t /*group*/, index_t /*task*/, const real* w, real* to,
            scratch /*memory*/) const override {
    for (index_t r = 0; r < c.taps_height; ++r) {
      for (index_t s = 0; s < c.taps_width; ++s) {
        const real* const tap = w + c.weight_first + r * c.weight_row + s * c.weight_column;
        for (index_t i = 0; i < c.terms; ++i) {
          *to++ = tap[i * c.weight_group];
        }
      }
    }
  }

  void run_block(const correlation& c, index_t /*group*/, index_t task, const Element* x, const real* packed,
                 const tile_output<Element>& output, scratch memory) const override {
    const result_block block = blocks(c)[task];
    if (c.taps_height * c.taps_width == 0) {
      store_nothing(c, order_, 0, block, output);
      return;
    }
    const worker_memory m = take(c, memory);
    const index_t source_plane = c.source_height * c.source_width;
    const index_t begin = c.origin_height + block.row * c.step_height;
    const index_t first = std::clamp<index_t>(begin, 0, c.source_height);
    const index_t last = std::clamp(begin + (block.rows - 1) * c.step_height + c.taps_height, first, c.source_height);
    const real* const source =
        with_channels_last(kernels_, order_, x + block.image * source_plane * c.terms, c.terms, source_plane,
                           first * c.source_width, (last - first) * c.source_width, m.strip);
    const index_t plane = c.destination_height * c.destination_width;
    const auto place_of = [&](index_t row) {
      return (c.first_height + row * c.skip_height) * c.destination_width + c.first_width;
    };
    for (index_t t = 0; t < block.rows; ++t) {
      const index_t row = block.row + t;
      real* const results = m.results + (channels_last() ? 0 : t * c.columns * c.terms);
      sum_row(c, row, source, first, packed, results);
      if (channels_last()) {
        const index_t pixel = block.image * plane + place_of(row);
        for (index_t u = 0; u < c.columns; ++u) {
          m.c_row[u] = (pixel + u * c.skip_width) * c.terms;
        }
        store_rows(kernels_, results, c.columns, c.terms, c.terms, m.c_row, output);
      }
    }
    if (!channels_last()) {
      const index_t pixels = block.rows * c.columns;
      kernels_.transpose(m.results, c.terms, pixels, c.terms, pixels, m.planes);
      for (index_t i = 0; i < c.terms; ++i) {
        m.c_row[i] = i * plane;
      }
      tile_output<Element> stored = shifted(output, block.image * c.terms * plane + place_of(block.row));
      stored.bias_of_rows = true;
      store_planes(kernels_, c, block.row, block.rows, m.planes, c.terms, pixels, m.c_row, static_cast<real*>(nullptr),
                   stored);
    }
  }

  /// The results of a row, one pixel after another.
  /// @param source  the image from row `first` on
  void sum_row(const correlation& c, index_t row, const real* source, index_t first, const real* packed,
               real* to) const {
    const correlation::tap_range rows = c.rows_inside(row);
    taps_call<real> call;
    call.x_row = c.source_width * c.terms;
    call.x_column = c.terms;
    call.x_pixel = c.step_width * c.terms;
    call.w_row = c.taps_width * c.terms;
    call.w_column = c.terms;
    call.rows = rows.end - rows.begin;
    for (index_t u = 0; u < c.columns;) {
      const correlation::tap_range columns = c.columns_inside(u);
      index_t end = u + 1;
      while (end < c.columns && c.columns_inside(end) == columns) {
        ++end;
      }
      const index_t place = (c.origin_height + row * c.step_height + rows.begin - first) * c.source_width +
                            c.origin_width + u * c.step_width + columns.begin;
      call.x = source + place * c.terms;
      call.w = packed + (rows.begin * c.taps_width + columns.begin) * c.terms;
      call.columns = columns.end - columns.begin;
      call.pixels = end - u;
      kernels_.multiply_taps(call, c.terms, to + u * c.terms);
      u = end;
    }
  }
};

}  // namespace gradus::kernels::detail

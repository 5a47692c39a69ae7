// SPDX-License-Identifier: BSL-1.0
//
// Convolutions whose groups have fewer channels than a vector, such as depthwise ones: they correlate vectors of
// channels of several groups at a time.
#pragma once

#include <algorithm>    // std::clamp, std::fill_n, std::max, std::min
#include <cstddef>      // std::size_t
#include <type_traits>  // std::is_same_v

#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/conv2d/correlation.hpp"
#include "gradus/kernels/cpu/detail/conv2d/phases.hpp"
#include "gradus/kernels/cpu/detail/simd/panels.hpp"
#include "gradus/kernels/cpu/detail/simd/storage.hpp"

namespace gradus::kernels::detail {

/// True if the groups have as many results as terms, and a vector holds several groups. Then channel j of the source
/// and of the destination belong to the same group, a vector of channels begins with a group, and expand_groups()
/// supports the group size. The missing channels of the last vector are zeros in the weights and in the spread terms;
/// depthwise loops end at the last channel. Kernels with one tap are excluded, so that no phase fills others
/// (first_phase_fills).
template <class Real>
[[nodiscard]] bool has_small_groups(const tile_kernels<Real>& kernels, const conv2d_geometry& g) noexcept {
  const index_t group = g.in_channels / g.groups;
  const bool several_taps = g.kernel_height * g.kernel_width > 1;
  if (g.groups == 1 || g.in_channels != g.out_channels || !several_taps) {
    return false;
  }
  return group == 1 || ((group == 2 || group == 4 || group == 8) && kernels.lanes % group == 0);
}

/// `count` pixels of an image, starting at `begin`, with the channels last: in place, or copied to `strip`.
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

/// Rows for the channels of a vector, which belong to several groups of one image. Every term of the groups becomes a
/// vector, in which each channel has the term of its own group. A convolution is then depthwise, with more taps.
template <class Element>
class spread_rows_of_groups {
  using real = computed<Element>;

 public:
  /// @param channels  number of channels of the image
  spread_rows_of_groups(const tile_kernels<real>& kernels, const correlation& c, index_t group, index_t channels)
      : kernels_{kernels},
        group_{group},
        channels_{channels},
        width_{c.source_columns()},
        source_width_{c.source_width},
        left_{std::clamp<index_t>(-c.origin_width, 0, width_)},
        right_{std::clamp<index_t>(c.source_width - c.origin_width, left_, width_)},
        first_column_{c.origin_width + left_} {}

  /// Elements from a pixel to the next, or from a row to the next; rows include the columns of the padding.
  [[nodiscard]] index_t pixel() const noexcept { return group_ * kernels_.lanes; }
  [[nodiscard]] index_t row() const noexcept { return width_ * pixel(); }

  /// @param rows   rows of the image with the channels last
  /// @param count  number of channels of the vector, which begins at `channel`
  void write(const real* rows, index_t row_count, index_t channel, index_t count, real* to) const {
    for (index_t r = 0; r < row_count; ++r, to += row()) {
      std::fill_n(to, left_ * pixel(), real{});
      kernels_.expand_groups(rows + (r * source_width_ + first_column_) * channels_ + channel, channels_,
                             right_ - left_, count, group_, to + left_ * pixel());
      std::fill_n(to + right_ * pixel(), (width_ - right_) * pixel(), real{});
    }
  }

 private:
  const tile_kernels<real>& kernels_;
  index_t group_;
  index_t channels_;
  index_t width_;
  index_t source_width_;
  index_t left_;
  index_t right_;
  index_t first_column_;  // of the source that is not padding
};

/// Computes results of a few rows, for the channels of one vector after the other; in depthwise convolutions for all
/// channels at once. Rows of taps outside the source are skipped (rows_inside), so a block reads only rows [first,
/// last). Columns outside are zeros of spread rows, or are skipped too (columns_inside).
template <class Element>
class small_group_correlations final : public correlations<Element> {
  using base = correlations<Element>;
  using base::batch_, base::kernels_, base::order_, base::threads_;
  using typename base::real;

 public:
  /// @param batch  largest number of images
  small_group_correlations(const tile_kernels<real>& kernels, const conv2d_geometry& g, channel_order order, pass which,
                           index_t threads, index_t batch)
      : base{kernels, g, order, which, threads, batch, true}, group_{g.in_channels / g.groups} {}

 private:
  static constexpr index_t block_elements = 32 * 1024;   // of the source: a part of the second-level cache
  static constexpr index_t spread_elements = 48 * 1024;  // of the spread terms of a vector's channels

  [[nodiscard]] bool channels_last() const noexcept { return order_ == channel_order::last; }
  [[nodiscard]] bool in_place() const noexcept { return channels_last() && std::is_same_v<Element, real>; }
  [[nodiscard]] bool depthwise() const noexcept { return group_ == 1; }
  /// The number of channels that are correlated together.
  [[nodiscard]] index_t width(const correlation& c) const noexcept { return depthwise() ? c.terms : kernels_.lanes; }

  [[nodiscard]] index_t most_rows(const correlation& c) const {
    const index_t of_row = std::max<index_t>(1, c.source_width * width(c) * group_ * c.step_height);
    return std::clamp<index_t>((depthwise() ? block_elements : spread_elements) / of_row, 1,
                               std::max<index_t>(1, c.rows));
  }
  [[nodiscard]] result_blocks blocks(const correlation& c) const {
    return {batch_, c.rows, 1, most_rows(c), 4 * threads_};
  }
  [[nodiscard]] index_t block_tasks(const correlation& c) const override { return blocks(c).count(); }

  [[nodiscard]] index_t pack_tasks(const correlation& /*c*/) const override { return 1; }
  /// The weights of the channels that are correlated together, in elements.
  [[nodiscard]] index_t weights_of_width(const correlation& c) const {
    return c.taps_height * c.taps_width * group_ * width(c);
  }
  [[nodiscard]] index_t group_weights(const correlation& c) const override {
    return ceil_div(c.terms, width(c)) * weights_of_width(c);
  }

  struct worker_memory {
    real* strip;    ///< rows of the source with the channels last
    real* spread;   ///< the spread terms of a vector's channels
    real* results;  ///< nhwc: of a row; nchw: of a block
    real* planes;   ///< nchw: the results with the channels first
    index_t* c_row;
  };
  [[nodiscard]] worker_memory take(const correlation& c, scratch& memory) const {
    const index_t rows = most_rows(c);
    const index_t source_rows = (rows - 1) * c.step_height + c.taps_height;
    worker_memory m{};
    m.strip = memory.template take<real>(in_place() ? 0 : source_rows * c.source_width * c.terms);
    m.spread = memory.template take<real>(depthwise() ? 0 : source_rows * c.source_columns() * group_ * width(c));
    m.results = memory.template take<real>((channels_last() ? 1 : rows) * c.columns * width(c));
    m.planes = memory.template take<real>(channels_last() ? 0 : rows * c.columns * width(c));
    m.c_row = memory.template take<index_t>(std::max(c.columns, width(c)));
    return m;
  }
  [[nodiscard]] std::size_t memory_bytes(const correlation& c) const override {
    scratch memory;
    static_cast<void>(take(c, memory));
    return memory.used();
  }

  /// to: (vector of channels, r, s, term of the group, channel)
  void pack(const correlation& c, index_t /*group*/, index_t /*task*/, const real* w, real* to,
            scratch /*memory*/) const override {
    real* const packed = to;
    for (index_t first = 0; first < c.terms; first += width(c)) {
      for (index_t tap = 0; tap < c.taps_height * c.taps_width; ++tap) {
        const real* const of_tap =
            w + c.weight_first + tap / c.taps_width * c.weight_row + tap % c.taps_width * c.weight_column;
        for (index_t term = 0; term < group_; ++term) {
          for (index_t i = first; i < first + width(c); ++i) {
            *to++ = i < c.terms
                        ? of_tap[i / group_ * c.weight_group + i % group_ * c.weight_result + term * c.weight_term]
                        : real{};
          }
        }
      }
    }
    round_run<Element>(group_weights(c), packed);
  }

  void run_block(const correlation& c, index_t /*group*/, index_t task, const Element* x, const real* packed,
                 const tile_output<Element>& output, scratch memory) const override {
    const result_block block = blocks(c)[task];
    if (c.taps_height * c.taps_width == 0) {
      store_nothing(kernels_, c, order_, 0, block, output);
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
    const spread_rows_of_groups<Element> groups{kernels_, c, group_, c.terms};
    for (index_t channel = 0; channel < c.terms; channel += width(c)) {
      const index_t count = std::min(width(c), c.terms - channel);
      if (!depthwise()) {
        groups.write(source, last - first, channel, count, m.spread);
      }
      run_channels(c, block, depthwise() ? source : m.spread, first, packed + channel / width(c) * weights_of_width(c),
                   channel, count, output, m);
    }
  }

  /// Computes the results of a block for `count` channels, starting at `channel`.
  /// @param source  the image, or these channels of it, starting at row `first`
  void run_channels(const correlation& c, const result_block& block, const real* source, index_t first,
                    const real* packed, index_t channel, index_t count, const tile_output<Element>& output,
                    const worker_memory& m) const {
    const index_t plane = c.destination_height * c.destination_width;
    const auto offset_of = [&](index_t row) {
      return (c.first_height + row * c.skip_height) * c.destination_width + c.first_width;
    };
    tile_output<Element> stored =
        shifted(output, block.image * c.terms * plane + channel * (channels_last() ? 1 : plane));
    if (output.bias != nullptr) {
      stored.bias = output.bias + channel;
    }
    for (index_t t = 0; t < block.rows; ++t) {
      const index_t row = block.row + t;
      real* results = m.results + (channels_last() ? 0 : t * c.columns * width(c));
      if constexpr (std::is_same_v<Element, real>) {
        if (stores_sums(stored)) {
          sum_row(c, row, source, first, packed, c.skip_width * c.terms, stored, stored.c + offset_of(row) * c.terms);
          continue;
        }
      }
      sum_row(c, row, source, first, packed, width(c), tile_output<real>{}, results);
      if (channels_last()) {
        for (index_t u = 0; u < c.columns; ++u) {
          m.c_row[u] = (offset_of(row) + u * c.skip_width) * c.terms;
        }
        store_rows(kernels_, results, c.columns, width(c), count, m.c_row, stored);
      }
    }
    if (!channels_last()) {
      const index_t pixels = block.rows * c.columns;
      kernels_.transpose(m.results, width(c), pixels, count, pixels, m.planes);
      for (index_t i = 0; i < count; ++i) {
        m.c_row[i] = i * plane;
      }
      stored = shifted(stored, offset_of(block.row));
      stored.bias_of_rows = true;
      store_planes(kernels_, c, block.row, block.rows, m.planes, count, pixels, m.c_row, static_cast<real*>(nullptr),
                   stored);
    }
  }

  /// True if loops over taps store the results.
  [[nodiscard]] bool stores_sums(const tile_output<real>& output) const noexcept {
    return channels_last() && depthwise() && output.simple();
  }

  /// Computes the results of a row, pixel after pixel.
  /// @param step    elements of `to` from a pixel to the next
  /// @param output  has the bias and the activation
  void sum_row(const correlation& c, index_t row, const real* source, index_t first, const real* packed, index_t step,
               const tile_output<real>& output, real* to) const {
    // Spread rows include the padding, and have a tap for each term of a group.
    const bool padded = !depthwise();
    const index_t source_width = padded ? c.source_columns() : c.source_width;
    const index_t origin = padded ? 0 : c.origin_width;
    const index_t tap = width(c);
    const correlation::tap_range rows = c.rows_inside(row);
    depthwise_call<real> call;
    call.x_row = source_width * group_ * tap;
    call.x_column = tap;
    call.x_pixel = c.step_width * group_ * tap;
    call.w_row = c.taps_width * group_ * tap;
    call.w_column = tap;
    call.rows = rows.end - rows.begin;
    call.step = step;
    call.bias = output.bias;
    call.relu = output.act.relu;
    for (index_t u = 0; u < c.columns;) {
      correlation::tap_range columns{0, c.taps_width};
      index_t end = c.columns;
      if (!padded) {
        columns = c.columns_inside(u);
        end = u + 1;
        while (end < c.columns && c.columns_inside(end) == columns) {
          ++end;
        }
      }
      const index_t offset = (c.origin_height + row * c.step_height + rows.begin - first) * source_width + origin +
                             u * c.step_width + columns.begin;
      call.x = source + offset * group_ * tap;
      call.w = packed + (rows.begin * c.taps_width + columns.begin) * group_ * tap;
      call.columns = (columns.end - columns.begin) * group_;
      call.pixels = end - u;
      kernels_.multiply_taps(call, tap, to + u * step);
      u = end;
    }
  }

  index_t group_;  // channels of a group
};

}  // namespace gradus::kernels::detail

// SPDX-License-Identifier: BSL-1.0
//
// Correlations of one image batch into another: the common form of a convolution and of its backward pass to the data.
#pragma once

#include <algorithm>    // std::clamp, std::copy_n, std::fill_n, std::max, std::min
#include <array>        // std::array
#include <type_traits>  // std::is_same_v

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/simd/panels.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/layout/mapping.hpp"

namespace gradus::kernels::detail {

/// A correlation. Results (t, u) of every image form a grid of rows x columns:
///
///   d(n, first + skip * (t, u)) = sum over taps (r, s) and terms of x(n, origin + step * (t, u) + (r, s)) * w
///
/// Backward with strides splits into one correlation of stride 1 for every phase, that is, for every remainder of the
/// position in dx modulo the stride. The taps of a phase are every stride-th one, in reverse order (Dumoulin & Visin
/// 2016, section 4).
struct correlation {
  index_t groups = 1;
  index_t channels = 0;  ///< of the source, of a group
  index_t terms = 0;     ///< the same, or as units that tiles multiply: units_of()
  index_t results = 0;   ///< destination channels of a group
  index_t source_height = 0;
  index_t source_width = 0;
  index_t destination_height = 0;
  index_t destination_width = 0;
  index_t taps_height = 0;
  index_t taps_width = 0;
  index_t step_height = 1;
  index_t step_width = 1;
  index_t origin_height = 0;
  index_t origin_width = 0;
  index_t rows = 0;
  index_t columns = 0;
  index_t first_height = 0;
  index_t first_width = 0;
  index_t skip_height = 1;
  index_t skip_width = 1;
  bool fills = false;  ///< this correlation stores zeros at the skipped positions, which belong to no correlation
  // The weight of (group, result, term, r, s) has the offset weight_first + the sum of index * stride, in elements.
  index_t weight_first = 0;
  index_t weight_group = 0;
  index_t weight_result = 0;
  index_t weight_term = 0;
  index_t weight_row = 0;
  index_t weight_column = 0;

  [[nodiscard]] index_t terms_of_all_taps() const noexcept { return taps_height * taps_width * terms; }
  /// Rows of the source that `count` rows of results read, without gaps between them.
  [[nodiscard]] index_t source_rows(index_t count) const noexcept { return (count - 1) * row_step() + taps_height; }
  /// Rows of a strip from one row of results to the next.
  [[nodiscard]] index_t row_step() const noexcept { return std::min(step_height, std::max<index_t>(taps_height, 1)); }
  /// Columns of the source that a row of results reads.
  [[nodiscard]] index_t source_columns() const noexcept { return (columns - 1) * step_width + taps_width; }
  /// True if no tap of any result is outside the source.
  [[nodiscard]] bool inside() const noexcept {
    return origin_height >= 0 && origin_width >= 0 &&
           origin_height + (rows - 1) * step_height + taps_height <= source_height &&
           origin_width + (columns - 1) * step_width + taps_width <= source_width;
  }
  /// Taps [begin, end) along one axis.
  struct tap_range {
    index_t begin = 0;
    index_t end = 0;
    friend bool operator==(const tap_range&, const tap_range&) = default;
  };
  /// The rows of taps that are inside the source for a row of results.
  [[nodiscard]] tap_range rows_inside(index_t row) const noexcept {
    return taps_inside(origin_height + row * step_height, taps_height, source_height);
  }
  /// The columns of taps that are inside the source for a column of results.
  [[nodiscard]] tap_range columns_inside(index_t column) const noexcept {
    return taps_inside(origin_width + column * step_width, taps_width, source_width);
  }
  [[nodiscard]] static tap_range taps_inside(index_t first, index_t taps, index_t size) noexcept {
    const index_t begin = std::clamp<index_t>(-first, 0, taps);
    return {begin, std::clamp<index_t>(size - first, begin, taps)};
  }
  /// True if `count` rows of results from `row` on read whole adjacent rows of the source, without padding and without
  /// gaps between them.
  [[nodiscard]] bool whole_rows(index_t row, index_t count) const noexcept {
    const index_t first = origin_height + row * step_height;
    return origin_width == 0 && source_columns() == source_width && row_step() == step_height && first >= 0 &&
           first + source_rows(count) <= source_height;
  }
  /// True if the results are whole planes of the destination.
  [[nodiscard]] bool dense() const noexcept { return skip_height == 1 && skip_width == 1; }
  /// Rows of the destination that `count` rows of results from `row` on fill, with the zeros between them.
  [[nodiscard]] index_t filled_rows(index_t row, index_t count) const noexcept {
    return std::min(count * skip_height, destination_height - row * skip_height);
  }
};

/// The memory order of images. A value instead of a type, so that the loops are compiled once for both layouts.
enum class channel_order : bool { first, last };

template <class Layout>
inline constexpr channel_order channel_order_of =
    std::is_same_v<Layout, nhwc> ? channel_order::last : channel_order::first;

/// Strides of the weights in the order (O, I / groups, R, S), in elements.
[[nodiscard]] constexpr std::array<index_t, 4> weight_strides(const conv2d_geometry& g, channel_order order) noexcept {
  return order == channel_order::last ? dense_strides<nhwc, 4>(g.weights()) : dense_strides<nchw, 4>(g.weights());
}

[[nodiscard]] inline correlation forward_correlation(const conv2d_geometry& g, channel_order order) noexcept {
  const auto w = weight_strides(g, order);
  return {.groups = g.groups,
          .channels = g.in_channels / g.groups,
          .terms = g.in_channels / g.groups,
          .results = g.out_channels / g.groups,
          .source_height = g.in_height,
          .source_width = g.in_width,
          .destination_height = g.out_height,
          .destination_width = g.out_width,
          .taps_height = g.kernel_height,
          .taps_width = g.kernel_width,
          .step_height = g.stride_height,
          .step_width = g.stride_width,
          .origin_height = -g.pad_top,
          .origin_width = -g.pad_left,
          .rows = g.out_height,
          .columns = g.out_width,
          .weight_group = g.out_channels / g.groups * w[0],
          .weight_result = w[0],
          .weight_term = w[1],
          .weight_row = w[2],
          .weight_column = w[3]};
}

/// True if the kernel has one tap and it belongs to the first phase, which then stores the zeros of the other phases.
/// Only for planes, where those zeros are between its results. Without padding, the tap reaches position 0 of dx, so it
/// belongs to phase 0 only. The rows and columns that it skips are before its next result or before the end of dx.
[[nodiscard]] constexpr bool first_phase_fills(const conv2d_geometry& g, channel_order order) noexcept {
  return order == channel_order::first && g.kernel_height * g.kernel_width == 1 && g.pad_top == 0 && g.pad_left == 0;
}

/// The number of correlations of the pass.
[[nodiscard]] constexpr index_t phase_count(const conv2d_geometry& g, channel_order order, pass which) noexcept {
  return which == pass::forward || first_phase_fills(g, order)
             ? 1
             : std::min(g.stride_height, g.in_height) * std::min(g.stride_width, g.in_width);
}

/// One axis of one phase of the backward pass. Position i of dx uses tap k of position (i + pad - k) / stride of dy, if
/// that is an integer: those taps are (i + pad) % stride + stride * u.
struct backward_axis {
  index_t taps;     ///< number of taps of the phase
  index_t tap;      ///< index in the kernel of the phase's last tap
  index_t origin;   ///< position in dy
  index_t results;  ///< number of positions of dx in the phase
};

[[nodiscard]] constexpr backward_axis backward_phase(index_t phase, index_t size, index_t kernel, index_t stride,
                                                     index_t pad) noexcept {
  // Position phase + stride * t of dx uses tap first + stride * u of position base + t - u of dy.
  const index_t first = (phase + pad) % stride;
  const index_t taps = first < kernel ? ceil_div(kernel - first, stride) : 0;
  const index_t base = (phase + pad - first) / stride;
  return {.taps = taps, .tap = first, .origin = base - (taps - 1), .results = ceil_div(size - phase, stride)};
}

/// The correlation of dy that computes the positions of phase `index` of dx.
[[nodiscard]] inline correlation backward_correlation(const conv2d_geometry& g, channel_order order,
                                                      index_t index) noexcept {
  const auto w = weight_strides(g, order);
  const index_t phases_wide = std::min(g.stride_width, g.in_width);
  const index_t phase_h = index / phases_wide;
  const index_t phase_w = index % phases_wide;
  const backward_axis h = backward_phase(phase_h, g.in_height, g.kernel_height, g.stride_height, g.pad_top);
  const backward_axis v = backward_phase(phase_w, g.in_width, g.kernel_width, g.stride_width, g.pad_left);
  const bool any = h.taps > 0 && v.taps > 0;
  return {
      .groups = g.groups,
      .channels = g.out_channels / g.groups,
      .terms = g.out_channels / g.groups,
      .results = g.in_channels / g.groups,
      .source_height = g.out_height,
      .source_width = g.out_width,
      .destination_height = g.in_height,
      .destination_width = g.in_width,
      .taps_height = any ? h.taps : 0,
      .taps_width = any ? v.taps : 0,
      .origin_height = any ? h.origin : 0,
      .origin_width = any ? v.origin : 0,
      .rows = h.results,
      .columns = v.results,
      .first_height = phase_h,
      .first_width = phase_w,
      .skip_height = g.stride_height,
      .skip_width = g.stride_width,
      .fills = g.stride_height * g.stride_width > 1 && first_phase_fills(g, order),
      .weight_first =
          any ? (h.tap + (h.taps - 1) * g.stride_height) * w[2] + (v.tap + (v.taps - 1) * g.stride_width) * w[3] : 0,
      .weight_group = g.out_channels / g.groups * w[0],
      .weight_result = w[1],
      .weight_term = w[0],
      .weight_row = -g.stride_height * w[2],
      .weight_column = -g.stride_width * w[3]};
}

/// Correlation `index` of a pass.
[[nodiscard]] inline correlation correlation_of(const conv2d_geometry& g, channel_order order, pass which,
                                                index_t index) noexcept {
  return which == pass::forward ? forward_correlation(g, order) : backward_correlation(g, order, index);
}

/// The epilogue and the output of a pass.
template <class Element>
[[nodiscard]] tile_output<Element> output_of(Element* y, const forward_epilogue<Element>& epilogue) noexcept {
  using held = held_activation<computed<Element>>;
  return {.c = y, .residual = epilogue.residual, .bias = epilogue.bias, .act = held{epilogue.act}};
}
template <class Element>
[[nodiscard]] tile_output<Element> output_of(Element* dx, const backward_epilogue<Element>& epilogue) noexcept {
  using held = held_derivative<computed<Element>>;
  return {.c = dx, .mask = epilogue.relu_output, .accumulate = epilogue.accumulate, .derivative = held{epilogue.mask}};
}

/// The results of some rows of some images, which one task computes.
struct result_block {
  index_t image = 0;
  index_t images = 0;
  index_t row = 0;
  index_t rows = 0;
};

/// Divides the results of a batch into blocks: several whole images, or some rows of one image.
class result_blocks {
 public:
  /// @param images, rows  largest number in a block; images is 1 unless rows are all
  result_blocks(index_t batch, index_t all_rows, index_t images, index_t rows, index_t wanted)
      : batch_{batch}, all_rows_{all_rows} {
    images = std::max<index_t>(1, std::min(images, batch / std::max<index_t>(1, wanted)));
    image_parts_ = ceil_div(batch, images);
    row_parts_ = ceil_div(all_rows, rows);
    if (images == 1 && batch > 0) {
      row_parts_ = std::max(row_parts_, std::min(all_rows, wanted / batch));
    }
  }
  [[nodiscard]] index_t count() const noexcept { return image_parts_ * row_parts_; }
  [[nodiscard]] result_block operator[](index_t i) const noexcept {
    const index_t image = part_begin(batch_, image_parts_, i / row_parts_);
    const index_t row = part_begin(all_rows_, row_parts_, i % row_parts_);
    return {.image = image,
            .images = part_begin(batch_, image_parts_, i / row_parts_ + 1) - image,
            .row = row,
            .rows = part_begin(all_rows_, row_parts_, i % row_parts_ + 1) - row};
  }

 private:
  index_t batch_;
  index_t all_rows_;
  index_t image_parts_ = 0;
  index_t row_parts_ = 1;
};

/// Stores sums that are zero in a row of an image, with the channels last.
/// @param begin  offset of the row's first result in the output, of the first group
template <class Element>
void store_zeros_of_pixels(const tile_kernels<computed<Element>>& kernels, const correlation& c, index_t group,
                           index_t begin, const tile_output<Element>& output) {
  constexpr index_t most = 128;  // channels and pixels of a call
  static constexpr computed<Element> zeros[most]{};
  const index_t first = group * c.results;
  for (index_t u = 0; u < c.columns; u += most) {
    const index_t pixels = std::min(most, c.columns - u);
    index_t c_row[most];
    for (index_t i = 0; i < pixels; ++i) {
      c_row[i] = (u + i) * c.skip_width * c.groups * c.results;
    }
    for (index_t j = first; j < first + c.results; j += most) {
      tile_output<Element> stored = shifted(output, begin + j);
      stored.bias = output.bias == nullptr ? nullptr : output.bias + j;
      store_rows(kernels, zeros, pixels, 0, std::min(most, first + c.results - j), c_row, stored);
    }
  }
}

/// Stores the results of a correlation without taps, whose sums are zero. Only backward has such correlations.
/// @param output  its bias, if there is one, has a value for each destination channel
template <class Element>
void store_nothing(const tile_kernels<computed<Element>>& kernels, const correlation& c, channel_order order,
                   index_t group, const result_block& block, const tile_output<Element>& output) {
  const index_t plane = c.destination_height * c.destination_width;
  const index_t channels = c.groups * c.results;
  tile_output<Element> stored = output;
  stored.bias_of_rows = order == channel_order::first;
  for (index_t n = block.image; n < block.image + block.images; ++n) {
    for (index_t t = block.row; t < block.row + block.rows; ++t) {
      const index_t pixel = (c.first_height + t * c.skip_height) * c.destination_width + c.first_width;
      if (order == channel_order::last) {
        store_zeros_of_pixels(kernels, c, group, (n * plane + pixel) * channels, stored);
      } else {
        for (index_t i = group * c.results; i < (group + 1) * c.results; ++i) {
          stored.bias = output.bias == nullptr ? nullptr : output.bias + i;
          store_strided<Element>(nullptr, c.columns, (n * channels + i) * plane + pixel, c.skip_width, stored);
        }
      }
    }
  }
}

/// Stores the sums of some rows of one image in nchw. The sums of channel m begin at sums[m * pitch]; its plane begins
/// at c[c_row[m]] of the output, whose first element is the first result.
/// @param spread  memory for filled_rows() rows of the destination, if the correlation fills
template <class Element>
void store_planes(const tile_kernels<computed<Element>>& kernels, const correlation& c, index_t row, index_t rows,
                  const computed<Element>* sums, index_t channels, index_t pitch, const index_t* c_row,
                  computed<Element>* spread, const tile_output<Element>& output) {
  if (c.dense()) {
    store_rows(kernels, sums, channels, pitch, rows * c.columns, c_row, output);
    return;
  }
  const index_t count = c.fills ? c.filled_rows(row, rows) * c.destination_width : 0;
  std::fill_n(spread, count, computed<Element>{});
  tile_output<Element> stored = output;
  for (index_t m = 0; m < channels; ++m) {
    stored.bias = output.bias == nullptr ? nullptr : output.bias + m;
    for (index_t r = 0; r < rows; ++r) {
      const computed<Element>* const from = sums + m * pitch + r * c.columns;
      const index_t offset = r * c.skip_height * c.destination_width;
      if (c.fills) {
        for (index_t j = 0; j < c.columns; ++j) {
          spread[offset + j * c.skip_width] = from[j];
        }
      } else {
        store_strided(from, c.columns, c_row[m] + offset, c.skip_width, stored);
      }
    }
    if (c.fills) {
      store_rows(kernels, spread, 1, 0, count, c_row + m, stored);
    }
  }
}

/// The order in which the terms of a correlation are added.
enum class term_order : unsigned char {
  channels_last,   ///< (r, s, channel)
  channels_first,  ///< (channel, r, s)
};

/// Packs the weights of `columns` results from `result` on: to[k * width + j], with k in the order of the terms.
template <class Element>
void pack_weights(const tile_kernels<Element>& kernels, const correlation& c, term_order order, const Element* w,
                  index_t group, index_t result, index_t columns, index_t width, Element* to) {
  struct axis_of_terms {
    index_t count;
    index_t stride;
  };
  const axis_of_terms channel{c.terms, c.weight_term};
  const axis_of_terms row{c.taps_height, c.weight_row};
  const axis_of_terms column{c.taps_width, c.weight_column};
  std::array<axis_of_terms, 3> axes =
      order == term_order::channels_last ? std::array{row, column, channel} : std::array{channel, row, column};
  // Axes that are adjacent in memory are merged.
  for (int pass = 0; pass < 2; ++pass) {
    if (axes[1].count == 1 || axes[2].count == 1 || axes[1].stride == axes[2].count * axes[2].stride) {
      const index_t stride = axes[2].count == 1 ? axes[1].stride : axes[2].stride;
      axes = {axis_of_terms{1, 0}, axes[0], {axes[1].count * axes[2].count, stride}};
    }
  }
  const Element* const first = w + c.weight_first + group * c.weight_group + result * c.weight_result;
  for (index_t i = 0; i < axes[0].count; ++i) {
    for (index_t j = 0; j < axes[1].count; ++j) {
      pack_panel(kernels, first + i * axes[0].stride + j * axes[1].stride, c.weight_result, axes[2].stride, columns,
                 axes[2].count, width, to);
      to += axes[2].count * width;
    }
  }
}

/// Packs weights in the order (r, s, channel) if the taps of a weight are adjacent. Transposes all taps of a channel at
/// once into `taps` (kernel height * kernel width * width elements), then copies them to their position.
template <class Element>
void pack_weights_of_planes(const tile_kernels<Element>& kernels, const correlation& c, index_t all_taps,
                            const Element* w, index_t group, index_t result, index_t columns, index_t width,
                            Element* taps, Element* to) {
  const Element* const first = w + group * c.weight_group + result * c.weight_result;
  std::fill_n(taps, all_taps * width, Element{});
  for (index_t term = 0; term < c.terms; ++term) {
    kernels.transpose(first + term * c.weight_term, c.weight_result, columns, all_taps, width, taps);
    for (index_t r = 0; r < c.taps_height; ++r) {
      for (index_t s = 0; s < c.taps_width; ++s) {
        std::copy_n(taps + (c.weight_first + r * c.weight_row + s * c.weight_column) * width, width,
                    to + ((r * c.taps_width + s) * c.terms + term) * width);
      }
    }
  }
}

}  // namespace gradus::kernels::detail

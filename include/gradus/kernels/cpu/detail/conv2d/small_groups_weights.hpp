// SPDX-License-Identifier: BSL-1.0
//
// Gradients of the weights of convolutions whose groups have fewer channels than a vector.
#pragma once

#include <algorithm>    // std::clamp, std::copy_n, std::fill_n, std::max, std::min
#include <cstddef>      // std::byte, std::size_t
#include <type_traits>  // std::is_same_v

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/conv2d/correlation.hpp"
#include "gradus/kernels/cpu/detail/conv2d/small_groups.hpp"
#include "gradus/kernels/cpu/detail/simd/panels.hpp"

namespace gradus::kernels::detail {

/// Sums chunks of rows of the batch separately and then adds the chunks in order, so results are bitwise the same for
/// any number of threads. For the shapes of has_small_groups(): taps outside the source are skipped or read zeros, as
/// in small_group_correlations.
template <class Element>
class small_group_weight_gradients {
  using real = computed<Element>;

 public:
  /// @param batch  largest number of images
  small_group_weight_gradients(const tile_kernels<real>& kernels, const conv2d_geometry& g, channel_order order,
                               index_t batch, index_t threads)
      : kernels_{kernels},
        c_{forward_correlation(g, order)},
        order_{order},
        batch_{batch},
        threads_{threads},
        channels_{g.in_channels},
        group_{g.in_channels / g.groups},
        width_{group_ == 1 ? channels_ : kernels.lanes},
        taps_{g.kernel_height * g.kernel_width * group_} {
    const index_t of_row = std::max<index_t>(1, c_.source_width * width_ * group_ * c_.step_height);
    piece_rows_ = std::clamp<index_t>(piece_elements / of_row, 1, std::max<index_t>(1, c_.rows));
  }

  [[nodiscard]] std::size_t workspace_bytes() const {
    return most_chunks * chunk_bytes() + static_cast<std::size_t>(threads_) * worker_bytes();
  }

  GRADUS_COLD void run(cpu& device, const Element* x, const Element* dy, real* dw, real* dbias,
                       std::byte* workspace) const {
    const index_t chunks = std::clamp<index_t>(batch_ * c_.rows, 1, most_chunks);
    const auto sums_of = [&, this](index_t chunk) {
      return reinterpret_cast<real*>(workspace + static_cast<std::size_t>(chunk) * chunk_bytes());
    };
    std::byte* const workers = workspace + most_chunks * chunk_bytes();
    for_each_task(device, chunks, [&, this](index_t worker, index_t chunk) {
      sum_chunk(part_begin(batch_ * c_.rows, chunks, chunk), part_begin(batch_ * c_.rows, chunks, chunk + 1), x, dy,
                dbias != nullptr, sums_of(chunk), scratch{workers + static_cast<std::size_t>(worker) * worker_bytes()});
    });
    for_each_task(device, taps_ + 1, [&, this](index_t /*worker*/, index_t task) {
      // One task for each row of sums: of a tap and a term of the groups, or of the bias.
      const bool bias = task == taps_;
      for (index_t channel = 0; channel < channels_; channel += width_) {
        const index_t count = std::min(width_, channels_ - channel);
        const index_t offset = bias ? bias_offset() + channel : channel * taps_ + task * width_;
        real* const total = sums_of(0) + offset;
        for (index_t chunk = 1; chunk < chunks; ++chunk) {
          kernels_.add(sums_of(chunk) + offset, count, total);
        }
        for (index_t i = 0; i < count; ++i) {
          if (!bias) {
            dw[weight_offset(task, channel + i)] = total[i];
          } else if (dbias != nullptr) {
            dbias[channel + i] = total[i];
          }
        }
      }
    });
  }

 private:
  static constexpr index_t most_chunks = 32;
  static constexpr index_t most_taps = 3;               // of a call of add_products
  static constexpr index_t piece_elements = 32 * 1024;  // of x: a part of the second-level cache

  // Offsets in a chunk: (vector of channels, tap and term, channel), then the bias.
  [[nodiscard]] index_t bias_offset() const { return round_up(channels_, width_) * taps_; }
  [[nodiscard]] std::size_t chunk_bytes() const {
    return (static_cast<std::size_t>(bias_offset() + channels_) * sizeof(real) + 63) / 64 * 64;
  }
  [[nodiscard]] index_t weight_offset(index_t task, index_t channel) const {
    const index_t tap = task / group_;
    return tap / c_.taps_width * c_.weight_row + tap % c_.taps_width * c_.weight_column +
           task % group_ * c_.weight_term + channel / group_ * c_.weight_group + channel % group_ * c_.weight_result;
  }

  struct worker_memory {
    real* x;
    real* spread;
    real* dy;
    real* few;  ///< a row of dy of the last channels, followed by zeros
    real* ones;
  };
  [[nodiscard]] worker_memory take(scratch& memory) const {
    const bool in_place = order_ == channel_order::last && std::is_same_v<Element, real>;
    const index_t source_rows = (piece_rows_ - 1) * c_.step_height + c_.taps_height;
    worker_memory m{};
    m.x = memory.take<real>(in_place ? 0 : source_rows * c_.source_width * channels_);
    m.spread = memory.take<real>(group_ == 1 ? 0 : source_rows * c_.source_columns() * group_ * width_);
    m.dy = memory.take<real>(in_place ? 0 : piece_rows_ * c_.columns * channels_);
    m.few = memory.take<real>(channels_ % width_ == 0 ? 0 : c_.columns * width_);
    m.ones = memory.take<real>(piece_rows_ * c_.columns);
    return m;
  }
  [[nodiscard]] std::size_t worker_bytes() const {
    scratch memory;
    static_cast<void>(take(memory));
    return memory.used();
  }

  /// Sums the rows [begin, end) of all images.
  void sum_chunk(index_t begin, index_t end, const Element* x, const Element* dy, bool bias, real* sums,
                 scratch memory) const {
    const worker_memory m = take(memory);
    std::fill_n(m.ones, piece_rows_ * c_.columns, real{1});
    std::fill_n(sums, bias_offset() + channels_, real{});
    while (begin < end) {
      const index_t image = begin / c_.rows;
      const index_t row = begin % c_.rows;
      const index_t rows = std::min({piece_rows_, end - begin, c_.rows - row});
      sum_piece(image, row, rows, x, dy, bias, sums, m);
      begin += rows;
    }
  }

  void sum_piece(index_t image, index_t row, index_t rows, const Element* x, const Element* dy, bool bias, real* sums,
                 const worker_memory& m) const {
    const index_t source_plane = c_.source_height * c_.source_width;
    const index_t plane = c_.rows * c_.columns;
    const index_t top = c_.origin_height + row * c_.step_height;
    const index_t first = std::clamp<index_t>(top, 0, c_.source_height);
    const index_t last = std::clamp(top + (rows - 1) * c_.step_height + c_.taps_height, first, c_.source_height);
    const real* const source =
        with_channels_last(kernels_, order_, x + image * source_plane * channels_, channels_, source_plane,
                           first * c_.source_width, (last - first) * c_.source_width, m.x);
    const real* const gradients = with_channels_last(kernels_, order_, dy + image * plane * channels_, channels_, plane,
                                                     row * c_.columns, rows * c_.columns, m.dy);
    if (group_ == 1) {
      for (index_t t = 0; t < rows; ++t) {
        add_depthwise_row(row + t, source, first, gradients + t * c_.columns * channels_, sums);
      }
    } else {
      const spread_rows_of_groups<Element> groups{kernels_, c_, group_, channels_};
      for (index_t channel = 0; channel < channels_; channel += width_) {
        const index_t count = std::min(width_, channels_ - channel);
        groups.write(source, last - first, channel, count, m.spread);
        for (index_t t = 0; t < rows; ++t) {
          add_row(groups, row + t, first, gradients + t * c_.columns * channels_ + channel, count,
                  sums + channel * taps_, m);
        }
      }
    }
    if (bias) {
      kernels_.add_rows(m.ones, gradients, channels_, rows * c_.columns, channels_, sums + bias_offset());
    }
  }

  void add_depthwise_row(index_t row, const real* source, index_t first, const real* gradient, real* sums) const {
    const correlation::tap_range inside = c_.rows_inside(row);
    for (index_t r = inside.begin; r < inside.end; ++r) {
      const real* const from =
          source + (c_.origin_height + row * c_.step_height + r - first) * c_.source_width * channels_;
      for (index_t s = 0; s < c_.taps_width; s += most_taps) {
        const index_t taps = std::min(most_taps, c_.taps_width - s);
        const result_columns common{std::max(inside_of(s).begin, inside_of(s + taps - 1).begin),
                                    std::min(inside_of(s).end, inside_of(s + taps - 1).end)};
        real* const to = sums + (r * c_.taps_width + s) * channels_;
        if (common.begin >= common.end) {
          for (index_t tap = 0; tap < taps; ++tap) {
            add_taps(from, gradient, inside_of(s + tap), s + tap, 1, to + tap * channels_);
          }
          continue;
        }
        add_taps(from, gradient, common, s, taps, to);
        for (index_t tap = 0; tap < taps; ++tap) {  // near the border, fewer taps are inside
          const result_columns all = inside_of(s + tap);
          add_taps(from, gradient, {all.begin, common.begin}, s + tap, 1, to + tap * channels_);
          add_taps(from, gradient, {common.end, all.end}, s + tap, 1, to + tap * channels_);
        }
      }
    }
  }

  /// Columns [begin, end) of results.
  struct result_columns {
    index_t begin;
    index_t end;
  };
  /// The columns of results whose tap `s` is inside the source.
  [[nodiscard]] result_columns inside_of(index_t s) const noexcept {
    const index_t left = c_.origin_width + s;  // the column that the first result reads
    return {
        left < 0 ? ceil_div(-left, c_.step_width) : 0,
        left < c_.source_width ? std::min(c_.columns, (c_.source_width - 1 - left) / c_.step_width + 1) : index_t{0}};
  }
  /// Adds the products of `taps` taps from `s` on for some results.
  /// @param from  the row of the source
  void add_taps(const real* from, const real* gradient, const result_columns& columns, index_t s, index_t taps,
                real* to) const {
    if (columns.begin >= columns.end) {
      return;
    }
    kernels_.add_products({.x = from + (c_.origin_width + s + columns.begin * c_.step_width) * channels_,
                           .x_pixel = c_.step_width * channels_,
                           .x_tap = channels_,
                           .y = gradient + columns.begin * channels_,
                           .y_pixel = channels_,
                           .pixels = columns.end - columns.begin,
                           .taps = taps,
                           .channels = channels_,
                           .to_tap = channels_},
                          to);
  }

  /// The same for the channels of a vector, whose spread rows begin with row `first`.
  /// @param gradient  the gradients of these channels
  void add_row(const spread_rows_of_groups<Element>& groups, index_t row, index_t first, const real* gradient,
               index_t count, real* sums, const worker_memory& m) const {
    index_t gradient_step = channels_;
    if (count < width_) {
      std::fill_n(m.few, c_.columns * width_, real{});
      for (index_t u = 0; u < c_.columns; ++u) {
        std::copy_n(gradient + u * channels_, count, m.few + u * width_);
      }
      gradient = m.few;
      gradient_step = width_;
    }
    const correlation::tap_range inside = c_.rows_inside(row);
    const index_t taps = c_.taps_width * group_;  // in a row of taps
    for (index_t r = inside.begin; r < inside.end; ++r) {
      kernels_.add_tap_products(m.spread + (c_.origin_height + row * c_.step_height + r - first) * groups.row(),
                                c_.step_width * groups.pixel(), gradient, gradient_step, c_.columns, taps,
                                sums + r * taps * width_);
    }
  }

  const tile_kernels<real>& kernels_;
  correlation c_;
  channel_order order_;
  index_t batch_;
  index_t threads_;
  index_t channels_;
  index_t group_;       // channels of a group
  index_t width_;       // channels that are summed together
  index_t taps_;        // each term of a group counts as one
  index_t piece_rows_;  // rows of results that are read at a time
};

}  // namespace gradus::kernels::detail

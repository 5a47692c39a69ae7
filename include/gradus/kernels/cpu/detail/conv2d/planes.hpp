// SPDX-License-Identifier: BSL-1.0
//
// Correlations in nchw: tiles of output channels x adjacent pixels. The pixels of a term are adjacent in place, or in a
// strip of some rows with explicit padding. Only the weights are packed.
#pragma once

#include <algorithm>    // std::clamp, std::copy_n, std::fill_n, std::max, std::min
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <limits>       // std::numeric_limits
#include <type_traits>  // std::is_same_v

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/conv2d/correlation.hpp"
#include "gradus/kernels/cpu/detail/conv2d/phases.hpp"
#include "gradus/kernels/cpu/detail/conv2d/strip.hpp"
#include "gradus/kernels/cpu/detail/simd/panels.hpp"

namespace gradus::kernels::detail {

/// Correlations of any shape whose waste() is finite. A tile computes `width` adjacent results of a run, and the last
/// tile of a run ends with it, so a run needs at least `width` results. Every term of a run reads an equally long run
/// of pixels, in the source or in a strip:
///
///   direct  Row t and tap (r, s) read the pixels from (origin + t * step + r, origin_width + s) on, one for each
///           column, because step_width is 1. inside() says that all of them are inside the source.
///   strip   Row t and row r of taps read row t * row_step() + r of the strip, which has strip_phases() times
///           strip_columns() pixels. Column u and tap s read column s / step_width + u of phase s % step_width. That
///           column is below strip_columns().
///   spread  See spread_strip.
///
/// A run is a row of results, or all rows of a block if they are `joined`: in a spread strip; in the strip of one tap,
/// which has one row of `columns` pixels for each; and in the source if the results are one run of it.
template <class Element>
class plane_correlations final : public correlations<Element> {
  using base = correlations<Element>;
  using base::at, base::batch_, base::kernels_, base::phases_, base::threads_;
  using typename base::real;

 public:
  /// @param batch  largest number of images
  plane_correlations(const tile_kernels<real>& kernels, const conv2d_geometry& g, pass which, index_t threads,
                     index_t batch)
      : base{kernels, flattened(g), channel_order::first, which, threads, batch} {}

  /// Multiply-adds of tiles for each one that is needed: the last tile of a run overlaps the one before. Infinite if a
  /// run is shorter than a tile, because the tile would begin before the run.
  [[nodiscard]] double waste() const {
    double most = 1;
    for (index_t phase = 0; phase < phases_; ++phase) {
      const correlation c = at(phase);
      const limits l = limits_of(c);
      const index_t run = (l.joined ? std::min(l.rows, c.rows) : 1) * c.columns;
      if (c.terms_of_all_taps() > 0 && c.rows * c.columns > 0) {
        // The last block of rows may have fewer rows.
        if ((l.joined ? shortest_block(c) : 1) * c.columns < kernels_.width) {
          return std::numeric_limits<double>::infinity();
        }
        most = std::max(most, static_cast<double>(round_up(run, kernels_.width)) / static_cast<double>(run));
      }
    }
    return most;
  }
  /// True if the source is read in place.
  [[nodiscard]] bool direct() const { return limits_of(at(0)).direct; }
  /// The number of copies of the source in a strip.
  [[nodiscard]] index_t copies() const {
    const correlation c = at(0);
    return limits_of(c).spread ? c.taps_width : 1;
  }

 private:
  static constexpr bool in_place_ = std::is_same_v<Element, real>;  // tiles can read x and write y in place
  static constexpr index_t pack_parts = 16;                         // number of tasks that pack a group's weights

  /// The largest block, and where its pixels are.
  struct limits {
    bool direct;   ///< tiles read the source in place, without a strip
    bool joined;   ///< the rows of a block are adjacent in the source or the strip
    bool spread;   ///< joined by a strip that has the rows once for every column of taps
    index_t rows;  ///< of one image
    index_t unit;  ///< blocks begin at multiples of this row
  };

  /// Treats an image of a 1x1 product as one column of pixels.
  [[nodiscard]] static conv2d_geometry flattened(conv2d_geometry g) {
    if (g.kernel_height * g.kernel_width * g.stride_height * g.stride_width == 1 && g.in_height == g.out_height &&
        g.in_width == g.out_width && g.pad_top == 0 && g.pad_left == 0) {
      g.in_height *= g.in_width;
      g.in_width = 1;
      g.out_height = g.in_height;
      g.out_width = 1;
    }
    return g;
  }
  [[nodiscard]] limits limits_of(const correlation& c) const {
    constexpr index_t source_bytes = 192 * 1024;
    const bool single = c.taps_height * c.taps_width == 1;
    // The pixels of all results are one run of the source, starting at row origin_height. Rows of `columns` pixels that
    // are inside and as long as those of the source have origin 0, and step 1 unless they have one pixel.
    const bool one_run = single && c.inside() && c.source_width == c.columns && c.step_height == 1;
    limits result{.direct = in_place_ && c.inside() && c.step_width == 1,
                  .joined = false,
                  .spread = !single && gains_by_joined_rows(c),
                  .rows = 1,
                  .unit = 1};
    const index_t copies = (result.spread ? c.taps_width : c.step_width) * std::max<index_t>(1, c.row_step());
    const index_t pixel_bytes = std::max<index_t>(1, c.terms * copies) * static_cast<index_t>(sizeof(real));
    const index_t pixels = std::clamp<index_t>(source_bytes / pixel_bytes, 6 * kernels_.width, 1024);
    result.direct = result.direct && !result.spread;
    result.joined = result.spread || (single && (!result.direct || one_run));
    result.unit = one_run && c.columns == 1 ? kernels_.width : 1;
    // Many results read their terms often, and in a strip the terms are on few pages. The strip is that run for any
    // origin.
    result.direct = result.direct && !(result.unit > 1 && c.results >= 2 * c.terms);
    result.rows = round_up(
        std::clamp<index_t>(pixels / std::max<index_t>(1, c.columns), 1, std::max<index_t>(1, c.rows)), result.unit);
    return result;
  }
  /// True if short rows would make tiles compute many pixels twice, and every pixel of a strip is used by enough
  /// results to be worth a copy for each column of taps.
  [[nodiscard]] bool gains_by_joined_rows(const correlation& c) const {
    const bool wastes = c.columns < kernels_.width || 16 * round_up(c.columns, kernels_.width) >= 17 * c.columns;
    return wastes && c.taps_height * c.results >= 2 * kernels_.width;
  }
  [[nodiscard]] index_t block_tasks(const correlation& c) const override { return blocks(c).count(); }
  [[nodiscard]] result_blocks blocks(const correlation& c) const {
    const limits most = limits_of(c);
    const index_t units = std::max<index_t>(1, c.rows / most.unit);
    return {batch_, units, 1, most.rows / most.unit, most.joined && most.unit == 1 ? 0 : 4 * threads_};
  }
  /// A block of units as a block of rows. The last block also has the rows of an incomplete unit, so that no run is
  /// shorter than a tile.
  [[nodiscard]] result_block block_of(const correlation& c, result_block block) const {
    const index_t unit = limits_of(c).unit;
    const bool last = (block.row + block.rows + 1) * unit > c.rows;
    block.rows = last ? c.rows - block.row * unit : block.rows * unit;
    block.row *= unit;
    return block;
  }
  [[nodiscard]] index_t shortest_block(const correlation& c) const {
    const limits most = limits_of(c);
    return most.unit > 1 ? std::min(most.unit, c.rows) : c.rows / ceil_div(c.rows, most.rows);
  }
  [[nodiscard]] index_t highest_block(const correlation& c) const {
    const limits most = limits_of(c);
    return most.rows + most.unit - 1;
  }

  // A strip holds the rows of some channels. With a stride, its columns are sorted by the phase of the stride, so that
  // each tap reads adjacent columns.
  [[nodiscard]] static index_t strip_phases(const correlation& c) { return std::min(c.step_width, c.taps_width); }
  [[nodiscard]] static index_t strip_columns(const correlation& c) {
    return c.columns + (c.taps_width - 1) / c.step_width;
  }
  [[nodiscard]] static index_t strip_pitch(const correlation& c) { return strip_phases(c) * strip_columns(c); }

  /// Elements of a strip for one channel.
  [[nodiscard]] static index_t strip_plane(const correlation& c, const limits& most, index_t rows) {
    return most.spread ? spread_strip{c, rows}.plane() : c.source_rows(rows) * strip_pitch(c);
  }

  [[nodiscard]] index_t pack_tasks(const correlation& c) const override {
    return c.terms_of_all_taps() == 0 ? 0 : pack_parts;
  }
  /// The elements of a group's packed weights; the last tile may have more rows than there are results.
  [[nodiscard]] index_t group_weights(const correlation& c) const override {
    return (c.results + kernels_.rows) * c.terms_of_all_taps();
  }

  struct worker_memory {
    index_t* offsets;  ///< of the terms, in the strip or the source
    real* sums;        ///< of a tile along a run
    real* spread;      ///< rows of the destination
    real* strip;
  };
  [[nodiscard]] worker_memory take(const correlation& c, scratch& memory) const {
    const limits most = limits_of(c);
    worker_memory m{};
    m.offsets = memory.template take<index_t>(c.terms_of_all_taps());
    m.sums = memory.template take<real>(kernels_.rows * (most.joined ? highest_block(c) : 1) * c.columns);
    m.spread = memory.template take<real>(
        c.fills ? (most.joined ? highest_block(c) : 1) * c.skip_height * c.destination_width : 0);
    m.strip = memory.template take<real>(most.direct ? 0 : c.terms * strip_plane(c, most, highest_block(c)));
    return m;
  }
  [[nodiscard]] std::size_t memory_bytes(const correlation& c) const override {
    scratch memory;
    if (c.terms_of_all_taps() > 0) {
      static_cast<void>(take(c, memory));
    }
    return memory.used();
  }

  /// Packs weights tile by tile, each with its terms x its rows.
  void pack(const correlation& c, index_t group, index_t task, const real* w, real* to,
            scratch /*memory*/) const override {
    index_t tile = 0;
    for (index_t result = 0; result < c.results; ++tile) {
      const index_t rows = next_tile_rows(kernels_, c.results - result);
      if (tile % pack_parts == task) {
        const index_t height = tile_height<real>(kernels_.wide, rows);
        real* const packed = to + result * c.terms_of_all_taps();
        pack_weights(kernels_, c, term_order::channels_first, w, group, result, rows, height, packed);
        round_run<Element>(height * c.terms_of_all_taps(), packed);
      }
      result += rows;
    }
  }

  void copy_strip(const correlation& c, const limits& most, const Element* x, const result_block& block,
                  real* strip) const {
    const index_t plane = c.source_height * c.source_width;
    if (most.unit > 1) {
      for (index_t i = 0; i < c.terms; ++i) {
        read_run(x + i * plane + c.origin_height + block.row, block.rows, strip + i * block.rows);
      }
      return;
    }
    if (most.spread) {
      spread_strip{c, block.rows}.copy(x, c.terms, block.row, strip);
      return;
    }
    for (index_t i = 0; i < c.terms; ++i, x += plane) {
      for (index_t r = 0; r < c.source_rows(block.rows); ++r) {
        const index_t h = c.origin_height + (block.row + r / c.row_step()) * c.step_height + r % c.row_step();
        for (index_t phase = 0; phase < strip_phases(c); ++phase, strip += strip_columns(c)) {
          copy_strip_row(c, x, h, c.origin_width + phase, strip_columns(c), strip);
        }
      }
    }
  }

  /// Finds the offsets of the terms of a block's first pixel, in the source or the strip.
  void find_offsets(const correlation& c, const limits& most, index_t rows, index_t* offset) const {
    const spread_strip spread{c, rows};
    for (index_t i = 0; i < c.terms; ++i) {
      for (index_t r = 0; r < c.taps_height; ++r) {
        for (index_t s = 0; s < c.taps_width; ++s) {
          if (most.direct) {
            *offset++ = (i * c.source_height + r) * c.source_width + s;
          } else if (most.spread) {
            *offset++ = spread.offset(i, r, s);
          } else {
            *offset++ =
                (i * c.source_rows(rows) + r) * strip_pitch(c) + s % c.step_width * strip_columns(c) + s / c.step_width;
          }
        }
      }
    }
  }

  void run_block(const correlation& c, index_t group, index_t task, const Element* x, const real* packed,
                 const tile_output<Element>& output, scratch memory) const override {
    const result_blocks parts = blocks(c);
    const result_block block = block_of(c, parts[task]);
    const result_block next = block_of(c, parts[std::min(task + threads_, parts.count() - 1)]);
    if (c.terms_of_all_taps() == 0) {
      store_nothing(kernels_, c, channel_order::first, group, block, output);
      return;
    }
    const index_t plane = c.destination_height * c.destination_width;
    const index_t source_plane = c.source_height * c.source_width;
    const limits most = limits_of(c);
    const worker_memory m = take(c, memory);
    const index_t pitch = most.direct ? c.source_width : strip_pitch(c);
    find_offsets(c, most, block.rows, m.offsets);
    const auto source_of = [&](const result_block& b) {
      return x + (b.image * c.groups + group) * c.terms * source_plane +
             (c.origin_height + b.row * c.step_height) * c.source_width + c.origin_width;
    };
    const real* source = m.strip;
    if constexpr (in_place_) {
      source = source_of(block);
    }
    if (!most.direct) {
      copy_strip(c, most, x + (block.image * c.groups + group) * c.terms * source_plane, block, m.strip);
      source = m.strip;
    }
    const index_t row_step = (most.direct ? c.step_height : c.row_step()) * pitch;
    const index_t runs = most.joined ? 1 : block.rows;
    const index_t rows_of_run = most.joined ? block.rows : 1;
    // Tiles store directly if a run of results is a run of the destination: dense() rows are as long as its rows.
    const bool direct = in_place_ && c.dense() && output.residual == nullptr && output.mask == nullptr &&
                        !output.accumulate && !output.act.other;
    const index_t tiles = ceil_div(c.results, kernels_.rows);
    std::array<index_t, most_tile_rows> c_row{};
    for (std::size_t i = 0; i < c_row.size(); ++i) {
      c_row[i] = static_cast<index_t>(i) * plane;
    }
    plane_call<real> call;
    call.offsets = m.offsets;
    call.terms = c.terms_of_all_taps();
    call.columns = rows_of_run * c.columns;
    call.ahead_step = source_plane;
    index_t ahead = most.unit > 1 ? 0 : c.terms;  // channels of the next block to prefetch
    for (index_t result = 0; result < c.results;) {
      const index_t rows = next_tile_rows(kernels_, c.results - result);
      const index_t height = tile_height<real>(kernels_.wide, rows);
      call.a = packed + result * c.terms_of_all_taps();
      if constexpr (in_place_) {
        call.ahead = source_of(next) + ahead * source_plane;
        call.ahead_rows = std::min(ceil_div(c.terms, tiles), c.terms - ahead);
        call.ahead_terms = call.terms / std::max<index_t>(1, call.ahead_rows);
      }
      ahead += call.ahead_rows;
      const bool in_place = direct && rows == height;
      for (index_t t = 0; t < runs; ++t) {
        const index_t row = block.row + t;
        const index_t offset = ((block.image * c.groups + group) * c.results + result) * plane +
                               (c.first_height + row * c.skip_height) * c.destination_width + c.first_width;
        call.b = source + t * row_step;
        call.c = m.sums;
        if constexpr (in_place_) {
          call.c = in_place ? output.c + offset : m.sums;
        }
        call.c_step = in_place ? plane : call.columns;
        call.relu = in_place && output.act.relu;
        const real* const bias = output.bias == nullptr ? nullptr : output.bias + group * c.results + result;
        call.bias = in_place ? bias : nullptr;
        plane_tiles_for<real>(kernels_.set)[static_cast<std::size_t>(height)](call);
        if (in_place) {
          continue;
        }
        tile_output<Element> shifted_output = shifted(output, offset);
        shifted_output.bias = bias;
        shifted_output.bias_of_rows = true;
        store_planes(kernels_, c, row, rows_of_run, m.sums, rows, call.columns, c_row.data(), m.spread, shifted_output);
      }
      result += rows;
    }
  }
};

}  // namespace gradus::kernels::detail

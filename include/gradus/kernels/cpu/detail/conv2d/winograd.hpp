// SPDX-License-Identifier: BSL-1.0
//
// Correlations by Winograd: tiles of results with fewer products than their sums have terms.
#pragma once

#include <algorithm>    // std::clamp, std::fill_n, std::max, std::min
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <type_traits>  // std::is_same_v

#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/conv2d/correlation.hpp"
#include "gradus/kernels/cpu/detail/conv2d/phases.hpp"
#include "gradus/kernels/cpu/detail/conv2d/winograd_tiles.hpp"
#include "gradus/kernels/cpu/detail/simd/panels.hpp"

namespace gradus::kernels::detail {

/// Computes results tile by tile: transforms the inputs of a tile, multiplies them, and transforms the sums back.
template <class Element>
class winograd_correlations final : public correlations<Element> {
  using base = correlations<Element>;
  using base::batch_, base::kernels_, base::order_, base::threads_;
  using typename base::real;

 public:
  /// @param batch  largest number of images
  winograd_correlations(const tile_kernels<real>& kernels, const conv2d_geometry& g, channel_order order, pass which,
                        index_t threads, index_t batch)
      : base{kernels, g, order, which, threads, batch}, tiles_{kernels, base::at(0), order} {}

 private:
  [[nodiscard]] bool channels_last() const noexcept { return order_ == channel_order::last; }
  /// The number of results of a tile.
  [[nodiscard]] index_t squares() const noexcept { return tiles_.results_high * tiles_.results_wide; }

  /// The largest block; at least one row of tiles.
  struct limits {
    index_t images;
    index_t rows;  ///< rows of tiles
  };
  [[nodiscard]] limits limits_of(const correlation& c) const {
    constexpr index_t block_bytes = 1024 * 1024;  // of transformed inputs and sums
    const index_t tile_bytes = tiles_.products * (c.terms + c.results) * static_cast<index_t>(sizeof(real));
    const index_t tiles = std::clamp<index_t>(block_bytes / tile_bytes, least_tiles(), 96);
    const index_t of_image = tiles_.rows * tiles_.columns;
    return {.images = std::clamp<index_t>(tiles / of_image, 1, std::max<index_t>(1, batch_)),
            .rows = std::clamp<index_t>(tiles / tiles_.columns, 1, tiles_.rows)};
  }
  /// With fewer tiles than this, a block would read all weights for too few products.
  [[nodiscard]] index_t least_tiles() const noexcept { return 2 * kernels_.rows; }
  /// Blocks of tiles; their rows are rows of tiles.
  [[nodiscard]] result_blocks blocks(const correlation& c) const {
    const limits most = limits_of(c);
    const index_t tiles = batch_ * tiles_.rows * tiles_.columns;
    return {batch_, tiles_.rows, most.images, most.rows, std::clamp<index_t>(tiles / least_tiles(), 1, threads_)};
  }
  /// The number of parts of the results that are separate tasks, if there are few blocks. Each part transforms the
  /// source again.
  [[nodiscard]] index_t result_parts(const correlation& c) const {
    constexpr index_t many_results = 128;  // enough results to outweigh a second transform
    if (threads_ == 1) {
      return 1;
    }
    const index_t count = std::max<index_t>(1, blocks(c).count());
    const index_t even = std::min(ceil_div(4 * threads_, count), c.results / many_results);
    const index_t busy = std::min(ceil_div(threads_, count), ceil_div(c.results, kernels_.width));
    return std::max<index_t>({1, even, busy});
  }
  [[nodiscard]] index_t block_tasks(const correlation& c) const override { return blocks(c).count() * result_parts(c); }

  /// One task for every panel.
  [[nodiscard]] index_t pack_tasks(const correlation& c) const override { return ceil_div(c.results, kernels_.width); }
  [[nodiscard]] index_t weight_step(const correlation& c) const {
    return winograd_step<real>(c.terms, padded_columns(kernels_, c.results));
  }
  [[nodiscard]] index_t group_weights(const correlation& c) const override { return tiles_.products * weight_step(c); }

  struct worker_memory {
    real* zeros;
    real* strip;    ///< unless read in place: some rows of x with the channels last
    real* input;    ///< (product, tile, term)
    real* sums;     ///< (product, tile, result)
    real* results;  ///< nhwc: of a tile; nchw: of all pixels, some channels
    real* spare;    ///< results outside the destination
    real* planes;   ///< nchw: results with the channels first
    real* tile;
    index_t* a_row;
    index_t* c_row;
  };
  [[nodiscard]] index_t most_tiles(const correlation& c) const {
    const limits most = limits_of(c);
    return most.images * most.rows * tiles_.columns;
  }
  [[nodiscard]] worker_memory take(const correlation& c, scratch& memory) const {
    const limits most = limits_of(c);
    const index_t tiles = most_tiles(c);
    const index_t pixels = channels_last() ? 0 : tiles * squares();
    worker_memory m{};
    m.zeros = memory.template take<real>(c.terms);
    m.strip = memory.template take<real>(tiles_.strip_elements(most.images, most.rows, c.terms));
    m.input = memory.template take<real>(tiles_.products * input_step(c));
    m.sums = memory.template take<real>(tiles_.products * sums_step(c));
    m.results = memory.template take<real>(channels_last() ? squares() * c.results : pixels * kernels_.width);
    m.spare = memory.template take<real>(c.results);
    m.planes = memory.template take<real>(pixels * kernels_.width);
    m.tile = memory.template take<real>(2 * kernels_.rows * c.results);
    m.a_row = memory.template take<index_t>(tiles);
    m.c_row = memory.template take<index_t>(tiles);
    return m;
  }
  /// Elements of the memory in which a worker packs weights.
  [[nodiscard]] index_t taps_of_planes() const { return channels_last() ? 0 : tiles_.taps * kernels_.width; }
  [[nodiscard]] std::size_t memory_bytes(const correlation& c) const override {
    scratch packing;
    static_cast<void>(packing.template take<real>(taps_of_planes()));
    static_cast<void>(packing.template take<real>(c.terms_of_all_taps() * kernels_.width));
    scratch memory;
    static_cast<void>(take(c, memory));
    return std::max(packing.used(), memory.used());
  }

  void pack(const correlation& c, index_t group, index_t task, const real* w, real* to, scratch memory) const override {
    const index_t result = task * kernels_.width;
    const index_t width = next_panel_width(kernels_, c.results - result);
    const index_t columns = std::min(c.results - result, kernels_.width);
    real* const taps = memory.template take<real>(taps_of_planes());
    real* const panel = memory.template take<real>(c.terms_of_all_taps() * width);
    if (channels_last()) {
      pack_weights(kernels_, c, term_order::channels_last, w, group, result, columns, width, panel);
    } else {
      pack_weights_of_planes(kernels_, c, tiles_.taps, w, group, result, columns, width, taps, panel);
    }
    round_panel<Element>(kernels_, panel, tiles_.taps, c.terms, width, panel);
    std::array<const real*, winograd_tiles<Element>::most_taps> from;
    for (index_t i = 0; i < tiles_.taps; ++i) {
      from[static_cast<std::size_t>(i)] = panel + i * c.terms * width;
    }
    const auto positions = tiles_.planes(to + result * c.terms, weight_step(c));
    tiles_.transforms->weights(from.data(), 0, positions.data(), 0, c.terms * width);
  }

  void run_block(const correlation& c, index_t /*group*/, index_t task, const Element* x, const real* packed,
                 const tile_output<Element>& output, scratch memory) const override {
    const worker_memory m = take(c, memory);
    const index_t parts = result_parts(c);
    const result_block block = results_of(c, blocks(c)[task / parts]);
    const index_t panels = ceil_div(c.results, kernels_.width);
    const index_t begin = part_begin(panels, parts, task % parts) * kernels_.width;
    const index_t end = std::min(c.results, part_begin(panels, parts, task % parts + 1) * kernels_.width);
    std::fill_n(m.zeros, c.terms, real{});
    const index_t tiles = tiles_.transform_input(
        block, x, 0, c.terms,
        {.zeros = m.zeros, .strip = m.strip, .positions = m.input, .pitch = input_pitch(c), .step = input_step(c)});
    multiply_block(c, tiles, packed + begin * c.terms, end - begin, m);
    tile_output<Element> stored = shifted(output, begin * (channels_last() ? 1 : c.rows * c.columns));
    stored.bias = output.bias == nullptr ? nullptr : output.bias + begin;
    if (channels_last()) {
      store_pixels(c, block, end - begin, stored, m);
    } else {
      store_channels(c, block, end - begin, stored, m);
    }
  }

  /// The results of a block of tiles.
  [[nodiscard]] result_block results_of(const correlation& c, result_block block) const {
    const index_t row = block.row * tiles_.results_high;
    return {.image = block.image,
            .images = block.images,
            .row = row,
            .rows = std::min(c.rows - row, block.rows * tiles_.results_high)};
  }

  [[nodiscard]] index_t input_pitch(const correlation& c) const { return winograd_pitch<real>(c.terms); }
  [[nodiscard]] index_t input_step(const correlation& c) const {
    return winograd_step<real>(most_tiles(c), input_pitch(c));
  }
  [[nodiscard]] index_t sums_pitch(const correlation& c) const { return winograd_pitch<real>(c.results); }
  [[nodiscard]] index_t sums_step(const correlation& c) const {
    return winograd_step<real>(most_tiles(c), sums_pitch(c));
  }

  void multiply_block(const correlation& c, index_t tiles, const real* packed, index_t results,
                      const worker_memory& m) const {
    constexpr index_t group_bytes = 256 * 1024;  // of the second-level cache: panels that tiles use one after another
    for (index_t i = 0; i < tiles; ++i) {
      m.a_row[i] = i * input_pitch(c);
      m.c_row[i] = i * sums_pitch(c);
    }
    const index_t zero = 0;
    const index_t panel_bytes = kernels_.width * c.terms * static_cast<index_t>(sizeof(real));
    const index_t group = std::max<index_t>(1, group_bytes / panel_bytes) * kernels_.width;
    for (index_t i = 0; i < tiles_.products; ++i) {
      for (index_t result = 0; result < results; result += group) {
        panel_rows<real> panel;
        panel.rows = tiles;
        panel.columns = std::min(results - result, group);
        panel.terms = c.terms;
        panel.tile = m.tile;
        // The next panels, of which the tiles prefetch some lines each: of this product, or the first of the next one.
        const bool more = result + group < results;
        if (more || i + 1 < tiles_.products) {
          const index_t next = more ? result + group : 0;
          panel.next = packed + (more ? i : i + 1) * weight_step(c) + next * c.terms;
          panel.next_lines = std::min(results - next, group) * c.terms / (64 / static_cast<index_t>(sizeof(real)));
        }
        tile_call<real> call;
        call.a = m.input + i * input_step(c);
        call.a_row = m.a_row;
        call.segments = &zero;
        call.segment_count = 1;
        call.segment_length = c.terms;
        call.b = packed + i * weight_step(c) + result * c.terms;
        call.c_row = m.c_row;
        multiply_rows(kernels_, call, panel, tile_output<real>{.c = m.sums + i * sums_step(c) + result});
      }
    }
  }

  /// Stores the results of a block in nhwc.
  void store_pixels(const correlation& c, const result_block& block, index_t results,
                    const tile_output<Element>& output, const worker_memory& m) const {
    constexpr bool same = std::is_same_v<Element, real>;
    const bool plain = same && output.simple() && output.bias == nullptr && !output.act.relu;
    const auto from = tiles_.template planes<const real*>(m.sums, sums_step(c));
    tiles_.for_each(block, [&, this](index_t n, index_t row, index_t column, index_t tile) {
      std::array<real*, winograd_tiles<Element>::most_results> to;
      std::array<index_t, winograd_tiles<Element>::most_results> c_row;
      std::size_t position = 0;
      index_t inside = 0;
      for (index_t h = row; h < row + tiles_.results_high; ++h) {
        for (index_t w = column; w < column + tiles_.results_wide; ++w, ++position) {
          to[position] = m.spare;
          if (h < c.rows && w < c.columns) {
            const index_t pixel = ((n * c.rows + h) * c.columns + w) * c.results;
            to[position] = m.results + inside * results;
            if constexpr (same) {
              to[position] = plain ? output.c + pixel : to[position];
            }
            c_row[static_cast<std::size_t>(inside++)] = pixel;
          }
        }
      }
      tiles_.transforms->sums(from.data(), tile * sums_pitch(c), to.data(), 0, results);
      if (!plain) {
        store_rows(kernels_, m.results, inside, results, results, c_row.data(), output);
      }
    });
  }

  /// Stores the results of a block in nchw.
  void store_channels(const correlation& c, const result_block& block, index_t results,
                      const tile_output<Element>& output, const worker_memory& m) const {
    const index_t plane = c.rows * c.columns;
    const index_t pixels = block.rows * c.columns;
    const auto from = tiles_.template planes<const real*>(m.sums, sums_step(c));
    std::array<index_t, 64> c_row{};
    for (index_t result = 0; result < results; result += kernels_.width) {
      const index_t columns = std::min(results - result, kernels_.width);
      tiles_.for_each(block, [&, this](index_t n, index_t row, index_t column, index_t tile) {
        std::array<real*, winograd_tiles<Element>::most_results> to;
        std::size_t position = 0;
        for (index_t h = row; h < row + tiles_.results_high; ++h) {
          for (index_t w = column; w < column + tiles_.results_wide; ++w, ++position) {
            const index_t pixel = (n - block.image) * pixels + (h - block.row) * c.columns + w;
            to[position] = h < c.rows && w < c.columns ? m.results + pixel * columns : m.spare;
          }
        }
        tiles_.transforms->sums(from.data(), tile * sums_pitch(c) + result, to.data(), 0, columns);
      });
      for (index_t j = 0; j < columns; ++j) {
        c_row[static_cast<std::size_t>(j)] = (result + j) * plane;
      }
      tile_output<Element> stored = output;
      stored.bias = output.bias == nullptr ? nullptr : output.bias + result;
      stored.bias_of_rows = true;
      for (index_t n = 0; n < block.images; ++n) {
        kernels_.transpose(m.results + n * pixels * columns, columns, pixels, columns, pixels, m.planes);
        store_rows(kernels_, m.planes, columns, pixels, pixels, c_row.data(),
                   shifted(stored, (block.image + n) * c.results * plane + block.row * c.columns));
      }
    }
  }

  winograd_tiles<Element> tiles_;
};

}  // namespace gradus::kernels::detail

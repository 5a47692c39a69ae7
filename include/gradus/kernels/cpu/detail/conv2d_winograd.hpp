// SPDX-License-Identifier: BSL-1.0
//
// Correlations by minimal filtering: tiles of results from fewer products than their sums have terms.
// Module: kernels. Depends on: tensor.
#pragma once

#include <algorithm>  // std::clamp, std::fill_n, std::max, std::min
#include <array>      // std::array
#include <cstddef>    // std::size_t

#include "gradus/core/index.hpp"                             // index_t
#include "gradus/kernels/conv2d.hpp"                         // conv2d_geometry, pass
#include "gradus/kernels/cpu/detail/conv2d_correlation.hpp"  // correlation
#include "gradus/kernels/cpu/detail/conv2d_phases.hpp"       // correlations
#include "gradus/kernels/cpu/simd_panels.hpp"                // multiply_rows, scratch
#include "gradus/kernels/cpu/simd_winograd.hpp"              // winograd_transforms_for

namespace gradus::kernels::detail {

/// Whether a convolution gains by minimal filtering: kernels of 3x3, 5x5, 1x3, 1x7 and 7x1 without strides, channels
/// that fill vectors and are many enough to pay for the transforms, and tiles that lie inside the image for the most
/// part. Of the shape alone, so that a network computes the same however it is run.
[[nodiscard]] constexpr bool gains_by_winograd(const conv2d_geometry& g) noexcept {
  constexpr index_t unit = 16;
  constexpr index_t least_channels = 32;
  constexpr index_t most_columns = 1024;
  constexpr index_t results = winograd_axis<3>::results;
  const index_t most = std::max(g.kernel_height, g.kernel_width);
  const index_t least = std::min(g.kernel_height, g.kernel_width);
  const bool square = least == most && (most == 3 || most == 5);
  const bool line = least == 1 && (most == 3 || most == 7);
  const auto filtered = [](index_t taps, index_t size) {
    return taps == 1 ? size : ceil_div(size, results) * (results - 1 + taps);
  };
  const index_t products = filtered(g.kernel_height, g.out_height) * filtered(g.kernel_width, g.out_width);
  return (square || line) && g.stride_height == 1 && g.stride_width == 1 && g.groups == 1 &&
         g.in_channels % unit == 0 && g.out_channels % unit == 0 &&
         std::min(g.in_channels, g.out_channels) >= least_channels &&
         std::max(g.in_width, g.out_width) <= most_columns && products > 0 &&
         2 * products <= g.kernel_height * g.kernel_width * g.out_height * g.out_width;
}

/// The tiles of minimal filtering for a kernel.
template <class Element>
struct winograd_filter {
  static constexpr std::size_t most_results = 16;
  static constexpr std::size_t most_taps = 25;
  static constexpr std::size_t most_products = 64;

  winograd_filter(instruction_set set, const correlation& c)
      : taps{c.taps_height * c.taps_width},
        results_high{c.taps_height == 1 ? 1 : winograd_axis<3>::results},
        results_wide{c.taps_width == 1 ? 1 : winograd_axis<3>::results},
        places_high{results_high + c.taps_height - 1},
        places_wide{results_wide + c.taps_width - 1},
        products{places_high * places_wide} {
    const winograd_table<Element>& table = winograd_transforms_for<Element>(set);
    const bool square = c.taps_height == c.taps_width;
    transforms = taps == 9 ? &table.square_3 : square ? &table.square_5 : taps == 3 ? &table.line_3 : &table.line_7;
  }
  [[nodiscard]] index_t tile_rows(index_t rows) const noexcept { return ceil_div(rows, results_high); }
  [[nodiscard]] index_t tile_columns(index_t columns) const noexcept { return ceil_div(columns, results_wide); }
  /// Rows of the source that rows of tiles read.
  [[nodiscard]] index_t source_rows(index_t tiles) const noexcept { return (tiles - 1) * results_high + places_high; }

  const winograd_transforms<Element>* transforms;
  index_t taps;
  index_t results_high;  ///< of a tile
  index_t results_wide;
  index_t places_high;  ///< that they read of the source
  index_t places_wide;
  index_t products;  ///< of a tile and a pair of channels
};

/// Images with the channels last, or rows of one: what tiles read.
template <class Element>
struct winograd_image {
  const Element* first = nullptr;  ///< place (first_row, 0)
  index_t first_row = 0;
  index_t height = 0;
  index_t width = 0;
  index_t pitch = 0;               ///< elements from a place to the next
  const Element* zeros = nullptr;  ///< what lies outside

  /// Where some places begin, row by row.
  void list(index_t row, index_t rows, index_t column, index_t columns, const Element** place) const noexcept {
    for (index_t h = row; h < row + rows; ++h) {
      const bool inside = h >= 0 && h < height;
      for (index_t w = column; w < column + columns; ++w) {
        *place++ = inside && w >= 0 && w < width ? first + ((h - first_row) * width + w) * pitch : zeros;
      }
    }
  }
};

/// Elements from a row of products to the next, so that rows do not collide in the caches.
template <class Element>
[[nodiscard]] constexpr index_t winograd_pitch(index_t channels) noexcept {
  constexpr index_t line = 64 / static_cast<index_t>(sizeof(Element));
  return channels + (channels / line % 2 == 0 ? line : 0);
}
/// The same from one place to the next, each of `rows` such rows.
template <class Element>
[[nodiscard]] constexpr index_t winograd_step(index_t rows, index_t pitch) noexcept {
  return winograd_pitch<Element>(round_up(rows * pitch, 64 / static_cast<index_t>(sizeof(Element))));
}

template <class Element>
class winograd_correlations final : public correlations<Element> {
  using base = correlations<Element>;
  using base::batch_, base::kernels_, base::order_, base::threads_;
  using typename base::real;

 public:
  /// @param batch  images at most
  winograd_correlations(const tile_kernels<real>& kernels, const conv2d_geometry& g, channel_order order, pass which,
                        index_t threads, index_t batch)
      : base{kernels, g, order, which, threads, batch}, filter_{kernels.set, base::at(0)} {}

 private:
  [[nodiscard]] bool channels_last() const noexcept { return order_ == channel_order::last; }
  [[nodiscard]] index_t tile_rows(const correlation& c) const noexcept { return filter_.tile_rows(c.rows); }
  [[nodiscard]] index_t tile_columns(const correlation& c) const noexcept { return filter_.tile_columns(c.columns); }
  /// Results of a tile.
  [[nodiscard]] index_t squares() const noexcept { return filter_.results_high * filter_.results_wide; }

  /// How much a block takes at most: a row of tiles at least.
  struct limits {
    index_t images;
    index_t rows;  ///< of tiles
  };
  [[nodiscard]] limits limits_of(const correlation& c) const {
    constexpr index_t block_bytes = 1024 * 1024;  // of transformed places and sums
    const index_t tile_bytes = filter_.products * (c.terms + c.results) * static_cast<index_t>(sizeof(real));
    const index_t tiles = std::clamp<index_t>(block_bytes / tile_bytes, least_tiles(), 96);
    const index_t of_image = tile_rows(c) * tile_columns(c);
    return {.images = std::clamp<index_t>(tiles / of_image, 1, std::max<index_t>(1, batch_)),
            .rows = std::clamp<index_t>(tiles / tile_columns(c), 1, tile_rows(c))};
  }
  /// Fewer tiles than this make a block that reads all weights for too few products.
  [[nodiscard]] index_t least_tiles() const noexcept { return 2 * kernels_.rows; }
  /// Blocks of tiles: their rows are rows of tiles.
  [[nodiscard]] result_blocks blocks(const correlation& c) const {
    const limits most = limits_of(c);
    const index_t tiles = batch_ * tile_rows(c) * tile_columns(c);
    return {batch_, tile_rows(c), most.images, most.rows, std::clamp<index_t>(tiles / least_tiles(), 1, threads_)};
  }
  /// Parts of the results that are tasks of their own, where there are few blocks. Each transforms the source again.
  [[nodiscard]] index_t result_parts(const correlation& c) const {
    constexpr index_t many_results = 128;  // pay for that
    if (threads_ == 1) {
      return 1;
    }
    const index_t count = std::max<index_t>(1, blocks(c).count());
    const index_t even = std::min(ceil_div(4 * threads_, count), c.results / many_results);
    const index_t busy = std::min(ceil_div(threads_, count), ceil_div(c.results, kernels_.width));
    return std::max<index_t>({1, even, busy});
  }
  [[nodiscard]] index_t block_tasks(const correlation& c) const override { return blocks(c).count() * result_parts(c); }

  /// One for every panel.
  [[nodiscard]] index_t pack_tasks(const correlation& c) const override { return ceil_div(c.results, kernels_.width); }
  [[nodiscard]] index_t weight_step(const correlation& c) const {
    return winograd_step<real>(c.terms, padded_columns(kernels_, c.results));
  }
  [[nodiscard]] index_t group_weights(const correlation& c) const override { return filter_.products * weight_step(c); }

  struct worker_memory {
    real* zeros;
    real* strip;    ///< nchw: some rows of x with the channels last
    real* input;    ///< (product, tile, term)
    real* sums;     ///< (product, tile, result)
    real* results;  ///< nhwc: of a tile; nchw: of all pixels, some channels
    real* spare;    ///< results that lie outside
    real* planes;   ///< nchw: results with the channels first
    real* tile;
    index_t* a_row;
    index_t* c_row;
  };
  [[nodiscard]] index_t most_tiles(const correlation& c) const {
    const limits most = limits_of(c);
    return most.images * most.rows * tile_columns(c);
  }
  [[nodiscard]] worker_memory take(const correlation& c, scratch& memory) const {
    const limits most = limits_of(c);
    const index_t tiles = most_tiles(c);
    const index_t pixels = channels_last() ? 0 : tiles * squares();
    worker_memory m{};
    m.zeros = memory.template take<real>(c.terms);
    m.strip = memory.template take<real>(channels_last()
                                             ? 0
                                             : most.images * std::min(filter_.source_rows(most.rows), c.source_height) *
                                                   c.source_width * c.terms);
    m.input = memory.template take<real>(filter_.products * input_step(c));
    m.sums = memory.template take<real>(filter_.products * sums_step(c));
    m.results = memory.template take<real>(channels_last() ? squares() * c.results : pixels * kernels_.width);
    m.spare = memory.template take<real>(c.results);
    m.planes = memory.template take<real>(pixels * kernels_.width);
    m.tile = memory.template take<real>(2 * kernels_.rows * c.results);
    m.a_row = memory.template take<index_t>(tiles);
    m.c_row = memory.template take<index_t>(tiles);
    return m;
  }
  /// What a worker packs weights in.
  [[nodiscard]] index_t taps_of_planes() const { return channels_last() ? 0 : filter_.taps * kernels_.width; }
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
      pack_weights_of_planes(kernels_, c, filter_.taps, w, group, result, columns, width, taps, panel);
    }
    std::array<const real*, winograd_filter<real>::most_taps> from;
    std::array<real*, winograd_filter<real>::most_products> places;
    for (index_t i = 0; i < filter_.taps; ++i) {
      from[static_cast<std::size_t>(i)] = panel + i * c.terms * width;
    }
    for (index_t i = 0; i < filter_.products; ++i) {
      places[static_cast<std::size_t>(i)] = to + i * weight_step(c) + result * c.terms;
    }
    filter_.transforms->weights(from.data(), 0, places.data(), 0, c.terms * width);
  }

  void run_block(const correlation& c, index_t /*group*/, index_t task, const Element* x, const real* packed,
                 const tile_output<Element>& output, scratch memory) const override {
    const worker_memory m = take(c, memory);
    const index_t parts = result_parts(c);
    const result_block block = blocks(c)[task / parts];
    const index_t panels = ceil_div(c.results, kernels_.width);
    const index_t begin = part_begin(panels, parts, task % parts) * kernels_.width;
    const index_t end = std::min(c.results, part_begin(panels, parts, task % parts + 1) * kernels_.width);
    transform_block(c, block, x, m);
    multiply_block(c, block, packed + begin * c.terms, end - begin, m);
    tile_output<Element> stored = shifted(output, begin * (channels_last() ? 1 : c.rows * c.columns));
    stored.bias = output.bias == nullptr ? nullptr : output.bias + begin;
    if (channels_last()) {
      store_pixels(c, block, end - begin, stored, m);
    } else {
      store_channels(c, block, end - begin, stored, m);
    }
  }

  /// Calls body(image, row, column of the first result, number of the tile) for the tiles of a block.
  template <class Body>
  void for_each_tile(const correlation& c, const result_block& block, const Body& body) const {
    index_t tile = 0;
    for (index_t n = block.image; n < block.image + block.images; ++n) {
      for (index_t row = block.row; row < block.row + block.rows; ++row) {
        for (index_t column = 0; column < tile_columns(c); ++column) {
          body(n, row * filter_.results_high, column * filter_.results_wide, tile++);
        }
      }
    }
  }

  [[nodiscard]] index_t input_pitch(const correlation& c) const { return winograd_pitch<real>(c.terms); }
  [[nodiscard]] index_t input_step(const correlation& c) const {
    return winograd_step<real>(most_tiles(c), input_pitch(c));
  }
  [[nodiscard]] index_t sums_pitch(const correlation& c) const { return winograd_pitch<real>(c.results); }
  [[nodiscard]] index_t sums_step(const correlation& c) const {
    return winograd_step<real>(most_tiles(c), sums_pitch(c));
  }

  void transform_block(const correlation& c, const result_block& block, const Element* x,
                       const worker_memory& m) const {
    std::fill_n(m.zeros, c.terms, real{});
    const index_t plane = c.source_height * c.source_width;
    winograd_image<real> image{.height = c.source_height, .width = c.source_width, .pitch = c.terms, .zeros = m.zeros};
    const index_t first = std::max<index_t>(0, c.origin_height + block.row * filter_.results_high);
    const index_t last =
        std::clamp(c.origin_height + block.row * filter_.results_high + filter_.source_rows(block.rows), first,
                   std::max(first, c.source_height));
    if (!channels_last()) {
      image.first_row = first;
      for (index_t n = 0; n < block.images; ++n) {
        read_transposed(kernels_, x + (block.image + n) * c.terms * plane + first * c.source_width, plane, c.terms,
                        (last - first) * c.source_width, c.terms,
                        m.strip + n * (last - first) * c.source_width * c.terms);
      }
    }
    std::array<const real*, winograd_filter<real>::most_products> from;
    std::array<real*, winograd_filter<real>::most_products> to;
    for (index_t i = 0; i < filter_.products; ++i) {
      to[static_cast<std::size_t>(i)] = m.input + i * input_step(c);
    }
    for_each_tile(c, block, [&](index_t n, index_t row, index_t column, index_t tile) {
      image.first = channels_last() ? x + n * plane * c.terms
                                    : m.strip + (n - block.image) * (last - first) * c.source_width * c.terms;
      image.list(c.origin_height + row, filter_.places_high, c.origin_width + column, filter_.places_wide, from.data());
      filter_.transforms->input(from.data(), 0, to.data(), tile * input_pitch(c), c.terms);
    });
  }

  void multiply_block(const correlation& c, const result_block& block, const real* packed, index_t results,
                      const worker_memory& m) const {
    constexpr index_t group_bytes = 256 * 1024;  // of the second cache: the panels that tiles run over
    const index_t tiles = block.images * block.rows * tile_columns(c);
    for (index_t i = 0; i < tiles; ++i) {
      m.a_row[i] = i * input_pitch(c);
      m.c_row[i] = i * sums_pitch(c);
    }
    const index_t zero = 0;
    const index_t panel_bytes = kernels_.width * c.terms * static_cast<index_t>(sizeof(real));
    const index_t group = std::max<index_t>(1, group_bytes / panel_bytes) * kernels_.width;
    for (index_t i = 0; i < filter_.products; ++i) {
      for (index_t result = 0; result < results; result += group) {
        panel_rows<real> panel;
        panel.rows = tiles;
        panel.columns = std::min(results - result, group);
        panel.terms = c.terms;
        panel.tile = m.tile;
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

  /// Where the squares of sums of the first tile lie.
  void list_sums(const correlation& c, const worker_memory& m,
                 std::array<const real*, winograd_filter<real>::most_products>& from) const {
    for (index_t i = 0; i < filter_.products; ++i) {
      from[static_cast<std::size_t>(i)] = m.sums + i * sums_step(c);
    }
  }

  /// Finishes a block in nhwc.
  void store_pixels(const correlation& c, const result_block& block, index_t results,
                    const tile_output<Element>& output, const worker_memory& m) const {
    const bool plain = output.simple() && output.bias == nullptr && !output.relu;
    std::array<const real*, winograd_filter<real>::most_products> from;
    list_sums(c, m, from);
    for_each_tile(c, block, [&](index_t n, index_t row, index_t column, index_t tile) {
      std::array<real*, winograd_filter<real>::most_results> to;
      std::array<index_t, winograd_filter<real>::most_results> c_row;
      std::size_t place = 0;
      index_t inside = 0;
      for (index_t h = row; h < row + filter_.results_high; ++h) {
        for (index_t w = column; w < column + filter_.results_wide; ++w, ++place) {
          to[place] = m.spare;
          if (h < c.rows && w < c.columns) {
            const index_t pixel = ((n * c.rows + h) * c.columns + w) * c.results;
            to[place] = plain ? output.c + pixel : m.results + inside * results;
            c_row[static_cast<std::size_t>(inside++)] = pixel;
          }
        }
      }
      filter_.transforms->sums(from.data(), tile * sums_pitch(c), to.data(), 0, results);
      if (!plain) {
        kernels_.finish(m.results, inside, results, results, c_row.data(), output);
      }
    });
  }

  /// Finishes a block in nchw.
  void store_channels(const correlation& c, const result_block& block, index_t results,
                      const tile_output<Element>& output, const worker_memory& m) const {
    const index_t plane = c.rows * c.columns;
    const index_t first = block.row * filter_.results_high;
    const index_t pixels = (std::min(c.rows, first + block.rows * filter_.results_high) - first) * c.columns;
    std::array<const real*, winograd_filter<real>::most_products> from;
    list_sums(c, m, from);
    std::array<index_t, 64> c_row{};
    for (index_t result = 0; result < results; result += kernels_.width) {
      const index_t columns = std::min(results - result, kernels_.width);
      for_each_tile(c, block, [&](index_t n, index_t row, index_t column, index_t tile) {
        std::array<real*, winograd_filter<real>::most_results> to;
        std::size_t place = 0;
        for (index_t h = row; h < row + filter_.results_high; ++h) {
          for (index_t w = column; w < column + filter_.results_wide; ++w, ++place) {
            const index_t pixel = (n - block.image) * pixels + (h - first) * c.columns + w;
            to[place] = h < c.rows && w < c.columns ? m.results + pixel * columns : m.spare;
          }
        }
        filter_.transforms->sums(from.data(), tile * sums_pitch(c) + result, to.data(), 0, columns);
      });
      for (index_t j = 0; j < columns; ++j) {
        c_row[static_cast<std::size_t>(j)] = (result + j) * plane;
      }
      tile_output<Element> stored = output;
      stored.bias = output.bias == nullptr ? nullptr : output.bias + result;
      stored.bias_of_rows = true;
      for (index_t n = 0; n < block.images; ++n) {
        kernels_.transpose(m.results + n * pixels * columns, columns, pixels, columns, pixels, m.planes);
        kernels_.finish(m.planes, columns, pixels, pixels, c_row.data(),
                        shifted(stored, (block.image + n) * c.results * plane + first * c.columns));
      }
    }
  }

  winograd_filter<real> filter_;
};

}  // namespace gradus::kernels::detail

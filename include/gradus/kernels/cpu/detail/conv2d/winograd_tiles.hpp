// SPDX-License-Identifier: BSL-1.0
//
// The tiles of Winograd: the convolutions that gain by them, the position of tiles and the inputs that they read.
#pragma once

#include <algorithm>    // std::clamp, std::max, std::min
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <type_traits>  // std::is_same_v

#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/conv2d/correlation.hpp"
#include "gradus/kernels/cpu/detail/simd/panels.hpp"
#include "gradus/kernels/cpu/detail/simd/winograd.hpp"

namespace gradus::kernels::detail {

/// True if a convolution is faster by Winograd: kernels of 3x3, 5x5, 1x3, 1x7 and 7x1 without strides; channels that
/// fill vectors and are enough to outweigh the transforms; tiles that are mostly inside the image. Only the shape
/// decides, so that a network computes the same however it runs.
///
/// The loops rely on: one correlation in every pass (no strides, so no phases; one group); channels in multiples of 16
/// floats, which are whole vectors of every instruction set, so that no transform reads beyond the last channel and no
/// panel is partial; kernels for which winograd_tiles has transforms. Positions outside the source are read from zeros
/// (winograd_image), results outside the destination are dropped, and nothing depends on the padding.
[[nodiscard]] constexpr bool gains_by_winograd(const conv2d_geometry& g) noexcept {
  constexpr index_t unit = 16;
  constexpr index_t least_channels = 32;
  constexpr index_t most_columns = 1024;
  constexpr index_t results = winograd_axis<3>::results;
  const index_t most = std::max(g.kernel_height, g.kernel_width);
  const index_t least = std::min(g.kernel_height, g.kernel_width);
  const bool square = least == most && (most == 3 || most == 5);
  const bool line = least == 1 && (most == 3 || most == 7);
  if ((!square && !line) || std::max(g.in_width, g.out_width) > most_columns) {
    return false;  // before products of extents that are larger
  }
  const auto filtered = [](index_t taps, index_t size) {
    return taps == 1 ? size : ceil_div(size, results) * (results - 1 + taps);
  };
  const index_t products = filtered(g.kernel_height, g.out_height) * filtered(g.kernel_width, g.out_width);
  return g.stride_height == 1 && g.stride_width == 1 && g.groups == 1 && g.in_channels % unit == 0 &&
         g.out_channels % unit == 0 && std::min(g.in_channels, g.out_channels) >= least_channels && products > 0 &&
         2 * products <= g.kernel_height * g.kernel_width * g.out_height * g.out_width;
}

/// Images with the channels last, or rows of one image: the input of tiles.
template <class Element>
struct winograd_image {
  const Element* first = nullptr;  ///< position (first_row, 0)
  index_t first_row = 0;
  index_t height = 0;
  index_t width = 0;
  index_t pitch = 0;               ///< elements from a position to the next
  const Element* zeros = nullptr;  ///< read for positions outside

  /// Lists pointers to some positions, row by row.
  void list(index_t row, index_t rows, index_t column, index_t columns, const Element** target) const noexcept {
    for (index_t h = row; h < row + rows; ++h) {
      const bool inside = h >= 0 && h < height;
      for (index_t w = column; w < column + columns; ++w) {
        *target++ = inside && w >= 0 && w < width ? first + ((h - first_row) * width + w) * pitch : zeros;
      }
    }
  }
};

/// Elements from a row of products to the next, chosen so that rows do not share cache sets.
template <class Element>
[[nodiscard]] constexpr index_t winograd_pitch(index_t channels) noexcept {
  constexpr index_t line = 64 / static_cast<index_t>(sizeof(Element));
  return channels + (channels / line % 2 == 0 ? line : 0);
}
/// Elements from one position to the next, each with `rows` such rows.
template <class Element>
[[nodiscard]] constexpr index_t winograd_step(index_t rows, index_t pitch) noexcept {
  return winograd_pitch<Element>(round_up(rows * pitch, 64 / static_cast<index_t>(sizeof(Element))));
}

/// The memory into which a worker reads tiles.
template <class Element>
struct winograd_input_memory {
  const Element* zeros;  ///< one for each channel
  Element* strip;        ///< nchw: some rows of the source with the channels last
  Element* positions;    ///< the transformed inputs: (position, tile, channel)
  index_t pitch;         ///< elements from a tile to the next
  index_t step;          ///< elements from a position to the next
};

/// The tiles of a correlation's results, and the inputs that they read.
template <class Element>
class winograd_tiles {
  using real = computed<Element>;  // of transforms and products

 public:
  static constexpr std::size_t most_results = 16;
  static constexpr std::size_t most_taps = 25;
  static constexpr std::size_t most_products = 64;

  winograd_tiles(const tile_kernels<real>& kernels, const correlation& c, channel_order order)
      : taps{c.taps_height * c.taps_width},
        results_high{c.taps_height == 1 ? 1 : winograd_axis<3>::results},
        results_wide{c.taps_width == 1 ? 1 : winograd_axis<3>::results},
        positions_high{results_high + c.taps_height - 1},
        positions_wide{results_wide + c.taps_width - 1},
        products{positions_high * positions_wide},
        rows{ceil_div(c.rows, results_high)},
        columns{ceil_div(c.columns, results_wide)},
        kernels_{kernels},
        c_{c},
        order_{order} {
    const winograd_table<real>& table = winograd_transforms_for<real>(kernels.set);
    const bool square = c.taps_height == c.taps_width;
    transforms = taps == 9 ? &table.square_3 : square ? &table.square_5 : taps == 3 ? &table.line_3 : &table.line_7;
  }

  /// Pointers to the first element of each position.
  template <class Pointer>
  [[nodiscard]] std::array<Pointer, most_products> planes(Pointer first, index_t step) const {
    std::array<Pointer, most_products> all{};
    for (index_t i = 0; i < products; ++i) {
      all[static_cast<std::size_t>(i)] = first + i * step;
    }
    return all;
  }

  /// Calls body(image, row, column of the first result, index of the tile) for the tiles of a block of results; the
  /// block begins with a row of tiles.
  /// @return the number of tiles
  template <class Body>
  index_t for_each(const result_block& block, const Body& body) const {
    index_t tile = 0;
    for (index_t n = block.image; n < block.image + block.images; ++n) {
      for (index_t row = block.row; row < block.row + block.rows; row += results_high) {
        for (index_t column = 0; column < c_.columns; column += results_wide) {
          body(n, row, column, tile++);
        }
      }
    }
    return tile;
  }

  /// True if transforms read the source where it is. Otherwise they read a strip: some rows with the channels last.
  [[nodiscard]] bool in_place() const noexcept {
    return std::is_same_v<Element, real> && order_ == channel_order::last;
  }
  /// Elements of a strip with the inputs of `tile_rows` rows of tiles of some images.
  [[nodiscard]] index_t strip_elements(index_t images, index_t tile_rows, index_t channels) const {
    return in_place() ? 0 : images * std::min(source_rows(tile_rows), c_.source_height) * c_.source_width * channels;
  }

  /// Copies `channels` channels of some adjacent pixels of an image into a strip.
  /// @param x        the image
  /// @param plane, all_channels  pixels and channels of the image
  static void copy_strip(const tile_kernels<real>& kernels, channel_order order, const Element* x, index_t plane,
                         index_t all_channels, index_t pixel, index_t pixels, index_t channel, index_t channels,
                         real* strip) {
    if (order == channel_order::last) {
      read_rows_of_terms(kernels, x + pixel * all_channels + channel, all_channels, pixels, channels, channels, strip);
    } else {
      read_planes_of_terms(kernels, x + channel * plane + pixel, plane, pixels, channels, channels, strip);
    }
  }

  /// Transforms the inputs of a block's tiles, for `channels` channels of the source.
  /// @return the number of tiles
  index_t transform_input(const result_block& block, const Element* x, index_t first_channel, index_t channels,
                          const winograd_input_memory<real>& m) const {
    const index_t plane = c_.source_height * c_.source_width;
    const index_t begin = c_.origin_height + block.row;
    const index_t first = in_place() ? 0 : std::max<index_t>(0, begin);
    const index_t last =
        std::clamp(begin + source_rows(ceil_div(block.rows, results_high)), first, std::max(first, c_.source_height));
    const index_t strip = (last - first) * c_.source_width * channels;
    for (index_t n = 0; n < block.images && !in_place(); ++n) {
      copy_strip(kernels_, order_, x + (block.image + n) * c_.terms * plane, plane, c_.terms, first * c_.source_width,
                 (last - first) * c_.source_width, first_channel, channels, m.strip + n * strip);
    }
    winograd_image<real> image{.first_row = first,
                               .height = c_.source_height,
                               .width = c_.source_width,
                               .pitch = in_place() ? c_.terms : channels,
                               .zeros = m.zeros};
    std::array<const real*, most_products> from;
    const auto to = planes(m.positions, m.step);
    return for_each(block, [&, this](index_t n, index_t row, index_t column, index_t tile) {
      image.first = m.strip + (n - block.image) * strip;
      if constexpr (std::is_same_v<Element, real>) {
        image.first = in_place() ? x + n * plane * c_.terms + first_channel : image.first;
      }
      image.list(c_.origin_height + row, positions_high, c_.origin_width + column, positions_wide, from.data());
      transforms->input(from.data(), 0, to.data(), tile * m.pitch, channels);
    });
  }

  const winograd_transforms<real>* transforms;
  index_t taps;
  index_t results_high;  ///< of a tile
  index_t results_wide;
  index_t positions_high;  ///< of the source, for a tile
  index_t positions_wide;
  index_t products;  ///< of a tile and a pair of channels
  index_t rows;      ///< of tiles in an image
  index_t columns;

 private:
  /// Rows of the source that rows of tiles read.
  [[nodiscard]] index_t source_rows(index_t tile_rows) const noexcept {
    return (tile_rows - 1) * results_high + positions_high;
  }

  const tile_kernels<real>& kernels_;
  correlation c_;
  channel_order order_;
};

}  // namespace gradus::kernels::detail

// SPDX-License-Identifier: BSL-1.0
//
// The innermost loops of products: tiles of sums that stay in registers, compiled once for every instruction set.
#pragma once

#include <algorithm>    // std::copy_n, std::min
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint16_t, std::uint32_t
#include <cstring>      // std::memcpy
#include <limits>       // std::numeric_limits
#include <type_traits>  // std::is_same_v
#include <utility>      // std::integer_sequence, std::make_integer_sequence

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/cpu/detail/elementwise/activation.hpp"
#include "gradus/simd/isa.hpp"

namespace gradus::kernels::detail {

/// The destination and the epilogue of a tile's sums: c = mask * act(sum + bias + residual + old c). Null pointers have
/// no effect. `residual` and `mask` have the memory order of `c`; `derivative` says how the mask acts.
template <class Element>
struct tile_output {
  Element* c = nullptr;
  const Element* residual = nullptr;
  const Element* mask = nullptr;
  const parameter_element_t<Element>* bias = nullptr;
  bool bias_of_rows = false;  ///< one value for each row of the tile, else for each column
  bool accumulate = false;
  held_activation<parameter_element_t<Element>> act{};
  held_derivative<parameter_element_t<Element>> derivative{};  ///< of the activation that wrote the mask

  /// True if tiles do all of it themselves.
  [[nodiscard]] bool simple() const noexcept {
    return residual == nullptr && mask == nullptr && !accumulate && (bias == nullptr || !bias_of_rows) && !act.other;
  }
  /// Stores the result of a sum at c[at]. @param of_bias  index of its bias
  void store(parameter_element_t<Element> sum, index_t of_bias, index_t at) const {
    using real = parameter_element_t<Element>;
    if (bias != nullptr) {
      sum += bias[of_bias];
    }
    if (residual != nullptr) {
      sum += static_cast<real>(residual[at]);
    }
    if (accumulate) {
      sum += static_cast<real>(c[at]);
    }
    if (act.any()) {
      sum = act.with_parameters(sum);
    }
    if (mask != nullptr) {
      sum = derivative.with_parameters(static_cast<real>(mask[at]), sum);
    }
    c[at] = static_cast<Element>(sum);
  }
};

/// The largest number of rows of a tile, over all instruction sets.
inline constexpr int most_tile_rows = 32;

/// The rows of a tile of lines: where its registers have them. Lines between rows belong to none.
struct placed_rows {
  index_t count = 0;
  index_t first = 0;  ///< of these, the rows in the first register
  std::array<std::uint8_t, most_tile_rows> line{};

  /// The number of rows from `row` on that are in adjacent lines.
  [[nodiscard]] index_t adjacent(index_t row) const noexcept {
    index_t end = row + 1;
    while (end < count && line[static_cast<std::size_t>(end)] == line[static_cast<std::size_t>(end - 1)] + 1) {
      ++end;
    }
    return end - row;
  }
};

/// Computes a tile for each of some panels: sums(m, j) = sum over segments s and k of a(m, s, k) * b(s, k, j).
///
///   a(m, s, k) = a[a_row[m] + segments[s] + k * a_step]
///   b(s, k, j) = b[(s * segment_length + k) * b_step + j]
///
/// For a packed panel b_step is its width; the next panel begins b_skip elements after its end. Terms are added one
/// after another in the order of s and k, so a sum does not depend on the tile that it is in. The sums go to `partial`,
/// as rows with step `sums_step`, or to c[c_row[m] + j] through an `output` that is simple(). The columns of the second
/// panel follow those of the first.
template <class Element>
struct tile_call {
  const Element* a = nullptr;
  const index_t* a_row = nullptr;
  index_t a_step = 1;
  index_t rows = 0;                     ///< of the tile
  index_t line_step = 1;                ///< for tiles of lines: the distance of adjacent rows in a,
  const placed_rows* placed = nullptr;  ///< the rows,
  bool whole_lines = false;  ///< and whether `partial` gets all lines, those of no row too, instead of the rows
  const index_t* segments = nullptr;
  index_t segment_count = 0;
  index_t segment_length = 0;
  const Element* b = nullptr;
  index_t b_step = 0;
  index_t b_skip = 0;  ///< elements between panels
  index_t panels = 1;
  const Element* ahead = nullptr;  ///< memory to prefetch during the product,
  index_t ahead_lines = 0;         ///< in lines of 64 bytes for every `ahead_terms` terms
  static constexpr index_t ahead_terms = 8;
  const Element* initial = nullptr;  ///< initial sums, stored as `partial`; null: zeros
  Element* partial = nullptr;
  index_t sums_step = 0;
  const index_t* c_row = nullptr;
  tile_output<Element> output;
};

/// Computes tiles of a few rows along a run of adjacent columns:
///
///   c[m * c_step + j] = act(bias[m] + sum over k of a[k * rows + m] * b[offsets[k] + j])   for j < columns
///
/// The last tile ends with the run, so it may compute columns of the tile before it again, with the same values.
template <class Element>
struct plane_call {
  const Element* a = nullptr;
  const index_t* offsets = nullptr;
  index_t terms = 0;
  const Element* b = nullptr;
  index_t columns = 0;  ///< at least the width of a tile
  Element* c = nullptr;
  index_t c_step = 0;
  const Element* bias = nullptr;  ///< null: none
  bool relu = false;
  const Element* ahead = nullptr;  ///< memory to prefetch: the tile's columns of some rows,
  index_t ahead_step = 0;
  index_t ahead_rows = 0;
  index_t ahead_terms = 1;  ///< one row for every ahead_terms terms
};

/// Correlates the channels of pixels, each with its own kernel; channels are adjacent in x, w and the results:
///
///   to[p * step + j] = act(bias[j] + sum over r < rows, s < columns of
///                                    x[p * x_pixel + r * x_row + s * x_column + j] * w[r * w_row + s * w_column + j])
template <class Element>
struct depthwise_call {
  const Element* x = nullptr;
  index_t x_pixel = 0;
  index_t x_row = 0;
  index_t x_column = 0;
  const Element* w = nullptr;
  index_t w_row = 0;
  index_t w_column = 0;
  index_t rows = 0;
  index_t columns = 0;
  index_t pixels = 0;
  index_t step = 0;
  const Element* bias = nullptr;  ///< null: none
  bool relu = false;
};

/// Adds the products of pixels, for each channel and for adjacent taps:
///
///   to[tap * to_tap + j] += sum over p < pixels of x[p * x_pixel + tap * x_tap + j] * y[p * y_pixel + j]
///
/// for tap < taps, j < channels.
template <class Element>
struct products_call {
  const Element* x = nullptr;
  index_t x_pixel = 0;
  index_t x_tap = 0;
  const Element* y = nullptr;
  index_t y_pixel = 0;
  index_t pixels = 0;
  index_t taps = 1;
  index_t channels = 0;
  index_t to_tap = 0;
};

/// Tiles by their number of rows; null: no tile of this height.
template <class Element>
using tile_table = std::array<void (*)(const tile_call<Element>&), most_tile_rows + 1>;

/// The code of one instruction set.
template <class Element>
struct tile_kernels {
  instruction_set set;
  index_t lanes;               ///< elements of a vector
  index_t rows;                ///< rows of the highest tile
  index_t width;               ///< columns of the widest tile: several vectors
  tile_table<Element> wide;    ///< tiles of `width` columns
  tile_table<Element> narrow;  ///< tiles of `lanes` columns
  /// Adjacent terms that tiles multiply at once, in the memory of one element: 2 for pairs of 16 bits (pairs.hpp),
  /// whose sums always stay partial.
  index_t group = 1;
  /// For tiles of lines, else null: the registers are prepared for segments of a length, and given back. Only between
  /// these calls may the thread use the tiles.
  void (*begin)(index_t segment_length) = nullptr;
  void (*end)() = nullptr;
  /// For tiles of lines, else null: places as many of the next rows as a tile takes. Such tiles have any number of
  /// rows, need a_step == 1, and read whole lines: up to most_spare_lines lines behind the last row, whose results are
  /// dropped.
  void (*place_rows)(const index_t* a_row, index_t rows, index_t line_step, placed_rows& to) = nullptr;
  static constexpr index_t most_spare_lines = 15;
  [[nodiscard]] index_t spare_lines() const noexcept { return place_rows == nullptr ? 0 : most_spare_lines; }
  /// Stores rows of `count` sums, `pitch` apart, for any output.
  void (*finish)(const Element* sums, index_t rows, index_t pitch, index_t count, const index_t* c_row,
                 const tile_output<Element>& output);
  /// As finish, for results of bfloat16. Null in the kernels of other elements, like the next two.
  void (*finish_bfloat16)(const float* sums, index_t rows, index_t pitch, index_t count, const index_t* c_row,
                          const tile_output<bfloat16>& output) = nullptr;
  /// to[i] = from[i] for i < count
  void (*widen)(const bfloat16* from, index_t count, float* to) = nullptr;
  /// to[i] += from[i] for i < count
  void (*add)(const Element* from, index_t count, Element* to);
  /// to[i] = sum over k < terms of x[k] * rows[i * step + k] for i < count, in the same order for every i
  void (*dot_rows)(const Element* x, const Element* rows, index_t step, index_t count, index_t terms, Element* to);
  /// to[j] += sum over k < terms of x[k] * rows[k * step + j] for j < count
  void (*add_rows)(const Element* x, const Element* rows, index_t step, index_t terms, index_t count, Element* to);
  /// Computes depthwise_call for p < pixels and j < channels.
  void (*multiply_taps)(const depthwise_call<Element>& call, index_t channels, Element* to);
  /// Computes products_call.
  void (*add_products)(const products_call<Element>& call, Element* to);
  /// to[k * lanes + j] += sum over p < pixels of x[p * x_step + k * lanes + j] * y[p * y_step + j]
  /// for k < taps, j < lanes
  void (*add_tap_products)(const Element* x, index_t x_step, const Element* y, index_t y_step, index_t pixels,
                           index_t taps, Element* to);
  /// to[(p * group + i) * lanes + j] = from[p * step + j / group * group + i] for p < pixels, i < group, j < lanes;
  /// zero for j >= channels. @pre group is 2, 4 or 8 and divides lanes
  void (*expand_groups)(const Element* from, index_t step, index_t pixels, index_t channels, index_t group,
                        Element* to);
  /// to[k * width + j] = from[k * step + j] for k < count, j < width (a multiple of 16 bytes)
  void (*copy_rows)(const Element* from, index_t step, index_t count, index_t width, Element* to);
  /// to[k * width + j] = from[j * step + k] for k < count, j < columns
  void (*transpose)(const Element* from, index_t step, index_t columns, index_t count, index_t width, Element* to);
};

/// Tiles along runs by their number of rows, with the heights of `wide`. A separate table, because only nchw uses them.
template <class Element>
using plane_tiles = std::array<void (*)(const plane_call<Element>&), most_tile_rows + 1>;

}  // namespace gradus::kernels::detail

#define GRADUS_TARGET_BODY "gradus/kernels/cpu/detail/simd/tile_body.hpp"
#define GRADUS_TARGET_FUSES
#include "gradus/simd/for_each_target.hpp"

namespace gradus::kernels::detail {

/// The kernels of an instruction set.
template <class Element>
[[nodiscard]] constexpr const tile_kernels<Element>& tile_kernels_for([[maybe_unused]] instruction_set which) {
#if defined(GRADUS_X86_KERNELS)
  if (which >= instruction_set::avx512) {
    return avx512::tile_kernels_of<Element>;
  }
  if (which == instruction_set::avx2) {
    return avx2::tile_kernels_of<Element>;
  }
#endif
  return portable::tile_kernels_of<Element>;
}

/// The tiles along runs of an instruction set.
template <class Element>
[[nodiscard]] const plane_tiles<Element>& plane_tiles_for([[maybe_unused]] instruction_set which) {
#if defined(GRADUS_X86_KERNELS)
  if (which >= instruction_set::avx512) {
    return avx512::plane_tiles_of<Element>;
  }
  if (which == instruction_set::avx2) {
    return avx2::plane_tiles_of<Element>;
  }
#endif
  return portable::plane_tiles_of<Element>;
}

/// The kernels of the instruction set in use.
template <class Element>
[[nodiscard]] const tile_kernels<Element>& current_tile_kernels() {
  return tile_kernels_for<Element>(current_instruction_set());
}

}  // namespace gradus::kernels::detail

// SPDX-License-Identifier: BSL-1.0
//
// Correlations by tiles of pixels x output channels. Tiles read the input in place (nhwc), or from a strip of a few
// rows with the channels last and explicit padding. A row of taps is one run of memory.
#pragma once

#include <algorithm>    // std::clamp, std::copy_n, std::fill_n, std::max, std::min
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <type_traits>  // std::is_same_v

#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/conv2d/correlation.hpp"
#include "gradus/kernels/cpu/detail/conv2d/phases.hpp"
#include "gradus/kernels/cpu/detail/simd/panels.hpp"

namespace gradus::kernels::detail {

/// Correlations of any shape. The taps of a row read runs of memory: in the source, if all of them are inside it and it
/// has no other groups (`direct`), or in a strip. A strip has all pixels of the rows that a block reads, with zeros for
/// the padding. Only taps inside the source are multiplied: whole rows of taps (`rows_inside`), or columns if
/// by_columns(). The others would read zeros. Tiles of lines (AMX) multiply all taps: a weight that is infinite makes
/// NaN of the padding, as in a matrix product of all taps.
template <class Element>
class pixel_correlations final : public correlations<Element> {
  using base = correlations<Element>;
  using base::at, base::batch_, base::geometry_, base::kernels_, base::order_, base::threads_, base::which_;
  using typename base::real;

 public:
  /// @param batch  largest number of images
  pixel_correlations(const tile_kernels<real>& kernels, const conv2d_geometry& g, channel_order order, pass which,
                     index_t threads, index_t batch)
      : base{kernels, g, order, which, threads, batch} {}

 private:
  /// The largest block of a batch.
  struct limits {
    bool direct;  ///< tiles read the source in place, without a strip
    index_t images;
    index_t rows;
  };

  [[nodiscard]] bool channels_last() const noexcept { return order_ == channel_order::last; }
  /// True if tiles take rows that are equally far apart, with others between them. Then the pixels of a block are in
  /// the order of the strip, and all taps are multiplied.
  [[nodiscard]] bool reads_lines() const noexcept { return kernels_.place_rows != nullptr; }
  /// Columns of a strip: those that the results read, or as many that rows of results are equally far apart too.
  [[nodiscard]] index_t strip_columns(const correlation& c) const noexcept {
    return reads_lines() ? round_up(c.source_columns(), c.step_width) : c.source_columns();
  }
  /// One task for every panel.
  [[nodiscard]] index_t pack_tasks(const correlation& c) const override {
    return c.terms_of_all_taps() == 0 ? 0 : ceil_div(c.results, kernels_.width);
  }
  [[nodiscard]] index_t group_weights(const correlation& c) const override {
    return padded_columns(kernels_, c.results) * c.terms_of_all_taps();
  }
  [[nodiscard]] term_blocks blocks_of_terms(const correlation& c) const {
    constexpr index_t panel_bytes = 160 * 1024;  // of the second-level cache, from which tiles read panels fast enough
    const index_t most = panel_bytes / (kernels_.width * static_cast<index_t>(sizeof(real)));
    const index_t run = run_taps(c);
    return {c.taps_height * c.taps_width / run, run * c.terms, most};
  }

  /// Extra elements between the pixels of a strip, so that the rows of a tile do not share cache sets.
  [[nodiscard]] index_t gap(const correlation& c) const noexcept {
    const index_t step = c.step_width * c.terms * static_cast<index_t>(sizeof(real));
    return rows_collide(std::min(kernels_.rows, c.rows * c.columns), step) ? 64 / static_cast<index_t>(sizeof(real))
                                                                           : 0;
  }
  [[nodiscard]] index_t pixel_pitch(const correlation& c) const noexcept { return c.terms + gap(c); }
  /// True if bands are of columns, for kernels with one row of taps. If that row is outside, it reads zeros in the
  /// strip.
  [[nodiscard]] bool by_columns(const correlation& c) const noexcept {
    return !reads_lines() && channels_last() && c.taps_height == 1 && c.taps_width > 1 && !c.inside();
  }
  /// Taps of a row whose terms are one run of memory.
  [[nodiscard]] index_t run_taps(const correlation& c) const noexcept {
    return gap(c) == 0 && !by_columns(c) ? std::max<index_t>(1, c.taps_width) : 1;
  }

  /// Columns of panels that the second-level cache holds; tiles use all of them before the next pixels.
  [[nodiscard]] index_t group_columns(const correlation& c) const {
    constexpr index_t group_bytes = 256 * 1024;
    constexpr index_t most_panels = 16;
    if (!channels_last() || blocks_of_terms(c).count() > 1) {
      return kernels_.width;
    }
    const index_t panel_bytes = kernels_.width * c.terms_of_all_taps() * static_cast<index_t>(sizeof(real));
    const index_t panels = std::clamp<index_t>(group_bytes / std::max<index_t>(1, panel_bytes), 1, most_panels);
    return std::min(panels, ceil_div(c.results, kernels_.width)) * kernels_.width;
  }

  /// True if the weights are larger than the source of `batch` images. A task then computes some channels of many
  /// pixels, and each thread reads a part of the weights. Otherwise it computes all channels of some pixels.
  [[nodiscard]] bool divides_results(const correlation& c, index_t batch) const noexcept {
    const double source = static_cast<double>(std::max<index_t>(1, batch)) *
                          static_cast<double>(c.source_rows(c.rows)) * static_cast<double>(c.source_columns()) *
                          static_cast<double>(c.terms);
    return static_cast<double>(group_weights(c)) > 2 * source;
  }
  [[nodiscard]] limits limits_of(const correlation& c) const { return limits_of(c, divides_results(c, batch_)); }
  [[nodiscard]] limits limits_of(const correlation& c, bool dividing) const {
    const index_t source_bytes = (dividing ? 1024 : reads_lines() ? 512 : 192) * 1024;
    const index_t pixel = c.step_width * std::max<index_t>(1, c.row_step()) * c.terms;
    const index_t pixels = std::clamp<index_t>(source_bytes / (pixel * static_cast<index_t>(sizeof(real))), 32, 512);
    limits result{
        .direct = std::is_same_v<Element, real> && channels_last() && c.groups == 1 && c.inside() && gap(c) == 0,
        .images = 1,
        .rows = 1};
    result.rows = std::clamp<index_t>(pixels / std::max<index_t>(1, c.columns), 1, std::max<index_t>(1, c.rows));
    if (result.rows == c.rows) {
      result.images = std::max<index_t>(1, pixels / (c.rows * c.columns));
    }
    return result;
  }
  /// The number of parts of the results that are separate tasks. Each part reads, or copies, the source again.
  [[nodiscard]] index_t result_parts(const correlation& c) const {
    if (threads_ == 1 || !divides_results(c, batch_)) {
      return 1;
    }
    return std::min((limits_of(c).direct ? 2 : 1) * threads_, ceil_div(c.results, kernels_.width));
  }
  [[nodiscard]] index_t block_tasks(const correlation& c) const override { return blocks(c).count() * result_parts(c); }
  [[nodiscard]] result_blocks blocks(const correlation& c) const {
    const limits most = limits_of(c);
    const index_t wanted = divides_results(c, batch_) ? ceil_div(threads_, result_parts(c)) : 4 * threads_;
    return {batch_, c.rows, most.images, most.rows, wanted};
  }

  /// Pixels with the same rows of taps, or columns, inside the source; their other taps are padding.
  struct band {
    index_t pixels;
    correlation::tap_range taps;
  };
  struct worker_memory {
    band* bands;
    index_t* a_row;
    index_t* c_row;
    index_t* segments;
    index_t* sum_row;  ///< offsets of the pixels in `sums`
    real* sums;
    real* planes;  ///< the sums with the channels first
    real* spread;  ///< rows of the destination
    real* tile;
    real* strip;
  };
  [[nodiscard]] worker_memory take(const correlation& c, const limits& most, scratch& memory) const {
    const index_t images = std::min(most.images, std::max<index_t>(1, batch_));
    const index_t pixels = images * most.rows * c.columns;
    worker_memory m{};
    m.bands = memory.template take<band>(by_columns(c) ? c.columns : images * most.rows);
    m.a_row = memory.template take<index_t>(pixels);
    m.c_row = memory.template take<index_t>(pixels);
    m.segments = memory.template take<index_t>(c.taps_height * c.taps_width);
    m.sum_row = memory.template take<index_t>(channels_last() ? 0 : pixels);
    const bool keeps_sums = !channels_last() || blocks_of_terms(c).count() > 1;
    m.sums = memory.template take<real>(keeps_sums ? pixels * kernels_.width : 0);
    m.planes = memory.template take<real>(channels_last() ? 0 : pixels * kernels_.width);
    m.spread = memory.template take<real>(c.fills ? most.rows * c.skip_height * c.destination_width : 0);
    m.tile = memory.template take<real>(2 * kernels_.rows * group_columns(c));
    m.strip = memory.template take<real>(
        most.direct ? 0
                    : (images * c.source_rows(most.rows) * strip_columns(c) + kernels_.spare_lines() * c.step_width) *
                          pixel_pitch(c));
    return m;
  }
  [[nodiscard]] std::size_t memory_bytes(const correlation& c) const override {
    const index_t taps = channels_last() ? 0 : geometry_.kernel_height * geometry_.kernel_width * kernels_.width;
    scratch packing;
    static_cast<void>(packing.template take<real>(taps));
    if constexpr (!std::is_same_v<Element, real>) {
      static_cast<void>(packing.template take<real>(c.channels * c.taps_height * c.taps_width * kernels_.width));
    }
    // A batch that is smaller than planned may divide the results where the planned one does not.
    scratch of_pixels;
    scratch of_results;
    if (c.terms_of_all_taps() > 0) {
      static_cast<void>(take(c, limits_of(c, false), of_pixels));
      if (divides_results(c, 1)) {
        static_cast<void>(take(c, limits_of(c, true), of_results));
      }
    }
    return std::max({packing.used(), of_pixels.used(), of_results.used()});
  }

  void pack(const correlation& c, index_t group, index_t task, const real* w, real* to, scratch memory) const override {
    const index_t result = task * kernels_.width;
    const index_t left = c.results - result;
    const index_t width = next_panel_width(kernels_, left);
    const index_t columns = std::min(left, kernels_.width);
    real* const panel = to + result * c.terms_of_all_taps();
    const index_t taps = geometry_.kernel_height * geometry_.kernel_width;
    real* const spare = memory.template take<real>(channels_last() ? 0 : taps * width);
    correlation single = c;
    single.terms = c.channels;
    real* const packed = kernels_.group == 1 ? panel : memory.template take<real>(single.terms_of_all_taps() * width);
    pack_parameters(single, w, group, result, columns, width, spare, packed);
    round_panel<Element>(kernels_, packed, c.taps_height * c.taps_width, c.channels, width, panel);
  }

  void pack_parameters(const correlation& c, const real* w, index_t group, index_t result, index_t columns,
                       index_t width, real* taps, real* panel) const {
    if (channels_last()) {
      pack_weights(kernels_, c, term_order::channels_last, w, group, result, columns, width, panel);
    } else {
      pack_weights_of_planes(kernels_, c, geometry_.kernel_height * geometry_.kernel_width, w, group, result, columns,
                             width, taps, panel);
    }
  }

  /// Writes the rows of the source that some rows of results read, with zeros for the padding.
  void copy_strip(const correlation& c, index_t group, index_t image, index_t row, index_t rows, const Element* x,
                  real* strip) const {
    const index_t channels = c.channels * c.groups;
    const index_t width = strip_columns(c);
    const index_t pitch = pixel_pitch(c);
    const index_t left = std::clamp<index_t>(-c.origin_width, 0, width);
    const index_t right = std::clamp<index_t>(c.source_width - c.origin_width, left, width);
    const index_t plane = c.source_height * c.source_width;
    const Element* const first = x + image * channels * plane + group * c.channels * (channels_last() ? 1 : plane);
    if (!channels_last() && width == c.source_width && c.whole_rows(row, rows)) {
      read_planes_of_terms(kernels_, first + (c.origin_height + row * c.step_height) * c.source_width, plane,
                           c.source_rows(rows) * width, c.channels, pitch, strip);
      return;
    }
    for (index_t i = 0; i < c.source_rows(rows); ++i) {
      const index_t h = c.origin_height + (row + i / c.row_step()) * c.step_height + i % c.row_step();
      if (h < 0 || h >= c.source_height) {
        std::fill_n(strip, width * pitch, real{});
      } else {
        std::fill_n(strip, left * pitch, real{});
        const index_t pixel = h * c.source_width + c.origin_width + left;
        if (channels_last()) {
          read_rows_of_terms(kernels_, first + pixel * channels, channels, right - left, c.channels, pitch,
                             strip + left * pitch);
        } else {
          read_planes_of_terms(kernels_, first + pixel, plane, right - left, c.channels, pitch, strip + left * pitch);
        }
        std::fill_n(strip + right * pitch, (width - right) * pitch, real{});
      }
      strip += width * pitch;
    }
  }

  /// Elements from a channel of the destination to the next.
  [[nodiscard]] index_t channel_step(const correlation& c) const noexcept {
    return channels_last() ? 1 : c.destination_height * c.destination_width;
  }
  [[nodiscard]] index_t pixel_step(const correlation& c) const noexcept {
    return channels_last() ? c.results * c.groups : 1;
  }

  struct listed {
    index_t pixels = 0;
    index_t bands = 0;
  };
  /// Lists where the pixels of a block are read and stored. Pixels with the same taps are adjacent if their order is
  /// free.
  [[nodiscard]] listed list_pixels(const correlation& c, index_t group, const result_block& block, bool direct,
                                   const worker_memory& m) const {
    const index_t pitch = pixel_pitch(c);
    const index_t strip_row = strip_columns(c) * pitch;
    const index_t plane = c.destination_height * c.destination_width;
    const index_t first = group * c.results * channel_step(c);
    const index_t a_step = c.step_width * pitch;
    const index_t c_step = c.skip_width * pixel_step(c);
    listed all;
    const auto begin_band = [&](correlation::tap_range taps) {
      if (all.bands == 0 || m.bands[all.bands - 1].taps != taps) {
        m.bands[all.bands++] = {.pixels = 0, .taps = taps};
      }
    };
    // Adds some pixels of a row of an image; image and row count from the beginning of the block.
    const auto add = [&, this](index_t image, index_t row, index_t column, index_t count) {
      const index_t n = block.image + image;
      const index_t t = block.row + row;
      const index_t h = c.origin_height + t * c.step_height;
      const index_t from = direct ? ((n * c.source_height + h) * c.source_width + c.origin_width) * c.terms
                                  : (image * c.source_rows(block.rows) + row * c.row_step()) * strip_row;
      const index_t pixel = (c.first_height + t * c.skip_height) * c.destination_width + c.first_width;
      const index_t to = n * c.results * c.groups * plane + first + pixel * pixel_step(c);
      for (index_t u = 0; u < count; ++u) {
        m.a_row[all.pixels + u] = from + (column + u) * a_step;
        m.c_row[all.pixels + u] = to + (column + u) * c_step;
      }
      all.pixels += count;
      m.bands[all.bands - 1].pixels += count;
    };
    const index_t lines = block.images * block.rows;
    if (by_columns(c)) {
      for (index_t u = 0; u < c.columns; ++u) {
        begin_band(c.columns_inside(u));
        for (index_t i = 0; i < lines; ++i) {
          add(i / block.rows, i % block.rows, u, 1);
        }
      }
      return all;
    }
    for (index_t i = 0; i < lines; ++i) {
      const bool rows_first = channels_last() && !reads_lines();
      const index_t image = rows_first ? i % block.images : i / block.rows;
      const index_t row = rows_first ? i / block.images : i % block.rows;
      begin_band(reads_lines() ? correlation::tap_range{0, c.taps_height} : c.rows_inside(block.row + row));
      add(image, row, 0, c.columns);
    }
    return all;
  }

  void run_block(const correlation& c, index_t group, index_t task, const Element* x, const real* packed,
                 const tile_output<Element>& output, scratch memory) const override {
    const result_blocks all = blocks(c);
    const result_block block = all[task % all.count()];
    const index_t of_parts = task / all.count();
    if (c.terms_of_all_taps() == 0) {
      store_nothing(kernels_, c, order_, group, block, output);
      return;
    }
    const limits most = limits_of(c);
    const worker_memory m = take(c, most, memory);
    const index_t pitch = pixel_pitch(c);
    const index_t strip_row = strip_columns(c) * pitch;
    if (!most.direct) {
      const index_t strip_image = c.source_rows(block.rows) * strip_row;
      for (index_t image = 0; image < block.images; ++image) {
        copy_strip(c, group, block.image + image, block.row, block.rows, x, m.strip + image * strip_image);
      }
    }
    const auto [pixels, bands] = list_pixels(c, group, block, most.direct, m);
    const index_t runs = c.taps_width / run_taps(c);  // in a row of taps
    for (index_t i = 0; i < c.taps_height * runs; ++i) {
      m.segments[i] = i / runs * (most.direct ? c.source_width * c.terms : strip_row) + i % runs * pitch;
    }

    const real* source = m.strip;
    if constexpr (std::is_same_v<Element, real>) {
      source = most.direct ? x : source;
    }
    const term_blocks terms = blocks_of_terms(c);
    const index_t step = group_columns(c);
    const bool transposed = turns_sums(c, output);
    constexpr index_t line = 64 / static_cast<index_t>(sizeof(real));
    const bool fetches = most.direct && c.taps_height * c.taps_width == 1 && c.step_width == 1;
    const index_t panels = ceil_div(c.results, kernels_.width);
    const index_t parts = result_parts(c);
    const index_t first = part_begin(panels, parts, of_parts) * kernels_.width;
    const index_t last = std::min(c.results, part_begin(panels, parts, of_parts + 1) * kernels_.width);
    for (index_t result = first; result < last; result += step) {
      panel_rows<real> panel;
      panel.columns = std::min(last - result, step);
      panel.tile = m.tile;
      panel.ahead = fetches && result == first ? c.terms : 0;
      const index_t panel_width = padded_columns(kernels_, panel.columns);
      const index_t* c_row = m.c_row;
      tile_output<Element> stored = shifted(output, result * channel_step(c));
      if (output.bias != nullptr) {
        stored.bias = output.bias + group * c.results + result;
      }
      tile_output<Element> finished = stored;  // what the tiles do themselves
      if constexpr (std::is_same_v<Element, real>) {
        if (transposed) {
          for (index_t p = 0; p < pixels; ++p) {
            m.sum_row[p] = p * panel_width;
          }
          c_row = m.sum_row;
          finished.c = m.sums;
        }
      }
      for (index_t i = 0; i < terms.count(); ++i) {
        const term_block part = terms[i];
        tile_call<real> call;
        call.a = source + part.offset;
        call.line_step = c.step_width * pitch;
        call.segment_length = part.length;
        // With several blocks there is only one panel, and `terms` does not matter.
        call.b = packed + result * c.terms_of_all_taps() + part.first * next_panel_width(kernels_, panel.columns);
        panel.terms = part.terms;
        panel.first = i == 0;
        const bool more_terms = i + 1 < terms.count();
        if (const index_t next = more_terms ? result : result + step; panel.ahead == 0 && next < last) {
          // The next panels, of which the tiles prefetch some lines each: the same results with the next terms, or the
          // next results with the first terms.
          const term_block of_next = terms[more_terms ? i + 1 : 0];
          panel.next = packed + next * c.terms_of_all_taps() + of_next.first * next_panel_width(kernels_, last - next);
          panel.next_lines = padded_columns(kernels_, std::min(last - next, step)) * of_next.terms / line;
        }
        panel.last = (channels_last() || transposed) && i + 1 == terms.count();
        index_t pixel = 0;
        for (index_t b = 0; b < bands; ++b) {
          const band& some = m.bands[b];
          const index_t unit = by_columns(c) ? 1 : runs;  // segments
          const index_t begin = std::clamp(some.taps.begin * unit, part.segment, part.segment + part.segments);
          const index_t end = std::clamp(some.taps.end * unit, begin, part.segment + part.segments);
          call.a_row = m.a_row + pixel;
          call.c_row = c_row + pixel;
          call.segments = m.segments + begin;
          call.segment_count = end - begin;
          panel.skipped = (begin - part.segment) * part.length;
          panel.rows = some.pixels;
          panel.sums = m.sums + pixel * panel_width;
          multiply_rows(kernels_, call, panel, finished);
          pixel += some.pixels;
        }
      }
      if (!channels_last()) {
        store_panel(c, block, m, panel.columns, transposed, stored);
      }
    }
  }

  /// True if tiles do everything to the sums of an nchw output except transposing them. The pixels of an image in a
  /// block are adjacent in the planes of the output: dense() rows are as long as those of the output.
  [[nodiscard]] bool turns_sums(const correlation& c, const tile_output<Element>& output) const noexcept {
    return std::is_same_v<Element, real> && !channels_last() && c.dense() && output.simple();
  }
  /// Stores the sums of a panel in nchw.
  /// @param transposed  the tiles have done everything else
  void store_panel(const correlation& c, const result_block& block, const worker_memory& m, index_t columns,
                   [[maybe_unused]] bool transposed, tile_output<Element> output) const {
    const index_t width = next_panel_width(kernels_, columns);
    std::array<index_t, 64> planes{};
    for (index_t j = 0; j < columns; ++j) {
      planes[static_cast<std::size_t>(j)] = j * channel_step(c);
    }
    output.bias_of_rows = true;
    const index_t pixels = block.rows * c.columns;  // of an image
    for (index_t image = 0; image < block.images; ++image) {
      const real* const sums = m.sums + image * pixels * width;
      if constexpr (std::is_same_v<Element, real>) {
        if (transposed) {
          kernels_.transpose(sums, width, pixels, columns, channel_step(c), output.c + m.c_row[image * pixels]);
          continue;
        }
      }
      kernels_.transpose(sums, width, pixels, columns, pixels, m.planes);
      store_planes(kernels_, c, block.row, block.rows, m.planes, columns, pixels, planes.data(), m.spread,
                   shifted(output, m.c_row[image * pixels]));
    }
  }
};

}  // namespace gradus::kernels::detail

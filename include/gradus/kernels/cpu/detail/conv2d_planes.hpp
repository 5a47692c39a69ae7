// SPDX-License-Identifier: BSL-1.0
//
// Correlations in nchw: tiles of output channels x adjacent pixels. The input of some pixels is packed in panels, for
// some channels at a time, and multiplied while it is in the cache.
// Module: kernels. Depends on: tensor.
#pragma once

#include <algorithm>  // std::clamp, std::copy_n, std::fill_n, std::max, std::min
#include <array>      // std::array
#include <cstddef>    // std::byte, std::size_t

#include "gradus/core/index.hpp"                             // index_t
#include "gradus/device/cpu.hpp"                             // cpu
#include "gradus/kernels/conv2d.hpp"                         // conv2d_geometry, pass
#include "gradus/kernels/cpu/detail/conv2d_correlation.hpp"  // correlation
#include "gradus/kernels/cpu/simd_panels.hpp"                // next_tile_rows, scratch, for_each_task
#include "gradus/layout/layouts.hpp"                         // nchw

namespace gradus::kernels::detail {

template <class Element>
class plane_correlations {
 public:
  plane_correlations(const tile_kernels<Element>& kernels, const conv2d_geometry& g, pass which, index_t threads)
      : kernels_{kernels},
        geometry_{g},
        which_{which},
        threads_{threads},
        phases_{which == pass::forward ? 1 : phase_count(g)} {}

  [[nodiscard]] std::size_t workspace_bytes(index_t batch) const {
    return packed_bytes() + static_cast<std::size_t>(threads_) * worker_bytes(batch);
  }

  /// @param x  the source: (batch, source channels), nchw
  void run(cpu& device, index_t batch, const Element* x, const Element* w, const tile_output<Element>& output,
           std::byte* workspace) const {
    Element* const packed = reinterpret_cast<Element*>(workspace);
    index_t packs = 0;
    index_t tasks = 0;
    for (index_t phase = 0; phase < phases_; ++phase) {
      const correlation c = at(phase);
      packs += c.groups * pack_parts;
      tasks += c.groups * blocks(c, batch).count();
    }
    if (tasks == 0) {
      return;
    }
    for_each_task(device, packs, [&](index_t, index_t task) { pack(task, w, packed); });
    const std::size_t worker_size = worker_bytes(batch);
    std::byte* const workers = workspace + packed_bytes();
    for_each_task(device, tasks, [&](index_t worker, index_t task) {
      const Element* weights = packed;
      for (index_t phase = 0;; ++phase) {
        const correlation c = at(phase);
        const result_blocks parts = blocks(c, batch);
        const index_t group_weights = c.results * c.terms_of_all_taps();
        if (task < c.groups * parts.count()) {
          const index_t group = task / parts.count();
          run_block(c, group, parts[task % parts.count()], batch, x, weights + group * group_weights, output,
                    scratch{workers + static_cast<std::size_t>(worker) * worker_size});
          return;
        }
        task -= c.groups * parts.count();
        weights += c.groups * group_weights;
      }
    });
  }

 private:
  static constexpr index_t pack_parts = 16;  // tasks that the packing of a group's weights is cut into

  /// How much a block takes at most.
  struct limits {
    bool direct;       ///< the source needs no strip
    index_t channels;  ///< source channels that are packed at a time
    index_t images;
    index_t rows;
  };

  [[nodiscard]] correlation at(index_t phase) const { return correlation_of<nchw>(geometry_, which_, phase); }
  [[nodiscard]] limits limits_of(const correlation& c) const {
    constexpr index_t most_terms = 320;
    constexpr index_t panel_bytes = 256 * 1024;
    const index_t taps = std::max<index_t>(1, c.taps_height * c.taps_width);
    limits result{.direct = c.inside() && c.step_width == 1, .channels = 1, .images = 1, .rows = 1};
    const index_t parts = std::max<index_t>(1, ceil_div(c.terms * taps, most_terms));
    result.channels = std::max<index_t>(1, ceil_div(c.terms, parts));
    const index_t pixels =
        std::clamp<index_t>(panel_bytes / (result.channels * taps * static_cast<index_t>(sizeof(Element))), 64, 512);
    const index_t columns = std::max<index_t>(1, c.columns);
    result.rows = std::clamp<index_t>(pixels / columns, 1, std::max<index_t>(1, c.rows));
    if (result.rows == c.rows) {
      result.images = fewest_wasted(c.rows * columns, std::max<index_t>(1, pixels / (c.rows * columns)));
    } else {
      result.rows = fewest_wasted(columns, result.rows);
    }
    return result;
  }
  /// The count in (most / 2, most] for which count * pixels fills panels best.
  [[nodiscard]] index_t fewest_wasted(index_t pixels, index_t most) const {
    index_t best = most;
    const auto waste = [&](index_t count) {
      return static_cast<double>(padded_columns(kernels_, count * pixels)) / static_cast<double>(count * pixels);
    };
    for (index_t count = most - 1; count > most / 2; --count) {
      best = waste(count) < waste(best) - 1e-9 ? count : best;
    }
    return best;
  }
  [[nodiscard]] result_blocks blocks(const correlation& c, index_t batch) const {
    const limits most = limits_of(c);
    return {batch, c.rows, most.images, most.rows, 4 * threads_};
  }

  // A strip holds the rows of some channels; with a stride its columns are sorted by the phase of the stride, so that
  // a tap meets adjacent columns.
  [[nodiscard]] static index_t strip_phases(const correlation& c) { return std::min(c.step_width, c.taps_width); }
  [[nodiscard]] static index_t strip_columns(const correlation& c) {
    return c.columns + (c.taps_width - 1) / c.step_width;
  }
  [[nodiscard]] static index_t strip_pitch(const correlation& c) { return strip_phases(c) * strip_columns(c); }

  [[nodiscard]] std::size_t packed_bytes() const {
    index_t elements = 0;
    for (index_t phase = 0; phase < phases_; ++phase) {
      const correlation c = at(phase);
      elements += c.groups * c.results * c.terms_of_all_taps();
    }
    return (static_cast<std::size_t>(elements) * sizeof(Element) + 63) / 64 * 64;
  }

  struct worker_memory {
    index_t* from;     ///< of the pixels, in the strip or the source
    index_t* place;    ///< of the pixels, in the destination
    index_t* offsets;  ///< of the terms, in the strip or the source
    panel_move* moves;
    Element* panels;
    Element* sums;
    Element* tile;
    Element* strip;
  };
  [[nodiscard]] worker_memory take(const correlation& c, index_t batch, scratch& memory) const {
    const limits most = limits_of(c);
    const index_t images = std::min(most.images, std::max<index_t>(1, batch));
    const index_t pixels = images * most.rows * c.columns;
    const index_t padded = round_up(pixels, kernels_.width);
    const index_t terms = most.channels * c.taps_height * c.taps_width;
    worker_memory m{};
    m.from = memory.template take<index_t>(pixels);
    m.place = memory.template take<index_t>(pixels);
    m.offsets = memory.template take<index_t>(terms);
    m.moves = memory.template take<panel_move>(kernels_.width);
    m.panels = memory.template take<Element>(terms * padded);
    m.sums = memory.template take<Element>(most.channels < c.terms ? c.results * padded : 0);
    m.tile = memory.template take<Element>(2 * kernels_.rows * kernels_.width);
    m.strip = memory.template take<Element>(
        most.direct ? 0 : most.channels * images * c.source_rows(most.rows) * strip_pitch(c));
    return m;
  }
  [[nodiscard]] std::size_t worker_bytes(index_t batch) const {
    std::size_t bytes = 0;
    for (index_t phase = 0; phase < phases_; ++phase) {
      const correlation c = at(phase);
      if (c.terms_of_all_taps() > 0) {
        scratch memory;
        static_cast<void>(take(c, batch, memory));
        bytes = std::max(bytes, memory.used());
      }
    }
    return bytes;
  }

  /// Weights lie tile by tile, each as its terms x its rows.
  void pack(index_t task, const Element* w, Element* to) const {
    const correlation c = at(task / (geometry_.groups * pack_parts));
    for (index_t phase = 0; phase < task / (geometry_.groups * pack_parts); ++phase) {
      const correlation before = at(phase);
      to += before.groups * before.results * before.terms_of_all_taps();
    }
    const index_t group = task / pack_parts % geometry_.groups;
    to += group * c.results * c.terms_of_all_taps();
    if (c.terms_of_all_taps() == 0) {
      return;
    }
    index_t tile = 0;
    for (index_t result = 0; result < c.results; ++tile) {
      const index_t rows = next_tile_rows(kernels_, c.results - result);
      if (tile % pack_parts == task % pack_parts) {
        pack_weights(kernels_, c, term_order::channels_first, w, group, result, rows, rows,
                     to + result * c.terms_of_all_taps());
      }
      result += rows;
    }
  }

  void copy_strip(const correlation& c, const Element* x, index_t first_channel, index_t channels,
                  const result_block& block, Element* strip) const {
    const index_t columns = strip_columns(c);
    const index_t rows = c.source_rows(block.rows);
    const index_t plane = c.source_height * c.source_width;
    for (index_t i = 0; i < channels; ++i) {
      for (index_t image = 0; image < block.images; ++image) {
        const Element* const from = x + ((block.image + image) * c.terms * c.groups + first_channel + i) * plane;
        for (index_t r = 0; r < rows; ++r) {
          const index_t h = c.origin_height + (block.row + r / c.row_step()) * c.step_height + r % c.row_step();
          for (index_t phase = 0; phase < strip_phases(c); ++phase, strip += columns) {
            if (h < 0 || h >= c.source_height) {
              std::fill_n(strip, columns, Element{});
              continue;
            }
            const index_t origin = c.origin_width + phase;  // column j is at origin + j * step of the source
            const index_t left = origin >= 0 ? 0 : std::min(ceil_div(-origin, c.step_width), columns);
            const index_t right =
                origin >= c.source_width
                    ? left
                    : std::clamp<index_t>(ceil_div(c.source_width - origin, c.step_width), left, columns);
            const Element* const source = from + h * c.source_width + origin;
            std::fill_n(strip, left, Element{});
            if (c.step_width == 1) {
              std::copy_n(source + left, right - left, strip + left);
            } else {
              for (index_t j = left; j < right; ++j) {
                strip[j] = source[j * c.step_width];
              }
            }
            std::fill_n(strip + right, columns - right, Element{});
          }
        }
      }
    }
  }

  /// The pieces of adjacent pixels of a panel.
  [[nodiscard]] index_t find_moves(const index_t* from, index_t columns, panel_move* moves) const {
    index_t count = 0;
    for (index_t begin = 0; begin < columns;) {
      index_t end = begin + 1;
      while (end < columns && from[end] == from[end - 1] + 1) {
        ++end;
      }
      while (begin < end) {
        const index_t left = end - begin;
        const index_t few = 16 / static_cast<index_t>(sizeof(Element));
        const index_t size = left >= kernels_.lanes ? kernels_.lanes : left >= few ? few : left >= 2 ? 2 : 1;
        moves[count++] = {.from = from[begin], .to = begin, .size = static_cast<int>(size)};
        begin += size;
      }
    }
    return count;
  }

  void run_block(const correlation& c, index_t group, const result_block& block, index_t batch, const Element* x,
                 const Element* packed, tile_output<Element> output, scratch memory) const {
    const index_t plane = c.destination_height * c.destination_width;
    const auto place_of = [&](index_t image, index_t row, index_t column) {
      return (image * c.groups * c.results + group * c.results) * plane +
             (c.first_height + row * c.skip_height) * c.destination_width + c.first_width + column * c.skip_width;
    };
    if (c.terms_of_all_taps() == 0) {
      store_nothing<nchw>(c, group, block, output);
      return;
    }
    const limits most = limits_of(c);
    const worker_memory m = take(c, batch, memory);
    const index_t source_plane = c.source_height * c.source_width;
    const index_t strip_rows = c.source_rows(block.rows);
    const index_t pitch = strip_pitch(c);

    index_t pixels = 0;
    for (index_t image = 0; image < block.images; ++image) {
      for (index_t row = 0; row < block.rows; ++row) {
        const index_t n = block.image + image;
        const index_t t = block.row + row;
        const index_t from = most.direct ? n * c.groups * c.terms * source_plane +
                                               (c.origin_height + t * c.step_height) * c.source_width + c.origin_width
                                         : (image * strip_rows + row * c.row_step()) * pitch;
        const index_t to = place_of(n, t, 0);
        for (index_t u = 0; u < c.columns; ++u) {
          m.from[pixels] = from + u;
          m.place[pixels] = to + u * c.skip_width;
          ++pixels;
        }
      }
    }
    {
      index_t* offset = m.offsets;
      for (index_t i = 0; i < std::min(most.channels, c.terms); ++i) {
        for (index_t r = 0; r < c.taps_height; ++r) {
          for (index_t s = 0; s < c.taps_width; ++s) {
            *offset++ = most.direct ? i * source_plane + r * c.source_width + s
                                    : (i * block.images * strip_rows + r) * pitch +
                                          s % c.step_width * strip_columns(c) + s / c.step_width;
          }
        }
      }
    }
    std::array<index_t, tile_kernels<Element>::most_rows> a_row{};
    std::array<index_t, tile_kernels<Element>::most_rows> c_row{};
    for (std::size_t i = 0; i < a_row.size(); ++i) {
      a_row[i] = static_cast<index_t>(i);
      c_row[i] = static_cast<index_t>(i) * plane;
    }
    const index_t no_segment = 0;
    const index_t padded = round_up(pixels, kernels_.width);
    const index_t taps = c.taps_height * c.taps_width;

    for (index_t channel = 0; channel < c.terms; channel += most.channels) {
      const index_t channels = std::min(most.channels, c.terms - channel);
      const index_t terms = channels * taps;
      const Element* source = x + (group * c.terms + channel) * source_plane;
      if (!most.direct) {
        copy_strip(c, x, group * c.terms + channel, channels, block, m.strip);
        source = m.strip;
      }
      for (index_t column = 0; column < pixels; column += kernels_.width) {
        const index_t columns = std::min(kernels_.width, pixels - column);
        const index_t width = next_panel_width(kernels_, pixels - column);
        Element* const to = m.panels + column * terms;
        for (index_t k = 0; columns < width && k < terms; ++k) {
          std::fill(to + k * width + columns, to + (k + 1) * width, Element{});
        }
        const index_t moves = find_moves(m.from + column, columns, m.moves);
        kernels_.gather(source, m.offsets, terms, m.moves, moves, width, to);
      }
      tile_call<Element> call;
      call.a_row = a_row.data();
      call.segments = &no_segment;
      call.segment_count = 1;
      call.segment_length = terms;
      call.c_row = c_row.data();
      const bool first = channel == 0;
      const bool last = channel + channels == c.terms;
      for (index_t result = 0; result < c.results;) {
        const index_t rows = next_tile_rows(kernels_, c.results - result);
        call.a = packed + result * c.terms_of_all_taps() + channel * taps * rows;
        call.a_step = rows;
        for (index_t column = 0; column < pixels; column += kernels_.width) {
          const index_t columns = std::min(kernels_.width, pixels - column);
          const index_t width = next_panel_width(kernels_, pixels - column);
          const index_t* const place = m.place + column;
          const bool adjacent = place[columns - 1] - place[0] == columns - 1;
          Element* const sums = m.sums + result * padded + column * rows;
          call.b = m.panels + column * terms;
          call.initial = first ? nullptr : sums;
          const bool direct = adjacent && columns == width && output.simple();
          call.partial = last ? (direct ? nullptr : m.tile) : sums;
          call.b_step = width;
          call.sums_step = width;
          call.output = shifted(output, result * plane + (adjacent ? place[0] : 0));
          if (output.bias != nullptr) {
            call.output.bias = output.bias + group * c.results + result;
            call.output.bias_of_rows = true;
          }
          run_tile(kernels_, call, rows, width, m.tile + kernels_.rows * kernels_.width);
          if (last && !adjacent) {
            store_scattered(m.tile, rows, columns, width, c_row.data(), place, call.output);
          } else if (last && !direct) {
            kernels_.finish(m.tile, rows, width, columns, c_row.data(), call.output);
          }
        }
        result += rows;
      }
    }
  }

  const tile_kernels<Element>& kernels_;
  conv2d_geometry geometry_;
  pass which_;
  index_t threads_;
  index_t phases_;
};

}  // namespace gradus::kernels::detail

// SPDX-License-Identifier: BSL-1.0
//
// The gradient of a convolution's weights: tiles of (tap, input channel) x output channels, summed over pixels.
#pragma once

#include <algorithm>    // std::clamp, std::copy_n, std::fill_n, std::max, std::min
#include <cstddef>      // std::byte, std::size_t
#include <type_traits>  // std::is_same_v

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/conv2d/correlation.hpp"
#include "gradus/kernels/cpu/detail/conv2d/pixel_pairs.hpp"
#include "gradus/kernels/cpu/detail/conv2d/strip.hpp"
#include "gradus/kernels/cpu/detail/conv2d/winograd_weights.hpp"
#include "gradus/kernels/cpu/detail/simd/panels.hpp"

namespace gradus::kernels::detail {

/// Pixels are divided into chunks, and input channels into blocks. A task sums one block over one chunk into its own
/// memory; then the chunks are added in order. Only the shape sets the division, so the sums do not depend on the
/// number of threads.
///
/// Tiles of lines take pairs of pixels instead: pixel_pairs.
///
/// Except for Winograd, a task copies some rows of x into a strip (rows, columns, channels) with explicit padding and
/// one more channel of ones, whose gradient is that of the bias. dy is packed in panels. Works for any shape: row t of
/// results and row r of taps read row t * row_step() + r of the strip, column u and tap s read column u * step_width +
/// s. The strip ends with the last of them.
template <class Element>
class weight_gradients {
  using real = computed<Element>;  // of gradients, sums and the inputs of tiles

 public:
  /// @param winograd  use Winograd, for a geometry that gains by it
  GRADUS_COLD weight_gradients(const tile_kernels<real>& kernels, const conv2d_geometry& g, channel_order order,
                               index_t batch, index_t threads, bool winograd)
      : kernels_{kernels},
        c_{forward_correlation(g, order)},
        order_{order},
        batch_{batch},
        threads_{threads},
        winograd_{winograd} {
    taps_ = c_.taps_height * c_.taps_width;
    padded_ = padded_columns(kernels, c_.results);
    // Channels of a block: a strip must stay in the second-level cache; larger blocks pack dy less often.
    const index_t most_channels = taps_ * c_.step_height * c_.step_width == 1 ? 256 : 128;
    channel_parts_ = std::max<index_t>(1, ceil_div(c_.terms, most_channels));
    // Pixels of a chunk: enough to make adding the chunks cheap. Number of chunks: enough for many threads.
    constexpr index_t wanted_tasks = 32;
    constexpr index_t least_pixels = 512;
    constexpr index_t most_bytes = 8 * 1024 * 1024;
    const index_t pixels = batch * c_.rows * c_.columns;
    const index_t bytes = c_.groups * block_rows(c_.terms) * padded_ * static_cast<index_t>(sizeof(real));
    index_t chunks = std::min(ceil_div(wanted_tasks, channel_parts_ * c_.groups), pixels / least_pixels);
    chunks = std::max<index_t>(1, std::min(chunks, most_bytes / bytes));
    most_chunks_ = chunks;
    image_parts_ = std::max<index_t>(1, std::min(chunks, batch));
    row_parts_ = std::max<index_t>(1, std::min(chunks / image_parts_, c_.rows));
    const index_t sums = image_parts_ * row_parts_ * channel_parts_ * c_.groups;
    result_parts_ =
        std::clamp<index_t>(least_tasks / std::max<index_t>(1, sums), 1, std::max<index_t>(1, padded_ / 64));
    // A piece of a chunk is the part that is in a strip at a time. The cache lines that a tile of few rows reads of it,
    // and a panel of dy, stay in the first-level cache. A tile of many rows computes long enough on each line to read
    // it from the second-level cache; then larger pieces load the sums less often.
    const index_t most_pixels = kernels.rows <= 6 ? 144 : 400;
    piece_rows_ = std::clamp<index_t>(most_pixels / std::max<index_t>(1, c_.columns), 1, c_.rows);
    piece_rows_ = ceil_div(c_.rows, ceil_div(c_.rows, piece_rows_));
    piece_images_ = piece_rows_ == c_.rows ? std::max<index_t>(1, most_pixels / (c_.rows * c_.columns)) : 1;
    piece_images_ = std::min(piece_images_, std::max<index_t>(1, batch));
    // Whole images of few channels in nchw: the dy of adjacent images is adjacent.
    constexpr index_t few_channels = 4;
    constexpr index_t most_bytes_of_image = 192 * 1024;
    const index_t image_bytes =
        c_.rows * c_.columns * (c_.terms + 1 + kernels.width) * static_cast<index_t>(sizeof(real));
    fetches_ = std::is_same_v<Element, real> && order == channel_order::first && c_.groups == 1 &&
               c_.terms <= few_channels && image_bytes <= most_bytes_of_image && piece_images_ == 1;
    piece_rows_ = fetches_ ? c_.rows : piece_rows_;
  }

  [[nodiscard]] std::size_t workspace_bytes() const {
    // A smaller batch may have more chunks than this one, up to most_chunks_.
    return sums_bytes(most_chunks_) + static_cast<std::size_t>(threads_) * worker_bytes();
  }

  GRADUS_COLD void run(cpu& device, const Element* x, const Element* dy, real* dw, real* dbias,
                       std::byte* workspace) const {
    auto* const sums = reinterpret_cast<real*>(workspace);
    std::byte* const workers = workspace + sums_bytes(image_parts_ * row_parts_);
    const std::size_t worker_size = worker_bytes();
    const index_t chunks = image_parts_ * row_parts_;
    const index_t tasks = c_.groups * chunks * channel_parts_ * result_parts_;
    for_each_task(device, tasks, [&, this](index_t worker, index_t task) {
      const index_t results = task % result_parts_;
      const index_t part = task / result_parts_ % channel_parts_;
      const index_t chunk = task / (result_parts_ * channel_parts_) % chunks;
      const index_t group = task / (result_parts_ * channel_parts_ * chunks);
      sum_chunk(group, chunk, part, results, x, dy, dbias != nullptr, sums + (chunk * c_.groups + group) * group_sums(),
                scratch{workers + static_cast<std::size_t>(worker) * worker_size});
    });
    const index_t panels = ceil_div(c_.results, kernels_.width);
    for_each_task(device, c_.groups * panels * channel_parts_, [&, this](index_t worker, index_t task) {
      finish(task / (channel_parts_ * panels), task / channel_parts_ % panels, task % channel_parts_, sums, dw, dbias,
             scratch{workers + static_cast<std::size_t>(worker) * worker_size});
    });
  }

 private:
  static constexpr index_t least_tasks = 16;

  /// Blocks have a multiple of this number of input channels: Winograd needs whole vectors.
  [[nodiscard]] index_t unit() const { return winograd_ ? 16 : 1; }
  [[nodiscard]] index_t channel_begin(index_t part) const {
    return part_begin(c_.terms / unit(), channel_parts_, part) * unit();
  }
  /// Rows of the sums of `channels` input channels, including the row of the bias.
  [[nodiscard]] index_t block_rows(index_t channels) const { return taps_ * channels + 1; }
  /// Sums of a group: blocks of channels, each with its rows in panels.
  [[nodiscard]] index_t group_sums() const { return (taps_ * c_.terms + channel_parts_) * padded_; }
  [[nodiscard]] index_t block_sums(index_t part) const { return (taps_ * channel_begin(part) + part) * padded_; }
  [[nodiscard]] index_t largest_block() const { return ceil_div(c_.terms / unit(), channel_parts_) * unit(); }
  [[nodiscard]] std::size_t sums_bytes(index_t chunks) const {
    return (static_cast<std::size_t>(chunks * c_.groups * group_sums()) * sizeof(real) + 63) / 64 * 64;
  }

  struct worker_memory {
    index_t* a_row;
    index_t* segments;
    real* strip;
    real* panels;  ///< one panel of dy; later the sums of a block
    real* tile;
  };
  [[nodiscard]] worker_memory take(scratch& memory) const {
    const index_t pixels = piece_images_ * piece_rows_ * c_.columns;
    const index_t channels = largest_block();
    worker_memory m{};
    m.a_row = memory.template take<index_t>(block_rows(channels));
    m.segments = memory.template take<index_t>(piece_images_ * piece_rows_);
    const index_t strip_pixels = piece_images_ * c_.source_rows(piece_rows_) * c_.source_columns();
    m.strip = memory.template take<real>(reads_lines() ? lines().size(channels, kernels_.spare_lines())
                                                       : strip_pixels * (channels + 1));
    const index_t terms = reads_lines() ? piece_images_ * lines().terms(piece_rows_) : pixels;
    m.panels = memory.template take<real>(std::max(terms, block_rows(channels)) * kernels_.width);
    m.tile = memory.template take<real>(2 * kernels_.rows * kernels_.width);
    return m;
  }
  [[nodiscard]] std::size_t worker_bytes() const {
    scratch memory;
    static_cast<void>(take(memory));
    if constexpr (std::is_same_v<Element, float>) {
      if (winograd_) {
        return std::max(memory.used(), winograd_sums().worker_bytes());
      }
    }
    return memory.used();
  }

  /// True if tiles multiply pairs of pixels, which a pixel_pairs copies instead of a strip.
  [[nodiscard]] bool reads_lines() const noexcept { return kernels_.rows_of_lines != nullptr; }
  [[nodiscard]] pixel_pairs<Element> lines() const noexcept { return {c_, order_, piece_images_, piece_rows_}; }

  /// Where the rows of the sums read their terms: taps, channels, then the bias.
  void list_rows(index_t channels, index_t* offset) const {
    const pixel_pairs<Element> pairs = lines();
    const index_t step = reads_lines() ? pairs.line() : 1;
    for (index_t r = 0; r < c_.taps_height; ++r) {
      for (index_t s = 0; s < c_.taps_width; ++s) {
        const index_t first =
            reads_lines() ? pairs.offset(channels, r, s) : (r * c_.source_columns() + s) * (channels + 1);
        for (index_t i = 0; i < channels; ++i) {
          *offset++ = first + i * step;
        }
      }
    }
    *offset = channels * step;
  }

  [[nodiscard]] winograd_weight_sums winograd_sums() const { return {kernels_, c_, order_, largest_block()}; }

  /// Copies the inputs of some rows of results, for channels [begin, end) of a group, and adds a channel of ones.
  void copy_strip(index_t group, index_t begin, index_t end, index_t image, index_t row, index_t rows, const Element* x,
                  real* strip) const {
    const index_t width = c_.source_columns();
    const index_t channels = end - begin;
    const index_t pitch = channels + 1;
    const index_t left = std::clamp<index_t>(-c_.origin_width, 0, width);
    const index_t right = std::clamp<index_t>(c_.source_width - c_.origin_width, left, width);
    const index_t all_channels = c_.groups * c_.terms;
    const index_t first = group * c_.terms + begin;
    const index_t plane = c_.source_height * c_.source_width;
    constexpr index_t few_channels = 4;
    const bool planes = order_ == channel_order::first;
    const index_t channel_step = planes ? plane : 1;
    const index_t pixel_step = planes ? 1 : all_channels;
    if (planes && c_.whole_rows(row, rows)) {
      const index_t pixels = c_.source_rows(rows) * width;
      const index_t h = c_.origin_height + row * c_.step_height;
      const Element* const source = x + (image * all_channels + first) * plane + h * c_.source_width;
      if (channels <= few_channels) {
        copy_pixels_and_ones(source, channel_step, pixel_step, channels, pixels, strip);
      } else {
        read_transposed(kernels_, source, plane, channels, pixels, pitch, strip);
        write_ones(pixels, channels, strip);
      }
      return;
    }
    for (index_t i = 0; i < c_.source_rows(rows); ++i, strip += width * pitch) {
      const index_t h = c_.origin_height + (row + i / c_.row_step()) * c_.step_height + i % c_.row_step();
      const bool outside = h < 0 || h >= c_.source_height;
      const index_t from = outside ? width : left;
      const index_t to = outside ? width : right;
      std::fill_n(strip, from * pitch, real{});
      std::fill_n(strip + to * pitch, (width - to) * pitch, real{});
      if (from < to) {
        const index_t pixel = h * c_.source_width + c_.origin_width + from;
        const Element* source = x + image * all_channels * plane + first * channel_step + pixel * pixel_step;
        if (channels <= few_channels) {
          copy_pixels_and_ones(source, channel_step, pixel_step, channels, to - from, strip + from * pitch);
        } else if (planes) {
          read_transposed(kernels_, source, plane, channels, to - from, pitch, strip + from * pitch);
        } else {
          for (index_t j = from; j < to; ++j, source += all_channels) {
            read_run(source, channels, strip + j * pitch);
          }
        }
      }
      if (channels <= few_channels) {
        write_ones(from, channels, strip);
        write_ones(width - to, channels, strip + to * pitch);
      } else {
        write_ones(width, channels, strip);
      }
    }
  }
  static void write_ones(index_t pixels, index_t channels, real* strip) {
    for (index_t j = 0; j < pixels; ++j) {
      strip[j * (channels + 1) + channels] = real{1};
    }
  }

  /// dy from a channel and a row of an image on, if tiles can read a panel of it in place: pixels are few cache lines
  /// apart, so most of each fetched line is used. Otherwise null. Panels are then full, and the pixels of a piece are
  /// adjacent: a piece has several images only if it has all of their rows.
  [[nodiscard]] const real* gradient_in_place([[maybe_unused]] const Element* dy, [[maybe_unused]] index_t channel,
                                              [[maybe_unused]] index_t image, [[maybe_unused]] index_t row) const {
    constexpr index_t most_bytes = 512;  // of a pixel
    if constexpr (std::is_same_v<Element, real>) {
      const index_t channels = c_.groups * c_.results;
      if (order_ == channel_order::last && c_.results % kernels_.width == 0 &&
          channels * static_cast<index_t>(sizeof(real)) <= most_bytes) {
        return dy + (image * c_.destination_height + row) * c_.destination_width * channels + channel;
      }
    }
    return nullptr;
  }

  /// Packs `width` channels of dy for some rows of an image.
  void pack_gradient(index_t channel, index_t columns, index_t width, index_t image, index_t row, index_t rows,
                     const Element* dy, real* to) const {
    const index_t plane = c_.destination_height * c_.destination_width;
    const index_t all_channels = c_.groups * c_.results;
    const index_t pixel = row * c_.destination_width;
    const index_t pixels = rows * c_.destination_width;
    if (order_ == channel_order::last) {
      pack_panel(kernels_, dy + (image * plane + pixel) * all_channels + channel, 1, all_channels, columns, pixels,
                 width, to);
    } else {
      pack_panel(kernels_, dy + (image * all_channels + channel) * plane + pixel, plane, 1, columns, pixels, width, to);
    }
  }

  void sum_chunk(index_t group, index_t chunk, index_t part, index_t result_part, const Element* x, const Element* dy,
                 bool with_bias, real* sums, scratch memory) const {
    const index_t panels = ceil_div(c_.results, kernels_.width);
    const index_t first_result = part_begin(panels, result_parts_, result_part) * kernels_.width;
    const index_t last_result =
        std::min(c_.results, part_begin(panels, result_parts_, result_part + 1) * kernels_.width);
    const index_t first_image = part_begin(batch_, image_parts_, chunk / row_parts_);
    const index_t first_row = part_begin(c_.rows, row_parts_, chunk % row_parts_);
    const result_block of{.image = first_image,
                          .images = part_begin(batch_, image_parts_, chunk / row_parts_ + 1) - first_image,
                          .row = first_row,
                          .rows = part_begin(c_.rows, row_parts_, chunk % row_parts_ + 1) - first_row};
    if constexpr (std::is_same_v<Element, float>) {
      if (winograd_) {
        winograd_sums().run(of, channel_begin(part), channel_begin(part + 1), first_result, last_result, x, dy,
                            with_bias && part == 0, sums + block_sums(part), memory);
        return;
      }
    }
    const worker_memory m = take(memory);
    const index_t begin = channel_begin(part);
    const index_t end = channel_begin(part + 1);
    const index_t channels = end - begin;
    const index_t pitch = channels + 1;
    const index_t rows_of_sums = block_rows(channels);
    const index_t width = c_.source_columns();
    list_rows(channels, m.a_row);
    const pixel_pairs<Element> pairs = lines();
    const bool in_pairs = reads_lines();
    const bool last = order_ == channel_order::last;
    const index_t source_plane = c_.source_height * c_.source_width;
    const index_t destination_plane = c_.destination_height * c_.destination_width;
    const index_t all_results = c_.groups * c_.results;
    bool first = true;
    for (index_t image = of.image; image < of.image + of.images || first; image += piece_images_) {
      const index_t images = std::clamp<index_t>(of.image + of.images - image, 0, piece_images_);
      for (index_t row = of.row; row < of.row + of.rows; row += piece_rows_) {
        const index_t rows = std::min(piece_rows_, of.row + of.rows - row);
        const index_t strip_rows = c_.source_rows(rows);
        index_t segments = 0;
        if constexpr (may_pair<Element>) {
          if (in_pairs) {
            const Element* const from = x + image * c_.groups * c_.terms * source_plane +
                                        (group * c_.terms + begin) * (last ? 1 : source_plane);
            pairs.copy(kernels_, from, channels, images, row, m.strip);
            for (; segments < images; ++segments) {
              m.segments[segments] = segments * pairs.image();
            }
          }
        }
        for (index_t i = 0; i < (in_pairs ? 0 : images); ++i) {
          copy_strip(group, begin, end, image + i, row, rows, x, m.strip + i * strip_rows * width * pitch);
          for (index_t t = 0; t < rows; ++t) {
            m.segments[segments++] = (i * strip_rows + t * c_.row_step()) * width * pitch;
          }
        }
        for (index_t result = first_result; result < last_result; result += kernels_.width) {
          panel_rows<real> panel;
          panel.rows = with_bias && part == 0 ? rows_of_sums : rows_of_sums - 1;
          panel.columns = std::min(c_.results - result, kernels_.width);
          panel.tile = m.tile;
          const index_t panel_width = next_panel_width(kernels_, panel.columns);
          panel.sums = sums + block_sums(part) + result * rows_of_sums;
          panel.first = first;
          panel.last = false;
          const real* gradient = gradient_in_place(dy, group * c_.results + result, image, row);
          panel.b_step = gradient == nullptr ? 0 : all_results;
          if (gradient == nullptr) {
            if constexpr (may_pair<Element>) {
              if (in_pairs) {
                const Element* const from = dy + image * destination_plane * all_results +
                                            row * c_.destination_width * (last ? all_results : 1) +
                                            (group * c_.results + result) * (last ? 1 : destination_plane);
                pairs.pack(kernels_, from, panel.columns, panel_width, images, rows, m.panels);
              }
            }
            for (index_t i = 0; i < (in_pairs ? 0 : images); ++i) {
              pack_gradient(group * c_.results + result, panel.columns, panel_width, image + i, row, rows, dy,
                            m.panels + i * rows * c_.columns * panel_width);
            }
            gradient = m.panels;
          }
          tile_call<real> call;
          call.a = m.strip;
          call.a_row = m.a_row;
          call.a_step = in_pairs ? 1 : c_.step_width * pitch;
          call.line_step = pairs.line();
          call.segments = m.segments;
          call.segment_count = segments;
          call.segment_length = in_pairs ? pairs.terms(rows) : c_.columns;
          call.b = gradient;
          call.c_row = m.a_row;  // unused: the sums stay partial
          if constexpr (std::is_same_v<Element, real>) {
            if (fetches_) {
              const bool other = result + kernels_.width >= last_result;
              const index_t channel =
                  (image + (other ? 1 : 0)) * c_.results + (other ? first_result : result + kernels_.width);
              panel.next = dy + (channel * c_.rows + row) * c_.columns;
              panel.next_lines = panel.columns * rows * c_.columns / (64 / static_cast<index_t>(sizeof(real)));
            }
          }
          multiply_rows(kernels_, call, panel, tile_output<real>{});
        }
        first = false;
      }
    }
  }

  /// Adds the chunks of one panel of one block of channels and writes the sums to dw.
  void finish(index_t group, index_t panel, index_t part, const real* sums, real* dw, real* dbias,
              scratch memory) const {
    const worker_memory m = take(memory);
    const index_t begin = channel_begin(part);
    const index_t channels = channel_begin(part + 1) - begin;
    const index_t rows = block_rows(channels);
    const index_t result = panel * kernels_.width;
    const index_t columns = std::min(c_.results - result, kernels_.width);
    const index_t width = next_panel_width(kernels_, c_.results - result);
    const bool bias = dbias != nullptr && part == 0;
    const index_t count = (bias ? rows : rows - 1) * width;
    const index_t chunks = image_parts_ * row_parts_;
    const index_t chunk_sums = c_.groups * group_sums();
    const real* total = sums + group * group_sums() + block_sums(part) + result * rows;
    if (chunks > 1) {
      std::copy_n(total, count, m.panels);
      for (index_t chunk = 1; chunk < chunks; ++chunk) {
        kernels_.add(total + chunk * chunk_sums, count, m.panels);
      }
      total = m.panels;
    }
    real* const to = dw + group * c_.weight_group + result * c_.weight_result + begin * c_.weight_term;
    if (c_.weight_term == 1 || taps_ == 1) {
      for (index_t r = 0; r < c_.taps_height; ++r) {
        for (index_t s = 0; s < c_.taps_width; ++s) {
          kernels_.transpose(total + (r * c_.taps_width + s) * channels * width, width, channels, columns,
                             c_.weight_result, to + r * c_.weight_row + s * c_.weight_column);
        }
      }
    } else {
      for (index_t j = 0; j < columns; ++j) {
        real* place = to + j * c_.weight_result;  // (channel, r, s) are adjacent
        for (index_t i = 0; i < channels; ++i) {
          for (index_t tap = 0; tap < taps_; ++tap) {
            *place++ = total[(tap * channels + i) * width + j];
          }
        }
      }
    }
    if (bias) {
      std::copy_n(total + (rows - 1) * width, columns, dbias + group * c_.results + result);
    }
  }

  const tile_kernels<real>& kernels_;
  correlation c_;
  channel_order order_;
  index_t batch_;
  index_t threads_;
  bool winograd_;
  index_t taps_;
  index_t padded_;         // results of a group, rounded up to whole panels
  index_t channel_parts_;  // blocks of input channels
  index_t most_chunks_;
  index_t image_parts_;   // chunks: parts of the batch
  index_t row_parts_;     // ... times parts of an image
  index_t result_parts_;  // tasks of a block: parts of its panels
  index_t piece_rows_;
  index_t piece_images_;
  bool fetches_;  // prefetch the next dy
};

}  // namespace gradus::kernels::detail

// SPDX-License-Identifier: BSL-1.0
//
// The gradient of a convolution's weights: tiles of (tap, input channel) x output channels, summed over pixels.
#pragma once

#include <algorithm>    // std::clamp, std::copy_n, std::max, std::min
#include <cstddef>      // std::byte, std::size_t
#include <type_traits>  // std::is_same_v
#include <utility>      // std::pair

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/conv2d/correlation.hpp"
#include "gradus/kernels/cpu/detail/conv2d/pixel_pairs.hpp"
#include "gradus/kernels/cpu/detail/conv2d/pixel_terms.hpp"
#include "gradus/kernels/cpu/detail/conv2d/winograd_weights.hpp"
#include "gradus/kernels/cpu/detail/simd/panels.hpp"

namespace gradus::kernels::detail {

/// Pixels are divided into chunks, and input channels into blocks. A task sums one block over one chunk into its own
/// memory; then the chunks are added in order. Only the shape sets the division, so the sums do not depend on the
/// number of threads.
///
/// Except for Winograd, a task brings both factors of a piece of the chunk into the form of the tiles: pixel_terms, or
/// pixel_pairs for tiles of pairs.
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
    const index_t channels = largest_block();
    worker_memory m{};
    m.a_row = memory.template take<index_t>(block_rows(channels));
    m.segments = memory.template take<index_t>(piece_images_ * piece_rows_);
    const auto [size, terms] = with_factors([&, this](const auto& factors) {
      return std::pair{factors.size(channels), factors.terms(piece_images_, piece_rows_)};
    });
    m.strip = memory.template take<real>(size);
    m.panels = memory.template take<real>(std::max(terms, block_rows(channels)) * kernels_.width);
    m.tile = memory.template take<real>(2 * kernels_.rows * kernels_.width);
    return m;
  }
  [[nodiscard]] std::size_t worker_bytes() const {
    scratch memory;
    static_cast<void>(take(memory));
    if constexpr (std::is_same_v<real, float>) {
      if (winograd_) {
        return std::max(memory.used(), winograd_sums().worker_bytes());
      }
    }
    return memory.used();
  }

  /// Calls use(factors) with the form of the factors that the tiles take.
  template <class Use>
  auto with_factors(const Use& use) const {
    if constexpr (storage_element<Element>) {
      if (kernels_.group > 1) {
        return use(pixel_pairs<Element>{kernels_, c_, order_, piece_images_, piece_rows_});
      }
    }
    return use(pixel_terms<Element>{kernels_, c_, order_, piece_images_, piece_rows_});
  }

  /// Where the rows of the sums read their terms: taps, channels, then the bias.
  template <class Factors>
  void list_rows(const Factors& factors, index_t channels, index_t* offset) const {
    for (index_t r = 0; r < c_.taps_height; ++r) {
      for (index_t s = 0; s < c_.taps_width; ++s) {
        for (index_t i = 0; i < channels; ++i) {
          *offset++ = factors.offset(channels, r, s) + i * factors.channel_step();
        }
      }
    }
    *offset = channels * factors.channel_step();
  }

  [[nodiscard]] winograd_weight_sums<Element> winograd_sums() const { return {kernels_, c_, order_, largest_block()}; }

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
    if constexpr (std::is_same_v<real, float>) {
      if (winograd_) {
        winograd_sums().run(of, channel_begin(part), channel_begin(part + 1), first_result, last_result, x, dy,
                            with_bias && part == 0, sums + block_sums(part), memory);
        return;
      }
    }
    with_factors([&, this](const auto& factors) {
      sum_pieces(factors, of, {group, channel_begin(part), channel_begin(part + 1) - channel_begin(part)}, first_result,
                 last_result, x, dy, with_bias && part == 0, sums + block_sums(part), memory);
    });
  }

  /// Sums channels of x and results [first_result, last_result), which begin with a panel, over a chunk.
  template <class Factors>
  void sum_pieces(const Factors& factors, const result_block& of, const weight_block& block, index_t first_result,
                  index_t last_result, const Element* x, const Element* dy, bool bias, real* sums,
                  scratch memory) const {
    const worker_memory m = take(memory);
    const index_t rows_of_sums = block_rows(block.channels);
    list_rows(factors, block.channels, m.a_row);
    bool first = true;
    for (index_t image = of.image; image < of.image + of.images || first; image += piece_images_) {
      for (index_t row = of.row; row < of.row + of.rows; row += piece_rows_) {
        const result_block piece{.image = image,
                                 .images = std::clamp<index_t>(of.image + of.images - image, 0, piece_images_),
                                 .row = row,
                                 .rows = std::min(piece_rows_, of.row + of.rows - row)};
        factors.copy(block, piece, x, m.strip);
        tile_call<real> call;
        call.a = m.strip;
        call.a_row = m.a_row;
        call.a_step = factors.step(block.channels);
        call.line_step = factors.channel_step();
        call.segments = m.segments;
        call.segment_count = factors.list_segments(block.channels, piece.images, piece.rows, m.segments);
        call.segment_length = factors.segment_length(piece.rows);
        call.c_row = m.a_row;  // unused: the sums stay partial
        for (index_t result = first_result; result < last_result; result += kernels_.width) {
          const index_t channel = block.group * c_.results + result;
          panel_rows<real> panel;
          panel.rows = bias ? rows_of_sums : rows_of_sums - 1;
          panel.columns = std::min(c_.results - result, kernels_.width);
          panel.tile = m.tile;
          panel.sums = sums + result * rows_of_sums;
          panel.first = first;
          panel.last = false;
          call.b = factors.gradient_in_place(dy, channel, piece);
          panel.b_step = call.b == nullptr ? 0 : c_.groups * c_.results;
          if (call.b == nullptr) {
            factors.pack(dy, channel, panel.columns, next_panel_width(kernels_, panel.columns), piece, m.panels);
            call.b = m.panels;
          }
          if constexpr (std::is_same_v<Element, real>) {
            if (fetches_) {
              const bool other = result + kernels_.width >= last_result;
              const index_t next =
                  (image + (other ? 1 : 0)) * c_.results + (other ? first_result : result + kernels_.width);
              panel.next = dy + (next * c_.rows + row) * c_.columns;
              panel.next_lines = panel.columns * piece.rows * c_.columns / (64 / static_cast<index_t>(sizeof(real)));
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
        real* target = to + j * c_.weight_result;  // (channel, r, s) are adjacent
        for (index_t i = 0; i < channels; ++i) {
          for (index_t tap = 0; tap < taps_; ++tap) {
            *target++ = total[(tap * channels + i) * width + j];
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

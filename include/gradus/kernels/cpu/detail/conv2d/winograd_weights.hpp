// SPDX-License-Identifier: BSL-1.0
//
// The gradient of a convolution's weights by Winograd.
#pragma once

#include <algorithm>    // std::clamp, std::fill_n, std::max, std::min
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <type_traits>  // std::is_same_v

#include "gradus/core/index.hpp"
#include "gradus/kernels/cpu/detail/conv2d/correlation.hpp"
#include "gradus/kernels/cpu/detail/conv2d/winograd_tiles.hpp"
#include "gradus/kernels/cpu/detail/simd/panels.hpp"

namespace gradus::kernels::detail {

/// Sums the gradient of the weights over a chunk: multiplies the transforms of x and dy position by position, adds the
/// products of all tiles, and transforms the sums back into gradients of taps.
template <class Element>
class winograd_weight_sums {
 public:
  /// @param channels  largest number of input channels of a block
  winograd_weight_sums(const tile_kernels<float>& kernels, const correlation& c, channel_order order, index_t channels)
      : kernels_{kernels}, tiles_{kernels, c, order}, c_{c}, order_{order} {
    constexpr index_t most_results = 128;
    constexpr index_t piece_bytes = 2 * 1024 * 1024;  // of transformed inputs
    channels_ = channels;
    results_ = std::min(padded_columns(kernels, c.results), std::max(kernels.width, most_results));
    const index_t tile_bytes = tiles_.products * (channels_ + results_) * static_cast<index_t>(sizeof(float));
    const index_t tiles = std::clamp<index_t>(piece_bytes / tile_bytes, 32, 128);
    piece_images_ = std::max<index_t>(1, tiles / (tiles_.rows * tiles_.columns));
    piece_rows_ = std::clamp<index_t>(tiles / tiles_.columns, 1, tiles_.rows);
    piece_tiles_ = piece_images_ * piece_rows_ * tiles_.columns;
  }

  [[nodiscard]] std::size_t worker_bytes() const {
    scratch memory;
    static_cast<void>(take(memory));
    return memory.used();
  }

  /// Sums channels [begin, end) and results [first_result, last_result), which begin with a panel.
  /// @param bias  also sum the gradient of the bias
  /// @param sums  panel after panel of all results: (tap, channel) and one row for the bias
  void run(const result_block& chunk, index_t begin, index_t end, index_t first_result, index_t last_result,
           const Element* x, const Element* dy, bool bias, float* sums, scratch memory) const {
    const worker_memory m = take(memory);
    std::fill_n(m.zeros, std::max(channels_, results_), 0.0F);
    std::fill_n(m.ones, c_.columns, 1.0F);
    for (index_t i = 0; i < end - begin; ++i) {
      m.a_row[i] = i;
    }
    const index_t rows_of_sums = tiles_.taps * (end - begin) + 1;
    for (index_t result = first_result; result < last_result; result += results_) {
      const block b{.begin = begin,
                    .channels = end - begin,
                    .result = result,
                    .results = std::min(results_, last_result - result),
                    .bias = bias};
      sum_block(chunk, b, x, dy, sums + result * rows_of_sums, m);
    }
  }

 private:
  struct block {
    index_t begin;     ///< the first input channel
    index_t channels;  ///< number of input channels
    index_t result;    ///< the first output channel
    index_t results;   ///< number of output channels
    bool bias;
  };
  struct worker_memory {
    float* zeros;
    float* ones;
    float* strip;     ///< unless read in place: some rows of x with the channels last
    float* gradient;  ///< the same of dy
    float* input;     ///< (product, tile, channel)
    float* output;    ///< (product, panel, tile, result of the panel)
    float* sums;      ///< (product, panel, channel, result of the panel)
    float* tile;
    index_t* a_row;
  };

  [[nodiscard]] index_t input_pitch() const { return winograd_pitch<float>(channels_); }
  [[nodiscard]] index_t input_step() const { return winograd_step<float>(piece_tiles_, input_pitch()); }
  [[nodiscard]] index_t output_step() const { return winograd_step<float>(piece_tiles_, results_); }
  [[nodiscard]] index_t sums_step() const { return winograd_step<float>(channels_, results_); }

  [[nodiscard]] worker_memory take(scratch& memory) const {
    const index_t rows = piece_rows_ * tiles_.results_high;
    worker_memory m{};
    m.zeros = memory.take<float>(std::max(channels_, results_));
    m.ones = memory.take<float>(c_.columns);
    m.strip = memory.take<float>(tiles_.strip_elements(piece_images_, piece_rows_, channels_));
    m.gradient = memory.take<float>(tiles_.in_place() ? 0 : piece_images_ * rows * c_.columns * results_);
    m.input = memory.take<float>(tiles_.products * input_step());
    m.output = memory.take<float>(tiles_.products * output_step());
    m.sums = memory.take<float>(tiles_.products * sums_step());
    m.tile = memory.take<float>(2 * kernels_.rows * kernels_.width);
    m.a_row = memory.take<index_t>(channels_);
    return m;
  }

  /// Calls body(first, columns, width) for the panels of a block.
  template <class Body>
  void for_each_panel(const block& b, const Body& body) const {
    for (index_t first = 0; first < b.results; first += kernels_.width) {
      const index_t left = b.results - first;
      body(first, std::min(left, kernels_.width), next_panel_width(kernels_, left));
    }
  }

  void sum_block(const result_block& chunk, const block& b, const Element* x, const Element* dy, float* sums,
                 const worker_memory& m) const {
    bool first = true;
    const index_t rows_of_sums = tiles_.taps * b.channels + 1;
    for_each_panel(b, [&](index_t panel, index_t, index_t width) {
      std::fill_n(sums + panel * rows_of_sums + (rows_of_sums - 1) * width, width, 0.0F);
    });
    const index_t end_of_images = chunk.image + chunk.images;
    const index_t rows = piece_rows_ * tiles_.results_high;
    for (index_t image = chunk.image; image < end_of_images || first; image += piece_images_) {
      for (index_t row = chunk.row; row < chunk.row + chunk.rows; row += rows) {
        const result_block piece{.image = image,
                                 .images = std::clamp<index_t>(end_of_images - image, 0, piece_images_),
                                 .row = row,
                                 .rows = std::min(chunk.row + chunk.rows - row, rows)};
        const index_t tiles = tiles_.transform_input(
            piece, x, b.begin, b.channels,
            {.zeros = m.zeros, .strip = m.strip, .positions = m.input, .pitch = input_pitch(), .step = input_step()});
        transform_output(piece, b, dy, sums, m);
        multiply(b, tiles, first, m);
        first = false;
      }
    }
    std::array<float*, winograd_tiles<Element>::most_taps> to;
    for_each_panel(b, [&, this](index_t panel, index_t, index_t width) {
      const auto from = tiles_.template planes<const float*>(m.sums + panel * b.channels, sums_step());
      for (index_t i = 0; i < tiles_.taps; ++i) {
        to[static_cast<std::size_t>(i)] = sums + panel * rows_of_sums + i * b.channels * width;
      }
      tiles_.transforms->weight_sums(from.data(), 0, to.data(), 0, b.channels * width);
    });
  }

  void transform_output(const result_block& piece, const block& b, const Element* dy, float* sums,
                        const worker_memory& m) const {
    const index_t plane = c_.rows * c_.columns;
    const index_t pixels = piece.rows * c_.columns;
    if (!tiles_.in_place()) {
      for (index_t n = piece.image; n < piece.image + piece.images; ++n) {
        tiles_.copy_strip(kernels_, order_, dy + n * c_.results * plane, plane, c_.results, piece.row * c_.columns,
                          pixels, b.result, b.results, m.gradient + (n - piece.image) * pixels * b.results);
      }
    }
    const index_t pitch = tiles_.in_place() ? c_.results : b.results;
    const float* first = m.gradient;
    index_t image_step = pixels * b.results;
    if constexpr (std::is_same_v<Element, float>) {
      if (tiles_.in_place()) {
        first = dy + (piece.image * plane + piece.row * c_.columns) * c_.results + b.result;
        image_step = plane * c_.results;
      }
    }
    const auto first_of = [=](index_t n) { return first + (n - piece.image) * image_step; };  // position (first_row, 0)
    winograd_image<float> image{.first_row = piece.row,
                                .height = piece.row + piece.rows,
                                .width = c_.columns,
                                .pitch = pitch,
                                .zeros = m.zeros};
    std::array<const float*, winograd_tiles<Element>::most_results> from;
    const auto to = tiles_.planes(m.output, output_step());
    tiles_.for_each(piece, [&, this](index_t n, index_t row, index_t column, index_t tile) {
      image.first = first_of(n);
      image.list(row, tiles_.results_high, column, tiles_.results_wide, from.data());
      for_each_panel(b, [&, this](index_t panel, index_t, index_t width) {
        tiles_.transforms->gradient(from.data(), panel, to.data(), panel * piece_tiles_ + tile * width, width);
      });
    });
    if (b.bias) {
      const index_t rows_of_sums = tiles_.taps * b.channels + 1;
      for (index_t n = piece.image; n < piece.image + piece.images; ++n) {
        for (index_t row = 0; row < piece.rows; ++row) {
          for_each_panel(b, [&, this](index_t panel, index_t columns, index_t width) {
            kernels_.add_rows(m.ones, first_of(n) + row * c_.columns * pitch + panel, pitch, c_.columns, columns,
                              sums + panel * rows_of_sums + (rows_of_sums - 1) * width);
          });
        }
      }
    }
  }

  void multiply(const block& b, index_t tiles, bool first, const worker_memory& m) const {
    const index_t zero = 0;
    for (index_t i = 0; i < tiles_.products; ++i) {
      for_each_panel(b, [&, this](index_t begin, index_t columns, index_t) {
        panel_rows<float> panel;
        panel.rows = b.channels;
        panel.columns = columns;
        panel.terms = tiles;
        panel.sums = m.sums + i * sums_step() + begin * b.channels;
        panel.tile = m.tile;
        panel.first = first;
        panel.last = false;
        tile_call<float> call;
        call.a = m.input + i * input_step();
        call.a_row = m.a_row;
        call.a_step = input_pitch();
        call.segments = &zero;
        call.segment_count = 1;
        call.segment_length = tiles;
        call.b = m.output + i * output_step() + begin * piece_tiles_;
        call.c_row = m.a_row;  // unused: the sums stay partial
        multiply_rows(kernels_, call, panel, tile_output<float>{});
      });
    }
  }

  const tile_kernels<float>& kernels_;
  winograd_tiles<Element> tiles_;
  correlation c_;
  channel_order order_;
  index_t channels_;
  index_t results_;  // largest number in a block
  index_t piece_images_;
  index_t piece_rows_;  // rows of tiles
  index_t piece_tiles_;
};

}  // namespace gradus::kernels::detail

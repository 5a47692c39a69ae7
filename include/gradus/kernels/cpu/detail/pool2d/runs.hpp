// SPDX-License-Identifier: BSL-1.0
//
// Pooling of runs: adjacent outputs or inputs, computed in SIMD lanes.
#pragma once

#include <cstdint>  // std::uint8_t

#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/pool2d/windows.hpp"
#include "gradus/kernels/cpu/detail/simd/packets.hpp"

namespace gradus::kernels::detail {

/// Adjacent output pixels whose kernel positions cover the same entries, and the SIMD lanes of each.
template <class Element>
struct window_run {
  const Element* x = nullptr;  ///< the first entry under the first kernel position
  index_t rows = 0;            ///< rows of entries
  index_t columns = 0;
  index_t row_step = 0;  ///< elements from entry to entry
  index_t column_step = 0;
  index_t lanes = 0;
  index_t pixels = 0;
  index_t input_step = 0;  ///< elements from pixel to pixel
  index_t output_step = 0;
  index_t output = 0;         ///< offset of the first pixel
  int entry = 0;              ///< index of the first entry
  int kernel_width = 0;       ///< difference of entry indices in a column
  computed<Element> share{};  ///< weight of an entry in a mean
};

/// Computes `count` SIMD lanes of the first pixel of a run, starting at lane i, where a NaN is the largest entry.
template <class Element>
void max_windows_with_nan(const window_run<Element>& run, index_t i, index_t count, Element* y,
                          std::uint8_t* choice) noexcept {
  for (const index_t end = i + count; i < end; ++i) {
    Element best = run.x[i];
    int chosen = run.entry;
    for (index_t r = 0; r < run.rows; ++r) {
      for (index_t s = 0; s < run.columns; ++s) {
        const Element value = run.x[i + r * run.row_step + s * run.column_step];
        if (value > best || (value != value && best == best)) {
          best = value;
          chosen = run.entry + static_cast<int>(r) * run.kernel_width + static_cast<int>(s);
        }
      }
    }
    y[run.output + i] = best;
    if (choice != nullptr) {
      choice[run.output + i] = static_cast<std::uint8_t>(chosen);
    }
  }
}

/// The destination of gradients: dx with its epilogue or, unless `sums` is null, `sums` without an epilogue.
template <class Element>
struct gradient_target {
  Element* dx = nullptr;
  backward_epilogue<Element> epilogue{};
  computed<Element>* sums = nullptr;
};

/// A plane for 2x2 pooling without overlap; its rows are adjacent.
struct two_by_two_plane {
  index_t in_height;
  index_t in_width;
  index_t out_height;
  index_t out_width;
};

/// A row of input pixels, their SIMD lanes, and the outputs whose kernels cover them.
struct input_row {
  pool_axis columns{};
  pool_range p{};           ///< rows of outputs
  index_t output = 0;       ///< offset of the first output pixel of row p.begin
  index_t row_step = 0;     ///< elements from output to output
  index_t column_step = 0;  ///< elements from output to output
  index_t input = 0;        ///< offset of the first pixel
  index_t input_step = 0;   ///< elements from pixel to pixel
  index_t lanes = 0;
};

}  // namespace gradus::kernels::detail

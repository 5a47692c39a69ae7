// SPDX-License-Identifier: BSL-1.0
//
// Pooling of runs: adjacent outputs or inputs, computed in SIMD lanes.
#pragma once

#include <cstdint>  // std::uint8_t

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/elementwise/packet.hpp"
#include "gradus/kernels/cpu/detail/pool2d/windows.hpp"

namespace gradus::kernels::detail {

/// One element in the first SIMD lane of a vector; the other lanes are 0.
template <class Element>
struct lone_packet : full_packet<Element> {
  using full = full_packet<Element>;
  static constexpr index_t lanes = 1;

  /// Loads a stored element or a computed one.
  template <class Source>
  GRADUS_ALWAYS_INLINE static typename full::type load(const Source* from) noexcept {
    typename full::type value{};
    value[0] = static_cast<computed<Element>>(*from);
    return value;
  }
  template <class Target>
  GRADUS_ALWAYS_INLINE static void store(Target* to, typename full::type value) noexcept {
    *to = static_cast<Target>(value[0]);
  }
};

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

/// Stores a gradient with its epilogue.
template <class Packet, class Element>
GRADUS_ALWAYS_INLINE void store_gradient(Element* dx, typename Packet::type value,
                                         const backward_epilogue<Element>& epilogue, index_t i) noexcept {
  if (epilogue.accumulate) {
    value += Packet::load(dx + i);
  }
  if (epilogue.relu_output != nullptr) {
    value = Packet::where_positive(Packet::load(epilogue.relu_output + i), value);
  }
  Packet::store(dx + i, value);
}

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

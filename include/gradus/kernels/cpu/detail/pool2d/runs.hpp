// SPDX-License-Identifier: BSL-1.0
//
// Pooling of runs: adjacent outputs or inputs, computed in SIMD lanes.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t
#include <type_traits>  // std::integral_constant

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
  GRADUS_ALWAYS_INLINE static typename full::index_vector load_bytes(const std::uint8_t* from) noexcept {
    typename full::index_vector value{};
    value[0] = *from;
    return value;
  }
  GRADUS_ALWAYS_INLINE static void equal_bytes(const std::uint8_t* from, int value,
                                               typename full::index_vector (&masks)[1]) noexcept {
    masks[0] = load_bytes(from) == full::broadcast_index(value);
  }
  GRADUS_ALWAYS_INLINE static void store_bytes(std::uint8_t* to, typename full::index_vector value) noexcept {
    *to = static_cast<std::uint8_t>(value[0]);
  }
};

/// The number of packets that are computed together. Their sums and maxima stay in registers and hide each other's
/// latency.
inline constexpr int pool_block = 4;

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

/// Calls body(packet, blocks, i) for all lanes i.
template <class Element, class Body>
GRADUS_ALWAYS_INLINE void for_each_block(index_t lanes, const Body& body) noexcept {
  using full = full_packet<Element>;
  index_t i = 0;
  for (; i + pool_block * full::lanes <= lanes; i += pool_block * full::lanes) {
    body(full{}, std::integral_constant<int, pool_block>{}, i);
  }
  for (; i + full::lanes <= lanes; i += full::lanes) {
    body(full{}, std::integral_constant<int, 1>{}, i);
  }
  for (; i < lanes; ++i) {
    body(lone_packet<Element>{}, std::integral_constant<int, 1>{}, i);
  }
}

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

/// y = the largest entries, choice = their indices; choice may be null.
template <class Element>
void max_windows(const window_run<Element>& runs, Element* y, std::uint8_t* choice) noexcept {
  window_run<Element> run = runs;  // a copy, so that it can be in registers
  const auto window = [&]<class Packet, int Block>(Packet, std::integral_constant<int, Block>, index_t i) {
    typename Packet::type best[std::size_t{Block}];
    typename Packet::type sum[std::size_t{Block}];
    typename Packet::index_vector chosen[std::size_t{Block}];
    const Element* row = run.x + i;
    typename Packet::index_vector entry = Packet::broadcast_index(run.entry);
#pragma GCC unroll 4
    for (int j = 0; j < Block; ++j) {
      best[j] = Packet::load(row + j * Packet::lanes);
      sum[j] = typename Packet::type{};
      chosen[j] = entry;
    }
    const auto skipped = static_cast<typename Packet::index_type>(run.kernel_width - run.columns);
    for (index_t r = 0; r < run.rows; ++r, row += run.row_step, entry += skipped) {
      const Element* from = row;
      for (index_t s = 0; s < run.columns; ++s, from += run.column_step, entry += 1) {
        prefetch(from + Block * Packet::lanes);
#pragma GCC unroll 4
        for (int j = 0; j < Block; ++j) {
          const typename Packet::type value = Packet::load(from + j * Packet::lanes);
          // The last entry that was larger than all before has the largest index among them.
          chosen[j] = Packet::larger_byte(chosen[j], (value > best[j]) & entry);
          best[j] = Packet::larger(value, best[j]);
          sum[j] += value;
        }
      }
    }
    typename Packet::index_vector nan{};
#pragma GCC unroll 4
    for (int j = 0; j < Block; ++j) {
      const index_t lane = i + j * Packet::lanes;
      Packet::store(y + run.output + lane, best[j]);
      if (choice != nullptr) {
        Packet::store_bytes(choice + run.output + lane, chosen[j]);
      }
      nan |= sum[j] != sum[j];
    }
    // A sum is NaN if a term is NaN, or if there are infinities of both signs.
    if (Packet::any(nan)) [[unlikely]] {
      max_windows_with_nan(window_run<Element>{run}, i, Block * Packet::lanes, y, choice);
    }
  };
  for (; run.pixels > 0; --run.pixels, run.x += run.input_step, run.output += run.output_step) {
    for_each_block<Element>(run.lanes, window);
  }
}

/// y = the means of the entries.
template <class Element>
void average_windows(const window_run<Element>& runs, Element* y, std::uint8_t* /*choice*/) noexcept {
  window_run<Element> run = runs;  // a copy, so that it can be in registers
  const auto window = [&]<class Packet, int Block>(Packet, std::integral_constant<int, Block>, index_t i) {
    typename Packet::type sum[std::size_t{Block}]{};
    const Element* row = run.x + i;
    for (index_t r = 0; r < run.rows; ++r, row += run.row_step) {
      const Element* from = row;
      for (index_t s = 0; s < run.columns; ++s, from += run.column_step) {
        prefetch(from + Block * Packet::lanes);
#pragma GCC unroll 4
        for (int j = 0; j < Block; ++j) {
          sum[j] += Packet::load(from + j * Packet::lanes);
        }
      }
    }
#pragma GCC unroll 4
    for (int j = 0; j < Block; ++j) {
      Packet::store(y + run.output + i + j * Packet::lanes, sum[j] * run.share);
    }
  };
  for (; run.pixels > 0; --run.pixels, run.x += run.input_step, run.output += run.output_step) {
    for_each_block<Element>(run.lanes, window);
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

/// Computes the gradients of a row of inputs. add(packet, sum, p, q, entry, i) adds to the Block packets of `sum` what
/// output (p, q), at offset i, contributes to the inputs that are this entry under its kernel.
/// @tparam Regular  the columns are
template <bool Regular, class Element, class Add>
void gradients_of_row(const input_row& given, const gradient_target<Element>& to, const Add& add_window) noexcept {
  // Copies, so that they can be in registers.
  const input_row row = given;
  const gradient_target<Element> target = to;
  const Add add = add_window;
  const pool_axis& columns = row.columns;
  pool_range q{0, 0};
  [[maybe_unused]] index_t end_of_first = columns.kernel - columns.pad;  // one past the kernel of output q.begin
  [[maybe_unused]] index_t start_of_last = -columns.pad;                 // of the kernel of output q.end
  for (index_t w = 0; w < columns.inputs; ++w) {
    if constexpr (Regular) {  // windows_with(w), without a division
      for (; q.begin < columns.outputs && end_of_first <= w; ++q.begin) {
        end_of_first += columns.stride;
      }
      for (; q.end < columns.outputs && start_of_last <= w; ++q.end) {
        start_of_last += columns.stride;
      }
    } else {
      q = columns.windows_with(w);
    }
    const index_t input = row.input + w * row.input_step;
    for_each_block<Element>(row.lanes,
                            [&]<class Packet, int Block>(Packet packet, std::integral_constant<int, Block>, index_t i) {
                              typename Packet::type sum[std::size_t{Block}]{};
                              index_t output = row.output + q.begin * row.column_step + i;
                              for (index_t p = row.p.begin; p < row.p.end; ++p, output += row.row_step) {
                                index_t place = output;
                                for (index_t j = q.begin; j < q.end; ++j, place += row.column_step) {
                                  add(packet, sum, p, j, columns.template entry<Regular>(w, j), place);
                                }
                              }
#pragma GCC unroll 4
                              for (int j = 0; j < Block; ++j) {
                                const index_t place = input + i + j * Packet::lanes;
                                if (target.sums != nullptr) {
                                  Packet::store(target.sums + place, sum[j]);
                                } else {
                                  store_gradient<Packet>(target.dx, sum[j], target.epilogue, place);
                                }
                              }
                            });
  }
}

}  // namespace gradus::kernels::detail

// SPDX-License-Identifier: BSL-1.0
//
// Conversion between memory and tiles. Tiles compute in float or double; 16-bit elements are widened when they are read
// and rounded when they are stored.
#pragma once

#include <algorithm>    // std::copy_n
#include <type_traits>  // std::is_same_v

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/cpu/detail/simd/packets.hpp"
#include "gradus/kernels/cpu/detail/simd/tile.hpp"

#define GRADUS_TARGET_BODY "gradus/kernels/cpu/detail/simd/storage_body.hpp"
#include "gradus/simd/for_each_target.hpp"

namespace gradus::kernels::detail {

/// to[i] = from[i] for i < count
template <class Element>
void read_run(const Element* from, index_t count, computed<Element>* to) {
  if constexpr (real_element<Element>) {
    std::copy_n(from, count, to);
  } else {
    on_target([=](auto target) { read_run(target, from, count, to); });
  }
}

/// The same, with the conversions of an instruction set if it has them.
template <class Element>
void read_run(const tile_kernels<computed<Element>>& kernels, const Element* from, index_t count,
              computed<Element>* to) {
  if constexpr (std::is_same_v<Element, bfloat16>) {
    if (kernels.widen != nullptr) {
      kernels.widen(from, count, to);
      return;
    }
  }
  read_run(from, count, to);
}

/// to[i] = from[i * step] for i < count
template <class Element>
void read_every(const Element* from, index_t step, index_t count, computed<Element>* to) {
  index_t i = 0;
  if constexpr (std::is_same_v<Element, float>) {
    typedef float four __attribute__((vector_size(16), aligned(4), may_alias));
    for (; step == 2 && i + 4 < count; i += 4) {  // the second load ends after the needed elements
      const four low = *reinterpret_cast<const four*>(from + 2 * i);
      const four high = *reinterpret_cast<const four*>(from + 2 * i + 4);
      *reinterpret_cast<four*>(to + i) = GRADUS_SHUFFLE(low, high, 0, 2, 4, 6);
    }
  }
  for (; i < count; ++i) {
    to[i] = from[i * step];
  }
}

/// to[i] += from[i] for i < count
template <class Element>
void add_run(const tile_kernels<computed<Element>>& kernels, const Element* from, index_t count,
             computed<Element>* to) {
  if constexpr (real_element<Element>) {
    kernels.add(from, count, to);
  } else {
    on_target([=](auto target) { add_run(target, from, count, to); });
  }
}

/// As tile_kernels::copy_rows.
template <class Element>
void read_rows(const tile_kernels<computed<Element>>& kernels, const Element* from, index_t step, index_t count,
               index_t width, computed<Element>* to) {
  if constexpr (real_element<Element>) {
    kernels.copy_rows(from, step, count, width, to);
  } else if (step == width) {
    read_run(kernels, from, count * width, to);
  } else {
    for (index_t k = 0; k < count; ++k) {
      __builtin_prefetch(from + 12 * step);
      read_run(kernels, from, width, to);
      from += step;
      to += width;
    }
  }
}

/// As tile_kernels::transpose.
template <class Element>
void read_transposed(const tile_kernels<computed<Element>>& kernels, const Element* from, index_t step, index_t columns,
                     index_t count, index_t width, computed<Element>* to) {
  if constexpr (real_element<Element>) {
    kernels.transpose(from, step, columns, count, width, to);
  } else {
    // Widens a few rows at a time, then transposes them.
    constexpr index_t height = 16;
    constexpr index_t length = 64;
    alignas(64) computed<Element> rows[height * length];
    for (index_t j = 0; j < columns; j += height) {
      const index_t some = columns - j < height ? columns - j : height;
      for (index_t k = 0; k < count; k += length) {
        const index_t terms = count - k < length ? count - k : length;
        for (index_t i = 0; i < some; ++i) {
          read_run(kernels, from + (j + i) * step + k, terms, rows + i * length);
        }
        kernels.transpose(rows, length, some, terms, width, to + k * width + j);
      }
    }
  }
}

/// As tile_kernels::finish.
template <class Element>
void store_rows(const tile_kernels<computed<Element>>& kernels, const computed<Element>* sums, index_t rows,
                index_t pitch, index_t count, const index_t* c_row, const tile_output<Element>& output) {
  if constexpr (real_element<Element>) {
    kernels.finish(sums, rows, pitch, count, c_row, output);
  } else {
    if constexpr (std::is_same_v<Element, bfloat16>) {
      if (kernels.finish_bfloat16 != nullptr) {
        kernels.finish_bfloat16(sums, rows, pitch, count, c_row, output);
        return;
      }
    }
    on_target([&](auto target) { store_rows(target, sums, rows, pitch, count, c_row, output); });
  }
}

/// Rounds factors that were packed from parameters to the precision of Element.
template <class Element>
void round_run([[maybe_unused]] index_t count, [[maybe_unused]] computed<Element>* values) {
  if constexpr (!real_element<Element>) {
    on_target([=](auto target) { round_run<Element>(target, count, values); });
  }
}

}  // namespace gradus::kernels::detail

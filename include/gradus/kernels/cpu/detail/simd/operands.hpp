// SPDX-License-Identifier: BSL-1.0
//
// The factors of products in the form of tiles: the only code that knows how an instruction set packs them.
#pragma once

#include <algorithm>    // std::fill, std::min
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint16_t, std::uint32_t
#include <cstring>      // std::memcpy
#include <type_traits>  // std::type_identity_t

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/cpu/detail/simd/pairs.hpp"
#include "gradus/kernels/cpu/detail/simd/storage.hpp"
#include "gradus/kernels/cpu/detail/simd/tile.hpp"

namespace gradus::kernels::detail {

// tile_kernels::group adjacent terms are a unit: a term, or a pair of terms of 16 bits. A pair, the earlier term in
// the lower half, has the size of a float and takes the position of one. So tiles of pairs have the same arguments as
// other tiles, with half the terms. Pairs are copied as floats; no arithmetic uses them as floats.

/// The number of units that `count` terms need. The last unit has zeros behind its terms.
template <class Element>
[[nodiscard]] index_t units_of(const tile_kernels<computed<Element>>& kernels, index_t count) noexcept {
  return storage_element<Element> ? (count + kernels.group - 1) / kernels.group : count;
}

/// to[i] = (a[i], b[i]) for i < count; a null b counts as zeros.
template <class Element>
void interleave(const Element* a, std::type_identity_t<const Element*> b, index_t count, float* to) noexcept {
  typedef std::uint16_t eight __attribute__((vector_size(16)));
  index_t i = 0;
  for (; i + 8 <= count; i += 8) {
    eight first;
    eight second{};
    std::memcpy(&first, a + i, sizeof(first));
    if (b != nullptr) {
      std::memcpy(&second, b + i, sizeof(second));
    }
    const eight low = GRADUS_SHUFFLE(first, second, 0, 8, 1, 9, 2, 10, 3, 11);
    const eight high = GRADUS_SHUFFLE(first, second, 4, 12, 5, 13, 6, 14, 7, 15);
    std::memcpy(to + i, &low, sizeof(low));
    std::memcpy(to + i + 4, &high, sizeof(high));
  }
  for (; i < count; ++i) {
    const std::uint32_t pair = a[i].bits() | (b == nullptr ? 0U : std::uint32_t{b[i].bits()} << 16U);
    std::memcpy(to + i, &pair, sizeof(pair));
  }
}

/// Pairs of `count` adjacent terms; an odd number of terms is followed by a zero.
template <class Element>
void pair_run(const Element* from, index_t count, float* to) noexcept {
  // Not always memcpy: where GCC knows that a size is small, it makes a slow loop of it.
  typedef std::uint32_t four __attribute__((vector_size(16), aligned(2), may_alias));
  constexpr index_t some = 4;
  const index_t pairs = count / 2;
  const auto copy = [=](index_t i) { *reinterpret_cast<four*>(to + i) = *reinterpret_cast<const four*>(from + 2 * i); };
  constexpr index_t many = 256;
  if (pairs >= many) {
    std::memcpy(to, from, static_cast<std::size_t>(pairs) * sizeof(*to));
  } else if (pairs >= some) {
    for (index_t i = 0; i < pairs - some; i += some) {
      copy(i);
    }
    copy(pairs - some);  // the last ones again
  } else {
    for (index_t i = 0; i < pairs; ++i) {
      std::memcpy(to + i, from + 2 * i, sizeof(*to));
    }
  }
  if (count % 2 != 0) {
    const std::uint32_t last = from[count - 1].bits();
    std::memcpy(to + pairs, &last, sizeof(last));
  }
}

/// to[j * pitch + i] = pair i of the terms from[j * step + k], k < count, for j < rows. Few terms are not worth the
/// call of a copy.
template <class Element>
void pair_rows_of_terms(const Element* from, index_t step, index_t rows, index_t count, index_t pitch,
                        float* to) noexcept {
  constexpr index_t few = 8;
  if (count == 1 && step == 1 && pitch == 1) {
    interleave(from, nullptr, rows, to);
    return;
  }
  for (index_t j = 0; j < rows; ++j, from += step, to += pitch) {
    if (count >= few) {
      pair_run(from, count, to);
      continue;
    }
    index_t k = 0;
    for (; k + 1 < count; k += 2) {
      std::memcpy(to + k / 2, from + k, sizeof(*to));
    }
    if (k < count) {
      const std::uint32_t last = from[k].bits();
      std::memcpy(to + k / 2, &last, sizeof(last));
    }
  }
}

/// to[k * width + j] = pair k of the terms from[j * column_step + i * step], i < count, for j < columns.
template <class Element>
void pair_columns(const tile_kernels<float>& kernels, const Element* from, index_t column_step, index_t step,
                  index_t columns, index_t count, index_t width, float* to) {
  if (column_step == 1) {
    for (index_t k = 0; k < count; k += 2, to += width) {
      interleave(from + k * step, k + 1 < count ? from + (k + 1) * step : nullptr, columns, to);
    }
    return;
  }
  if (step != 1) {
    for (index_t k = 0; k < count; k += 2, to += width) {
      for (index_t j = 0; j < columns; ++j) {
        const Element* const term = from + j * column_step + k * step;
        interleave(term, k + 1 < count ? term + step : nullptr, 1, to + j);
      }
    }
    return;
  }
  // Makes pairs of the terms of some columns, then transposes them.
  constexpr index_t height = 16;
  constexpr index_t length = 64;
  alignas(64) std::array<float, static_cast<std::size_t>(height * length)> rows;
  for (index_t j = 0; j < columns; j += height) {
    const index_t some = std::min(height, columns - j);
    for (index_t k = 0; k < count; k += 2 * length) {
      const index_t terms = std::min(2 * length, count - k);
      for (index_t i = 0; i < some; ++i) {
        pair_run(from + (j + i) * column_step + k, terms, rows.data() + i * length);
      }
      kernels.transpose(rows.data(), length, some, (terms + 1) / 2, width, to + k / 2 * width + j);
    }
  }
}

/// to[j * pitch + i] = pair i of the channels of pixel j, for planes of channels `step` apart.
template <class Element>
void pair_planes(const tile_kernels<float>& kernels, const Element* from, index_t step, index_t channels,
                 index_t pixels, index_t pitch, float* to) {
  constexpr index_t height = 16;
  constexpr index_t length = 64;
  alignas(64) std::array<float, static_cast<std::size_t>(height * length)> rows;
  const index_t pairs = (channels + 1) / 2;
  for (index_t i = 0; i < pairs; i += height) {
    const index_t some = std::min(height, pairs - i);
    for (index_t j = 0; j < pixels; j += length) {
      const index_t run = std::min(length, pixels - j);
      for (index_t r = 0; r < some; ++r) {
        const Element* const plane = from + 2 * (i + r) * step + j;
        interleave(plane, 2 * (i + r) + 1 < channels ? plane + step : nullptr, run, rows.data() + r * length);
      }
      kernels.transpose(rows.data(), length, some, run, pitch, to + j * pitch + i);
    }
  }
}

/// Reads `count` adjacent terms of a row of tiles.
template <class Element>
void read_terms(const tile_kernels<computed<Element>>& kernels, const Element* from, index_t count,
                computed<Element>* to) {
  if constexpr (storage_element<Element>) {
    if (kernels.group > 1) {
      pair_run(from, count, to);
      return;
    }
  }
  read_run(kernels, from, count, to);
}

/// Reads rows of tiles: to[j * pitch + i] = unit i of the terms from[j * step + k], k < count, for j < rows.
template <class Element>
void read_rows_of_terms(const tile_kernels<computed<Element>>& kernels, const Element* from, index_t step, index_t rows,
                        index_t count, index_t pitch, computed<Element>* to) {
  if (step == count && pitch * kernels.group == count) {
    read_terms(kernels, from, rows * count, to);
  } else if (kernels.group == 1 && pitch == count) {
    read_rows(kernels, from, step, rows, count, to);
  } else {
    if constexpr (storage_element<Element>) {
      if (kernels.group > 1) {
        pair_rows_of_terms(from, step, rows, count, pitch, to);
        return;
      }
    }
    for (index_t j = 0; j < rows; ++j) {
      read_terms(kernels, from + j * step, count, to + j * pitch);
    }
  }
}

/// The same from planes of terms: to[j * pitch + i] = unit i of the terms from[k * step + j], k < count, for j < rows.
template <class Element>
void read_planes_of_terms(const tile_kernels<computed<Element>>& kernels, const Element* from, index_t step,
                          index_t rows, index_t count, index_t pitch, computed<Element>* to) {
  if constexpr (storage_element<Element>) {
    if (kernels.group > 1) {
      pair_planes(kernels, from, step, count, rows, pitch, to);
      return;
    }
  }
  read_transposed(kernels, from, step, count, rows, pitch, to);
}

/// Packs a panel: to[k * width + j] = unit k of the terms from[j * column_step + i * step], i < count, for j < columns;
/// zeros in the columns up to `width`.
template <class Element>
void pack_panel(const tile_kernels<computed<Element>>& kernels, const Element* from, index_t column_step, index_t step,
                index_t columns, index_t count, index_t width, computed<Element>* to) {
  if (columns < width) {
    for (index_t k = 0; k < units_of<Element>(kernels, count); ++k) {
      std::fill(to + k * width + columns, to + (k + 1) * width, computed<Element>{});
    }
  }
  if constexpr (storage_element<Element>) {
    if (kernels.group > 1) {
      pair_columns(kernels, from, column_step, step, columns, count, width, to);
      return;
    }
  }
  if (column_step == 1 && columns == width) {
    read_rows(kernels, from, step, count, width, to);
  } else if (step == 1) {
    read_transposed(kernels, from, column_step, columns, count, width, to);
  } else {
    for (index_t k = 0; k < count; ++k) {
      for (index_t j = 0; j < columns; ++j) {
        to[k * width + j] = from[j * column_step + k * step];
      }
    }
  }
}

/// Rounds a panel of parameters, `taps` times `count` rows of `width`, to the precision of Element. `from` may be `to`
/// if kernels.group is 1.
template <class Element>
void round_panel(const tile_kernels<computed<Element>>& kernels, const computed<Element>* from, index_t taps,
                 index_t count, index_t width, computed<Element>* to) {
  if constexpr (!real_element<Element>) {
    if (kernels.group > 1) {
      on_target([=](auto target) { pair_rows<Element>(target, from, taps, count, width, to); });
    } else {
      round_run<Element>(taps * count * width, to);
    }
  }
}

}  // namespace gradus::kernels::detail

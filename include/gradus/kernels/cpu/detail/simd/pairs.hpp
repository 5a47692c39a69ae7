// SPDX-License-Identifier: BSL-1.0
//
// Products of bfloat16, two terms at a time (AVX512-BF16, AMX-BF16): tiles and panels of pairs of terms.
#pragma once

#include <algorithm>    // std::copy_n, std::fill_n, std::min
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint16_t, std::uint32_t
#include <cstring>      // std::memcpy
#include <type_traits>  // std::is_same_v
#include <utility>      // std::exchange

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/cpu/detail/elementwise/packet.hpp"
#include "gradus/kernels/cpu/detail/simd/tile.hpp"
#include "gradus/kernels/cpu/isa.hpp"

// A pair of terms, the earlier one in the lower half, has the size of a float and takes the position of one. So tiles
// of pairs have the same arguments as other tiles, with half the terms. Pairs are copied as floats; no arithmetic uses
// them as floats.

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512bf16,avx512f,avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512bf16,avx512f,avx2,fma")
#endif
#define GRADUS_PAIRS_NAMESPACE avx512_bf16
#define GRADUS_PAIRS_INSTRUCTION
#include "gradus/kernels/cpu/detail/simd/pairs_body.hpp"
#define GRADUS_AMX_NAMESPACE amx_bf16
#define GRADUS_AMX_INSTRUCTION
#include "gradus/kernels/cpu/detail/simd/amx_body.hpp"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

namespace gradus::kernels::detail {

#if defined(__x86_64__)
template <class Element>
inline constexpr tile_kernels<Element> pair_kernels_of =
    avx512_bf16::with_pair_tiles<Element>(avx512::tile_kernels_of<Element>);
template <class Element>
inline constexpr tile_kernels<Element> amx_kernels_of = amx_bf16::with_amx_tiles<Element>(pair_kernels_of<Element>,
                                                                                          instruction_set::amx_bf16);
#endif

/// True if tiles may take pairs of terms of an element type: only bfloat16 has an instruction for it.
template <class Element>
inline constexpr bool may_pair = std::is_same_v<Element, bfloat16>;

/// The kernels of an instruction set for products of images of an element type.
template <class Element>
[[nodiscard]] const tile_kernels<computed<Element>>& storage_kernels_for(instruction_set which) {
#if defined(__x86_64__)
  if constexpr (may_pair<Element>) {
    if (which == instruction_set::amx_bf16) {
      return amx_kernels_of<computed<Element>>;
    }
    if (which == instruction_set::avx512_bf16) {
      return pair_kernels_of<computed<Element>>;
    }
  }
#endif
  return tile_kernels_for<computed<Element>>(which);
}

/// The kernels of the instruction set in use.
template <class Element>
[[nodiscard]] const tile_kernels<computed<Element>>& current_storage_kernels() {
  return storage_kernels_for<Element>(current_instruction_set());
}

/// The number of elements that `count` terms need in panels and rows of tiles, as single terms or pairs.
template <class Element>
[[nodiscard]] index_t packed_terms(const tile_kernels<computed<Element>>& kernels, index_t count) noexcept {
  if constexpr (may_pair<Element>) {
    return kernels.pairs ? (count + 1) / 2 : count;
  }
  return count;
}

/// to[i] = (a[i], b[i]) for i < count; a null b counts as zeros.
inline void interleave(const bfloat16* a, const bfloat16* b, index_t count, float* to) noexcept {
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
inline void pair_run(const bfloat16* from, index_t count, float* to) noexcept {
  if (count > 1) {
    std::memcpy(to, from, static_cast<std::size_t>(count / 2) * sizeof(*to));
  }
  if (count % 2 != 0) {
    interleave(from + count - 1, nullptr, 1, to + count / 2);
  }
}

/// to[k * width + j] = pair k of the terms from[j * column_step + i * step], i < count, for j < columns.
inline void pair_columns(const tile_kernels<float>& kernels, const bfloat16* from, index_t column_step, index_t step,
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
        const bfloat16* const term = from + j * column_step + k * step;
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
inline void pair_planes(const tile_kernels<float>& kernels, const bfloat16* from, index_t step, index_t channels,
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
        const bfloat16* const plane = from + 2 * (i + r) * step + j;
        interleave(plane, 2 * (i + r) + 1 < channels ? plane + step : nullptr, run, rows.data() + r * length);
      }
      kernels.transpose(rows.data(), length, some, run, pitch, to + j * pitch + i);
    }
  }
}

}  // namespace gradus::kernels::detail

// SPDX-License-Identifier: BSL-1.0
//
// Kernels for images of 16 bits: conversions of bfloat16 by each instruction set, and tiles that multiply two terms at
// a time (AVX512-BF16, AMX-BF16, AMX-FP16).
#pragma once

#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint16_t, std::uint32_t
#include <cstring>      // std::memcpy
#include <type_traits>  // std::is_same_v

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/cpu/detail/simd/packets.hpp"
#include "gradus/kernels/cpu/detail/simd/tile.hpp"
#include "gradus/simd/isa.hpp"

// A pair of terms, the earlier one in the lower half, has the size of a float and takes the position of one. So tiles
// of pairs have the same arguments as other tiles, with half the terms. Pairs are copied as floats; no arithmetic uses
// them as floats.

#if defined(GRADUS_X86_KERNELS)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512bf16,avx512f,avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512bf16,avx512f,avx2,fma")
#endif
#define GRADUS_PAIRS_NAMESPACE avx512_bf16
#define GRADUS_PAIRS_INSTRUCTION
#include "gradus/kernels/cpu/detail/simd/pairs_body.hpp"
#define GRADUS_AMX_NAMESPACE amx
#define GRADUS_AMX_INSTRUCTION
#include "gradus/kernels/cpu/detail/simd/amx_body.hpp"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

namespace gradus::kernels::detail {

/// The kernels of an instruction set for images of an element type, whose tiles take terms one by one. Those for
/// bfloat16 have conversions of their own; float16 is converted by packets.
template <class Element>
[[nodiscard]] constexpr const tile_kernels<computed<Element>>& single_term_kernels_for(
    [[maybe_unused]] instruction_set which) {
  if constexpr (std::is_same_v<Element, bfloat16>) {
#if defined(GRADUS_X86_KERNELS)
    if (which >= instruction_set::avx512) {
      return avx512::bfloat16_kernels_of<computed<Element>>;
    }
    if (which == instruction_set::avx2) {
      return avx2::bfloat16_kernels_of<computed<Element>>;
    }
#endif
    return portable::bfloat16_kernels_of<computed<Element>>;
  } else {
    return tile_kernels_for<computed<Element>>(which);
  }
}

#if defined(GRADUS_X86_KERNELS)
template <class Element>
inline constexpr tile_kernels<computed<Element>> pair_kernels_of = avx512_bf16::with_pair_tiles(
    single_term_kernels_for<Element>(instruction_set::avx512), instruction_set::avx512_bf16);

/// The instruction set whose tiles of AMX multiply pairs of Element.
template <class Element>
inline constexpr instruction_set amx_of =
    std::is_same_v<Element, bfloat16> ? instruction_set::amx_bf16 : instruction_set::amx_fp16;
template <class Element>
inline constexpr tile_kernels<computed<Element>> amx_kernels_of =
    amx::with_amx_tiles<Element>(single_term_kernels_for<Element>(instruction_set::avx512), amx_of<Element>);
#endif

/// The kernels of an instruction set for products of images of an element type.
template <class Element>
[[nodiscard]] const tile_kernels<computed<Element>>& storage_kernels_for(instruction_set which) {
#if defined(GRADUS_X86_KERNELS)
  if constexpr (storage_element<Element>) {
    if (which >= amx_of<Element>) {
      return amx_kernels_of<Element>;
    }
  }
  if constexpr (std::is_same_v<Element, bfloat16>) {
    if (which == instruction_set::avx512_bf16) {
      return pair_kernels_of<Element>;
    }
  }
#endif
  return single_term_kernels_for<Element>(which);
}

/// The kernels of the instruction set in use.
template <class Element>
[[nodiscard]] const tile_kernels<computed<Element>>& current_storage_kernels() {
  return storage_kernels_for<Element>(current_instruction_set());
}

}  // namespace gradus::kernels::detail

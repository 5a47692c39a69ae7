// SPDX-License-Identifier: BSL-1.0
//
// Tiles of pairs of bfloat16 without the instruction that they are for: what any processor can test of them.
#pragma once

#include "gradus/kernels/cpu/detail/simd/pairs.hpp"
#define GRADUS_PAIRS_NAMESPACE emulated_pairs
#include "gradus/kernels/cpu/detail/simd/pairs_body.hpp"

/// The portable kernels with tiles of pairs of 16 lanes.
[[nodiscard]] inline const gradus::kernels::detail::tile_kernels<float>& emulated_pair_kernels() {
  namespace detail = gradus::kernels::detail;
  static const auto kernels = detail::emulated_pairs::with_pair_tiles(
      detail::single_term_kernels_for<gradus::bfloat16>(gradus::kernels::instruction_set::portable),
      gradus::kernels::instruction_set::portable);
  return kernels;
}

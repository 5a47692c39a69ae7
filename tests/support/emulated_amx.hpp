// SPDX-License-Identifier: BSL-1.0
//
// Tiles in the registers of AMX without the instructions that they are for: what any processor can test of them.
#pragma once

#include <bit>
#include <cmath>
#include <limits>

#include "emulated_pairs.hpp"
#define GRADUS_AMX_NAMESPACE emulated_amx
#include "gradus/kernels/cpu/detail/simd/amx_body.hpp"

/// The portable kernels with tiles in emulated registers.
[[nodiscard]] inline const gradus::kernels::detail::tile_kernels<float>& emulated_amx_kernels() {
  static const auto kernels = gradus::kernels::detail::emulated_amx::with_amx_tiles(
      emulated_pair_kernels(), gradus::kernels::instruction_set::portable);
  return kernels;
}

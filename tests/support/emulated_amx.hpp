// SPDX-License-Identifier: BSL-1.0
//
// Tiles in the registers of AMX without the instructions that they are for: what any processor can test of them.
#pragma once

#include <bit>
#include <cmath>
#include <limits>

#include "gradus/core/bfloat16.hpp"
#include "gradus/kernels/cpu/detail/simd/pairs.hpp"
#define GRADUS_AMX_NAMESPACE emulated_amx
#include "gradus/kernels/cpu/detail/simd/amx_body.hpp"

/// The portable kernels with tiles of pairs of Stored (bfloat16, float16) in emulated registers.
template <class Stored = gradus::bfloat16>
[[nodiscard]] const gradus::kernels::detail::tile_kernels<float>& emulated_amx_kernels() {
  namespace detail = gradus::kernels::detail;
  constexpr auto portable = gradus::kernels::instruction_set::portable;
  static const auto kernels =
      detail::emulated_amx::with_amx_tiles<Stored>(detail::single_term_kernels_for<Stored>(portable), portable);
  return kernels;
}

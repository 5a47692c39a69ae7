// SPDX-License-Identifier: BSL-1.0
//
// Vectors of every instruction set for element-wise loops, and the choice between them at run time.
#pragma once

#include <array>        // std::array
#include <cmath>        // std::sqrt
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t, std::int64_t, std::uint8_t, ...
#include <cstring>      // std::memcpy, std::memset
#include <type_traits>  // std::conditional_t, std::integral_constant, std::is_same_v

#if defined(__SSE2__)
#include <emmintrin.h>  // bytes to lanes and back
#endif

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/simd/isa.hpp"

#define GRADUS_TARGET_BODY "gradus/simd/packets_body.hpp"
#include "gradus/simd/for_each_target.hpp"

#define GRADUS_TARGET_BODY "gradus/simd/loops_body.hpp"
#include "gradus/simd/for_each_target.hpp"

#define GRADUS_TARGET_BODY "gradus/simd/row_block_body.hpp"
#include "gradus/simd/for_each_target.hpp"

namespace gradus::simd {

/// Calls call(target) with the `target` of the instruction set in use, such as avx512::target. An unqualified call
/// f(target, ...) in it finds the f of that instruction set's namespace.
template <class Call>
void on_target(const Call& call) {
#if defined(GRADUS_X86_KERNELS)
  const kernels::instruction_set which = kernels::current_instruction_set();
  if (which >= kernels::instruction_set::avx512) {
    call(avx512::target{});
    return;
  }
  if (which == kernels::instruction_set::avx2) {
    call(avx2::target{});
    return;
  }
#endif
  call(portable::target{});
}

}  // namespace gradus::simd

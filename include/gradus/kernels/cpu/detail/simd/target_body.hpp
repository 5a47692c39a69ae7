// SPDX-License-Identifier: BSL-1.0
//
// The namespace of kernels for one instruction set.

// No `#pragma once`: for_each_target.hpp says what to compile.
#if defined(GRADUS_TARGET)

namespace gradus::kernels::detail {

namespace GRADUS_TARGET {

/// Selects the functions of this instruction set.
struct target {};

using simd::GRADUS_TARGET::for_each_block;
using simd::GRADUS_TARGET::for_each_packet;
using simd::GRADUS_TARGET::packet;
using simd::GRADUS_TARGET::row_block;
using simd::GRADUS_TARGET::stored_lanes;

}  // namespace GRADUS_TARGET

constexpr GRADUS_TARGET::target kernel_target(simd::GRADUS_TARGET::target /*of*/) noexcept {
  return {};
}

}  // namespace gradus::kernels::detail

#endif

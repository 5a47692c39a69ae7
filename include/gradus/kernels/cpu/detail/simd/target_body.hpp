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

/// dx[i...] = mask * (value + (accumulate ? dx[i...] : 0)), as a backward_epilogue says.
template <class Element, class Epilogue>
GRADUS_ALWAYS_INLINE void store_gradient(packet<Element> p, Element* dx, typename packet<Element>::type value,
                                         const Epilogue& epilogue, index_t i) noexcept {
  if (epilogue.accumulate) {
    value += p.load(dx + i);
  }
  if (epilogue.relu_output != nullptr) {
    value = p.masked(p.load(epilogue.relu_output + i) > typename packet<Element>::type{}, value);
  }
  p.store(dx + i, value);
}

}  // namespace GRADUS_TARGET

constexpr GRADUS_TARGET::target kernel_target(simd::GRADUS_TARGET::target /*of*/) noexcept {
  return {};
}

}  // namespace gradus::kernels::detail

#endif

// SPDX-License-Identifier: BSL-1.0
//
// The transforms of Winograd's minimal filtering F(4 x 4, 3 x 3), compiled once for every instruction set.
// Module: kernels. Depends on: core.
#pragma once

#include <cstddef>  // std::size_t

#include "gradus/core/config.hpp"            // GRADUS_ALWAYS_INLINE
#include "gradus/core/index.hpp"             // index_t
#include "gradus/kernels/cpu/isa.hpp"        // instruction_set
#include "gradus/kernels/cpu/simd_tile.hpp"  // the vectors of the instruction sets

namespace gradus::kernels::detail {

/// Transforms squares of numbers, one square for every k < count (a multiple of 16):
///
///   place p of square k:  from[p][from_offset + k]  ->  to[p][to_offset + k]     rows of the square one after another
template <class Element>
using winograd_transform = void (*)(const Element* const* from, index_t from_offset, Element* const* to,
                                    index_t to_offset, index_t count);

/// The points of F(4, 3): 0, a, -a, b, -b and infinity. All their powers are exact in a float, and sums of float come
/// out with half the error that the usual 1 and 2 leave: about twice that of the definition, root mean square (Barabasz
/// et al. 2020 on the choice of points).
template <class Element>
struct winograd_points {
  static constexpr Element a = static_cast<Element>(0.625);
  static constexpr Element b = static_cast<Element>(1.5);
  static constexpr Element a2 = a * a;
  static constexpr Element b2 = b * b;
  // What the weights are divided by at each of them.
  static constexpr Element of_zero = 1 / (a2 * b2);
  static constexpr Element of_a = 1 / (2 * a2 * (a2 - b2));
  static constexpr Element of_b = 1 / (2 * b2 * (b2 - a2));
};

/// What lies around the products of minimal filtering (Lavin & Gray 2015): with d a square of 6 x 6 places of the input
/// and g the weights, 4 x 4 places of the output are A^T ((B^T d B) * (G g G^T)) A, * entry by entry; the gradient of
/// the weights, with y 4 x 4 places of that of the output, is G^T ((B^T d B) * (A y A^T)) G.
template <class Element>
struct winograd_kernels {
  winograd_transform<Element> transform_input;        ///< d (6 x 6) to B^T d B (6 x 6)
  winograd_transform<Element> transform_weights;      ///< g (3 x 3) to G g G^T (6 x 6)
  winograd_transform<Element> transform_sums;         ///< m (6 x 6) to A^T m A (4 x 4)
  winograd_transform<Element> transform_gradient;     ///< y (4 x 4) to A y A^T (6 x 6)
  winograd_transform<Element> transform_weight_sums;  ///< m (6 x 6) to G^T m G (3 x 3)
};

}  // namespace gradus::kernels::detail

#define GRADUS_WINOGRAD_NAMESPACE portable
#include "gradus/kernels/cpu/simd_winograd_body.hpp"  // winograd_kernels_of

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define GRADUS_WINOGRAD_NAMESPACE avx2
#include "gradus/kernels/cpu/simd_winograd_body.hpp"  // the same for AVX2
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx512f,avx2,fma"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx2,fma")
#endif
#define GRADUS_WINOGRAD_NAMESPACE avx512
#include "gradus/kernels/cpu/simd_winograd_body.hpp"  // the same for AVX-512
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

namespace gradus::kernels::detail {

/// The code of an instruction set.
template <class Element>
[[nodiscard]] const winograd_kernels<Element>& winograd_kernels_for([[maybe_unused]] instruction_set which) {
#if defined(__x86_64__)
  if (which >= instruction_set::avx512) {
    return avx512::winograd_kernels_of<Element>;
  }
  if (which == instruction_set::avx2) {
    return avx2::winograd_kernels_of<Element>;
  }
#endif
  return portable::winograd_kernels_of<Element>;
}

}  // namespace gradus::kernels::detail

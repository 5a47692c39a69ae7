// SPDX-License-Identifier: BSL-1.0
//
// The arguments of the loops of local response normalization.
#pragma once

#include <algorithm>  // std::fill_n, std::max, std::min
#include <array>      // std::array
#include <cmath>      // std::pow
#include <cstddef>    // std::size_t
#include <limits>     // std::numeric_limits

#include "gradus/core/index.hpp"
#include "gradus/kernels/cpu/detail/simd/packets.hpp"
#include "gradus/kernels/local_response_norm.hpp"

namespace gradus::kernels::detail {

/// The parameters in the type of the elements.
template <class Real>
struct response {
  explicit response(const local_response_norm_parameters& parameters) noexcept
      : radius{parameters.radius},
        alpha{static_cast<Real>(parameters.alpha)},
        beta{static_cast<Real>(parameters.beta)},
        k{static_cast<Real>(parameters.k)},
        factor{static_cast<Real>(2 * parameters.alpha * parameters.beta)} {}

  index_t radius;
  Real alpha;
  Real beta;
  Real k;
  Real factor;
};

/// The arrays of a pass.
template <class Element>
struct response_arrays {
  const Element* x;
  Element* to;                           ///< y, or dx
  const Element* dy = nullptr;           ///< null: forward
  const Element* relu_output = nullptr;  ///< null: no mask
  bool accumulate = false;
};

inline constexpr index_t response_capacity = 4096;  ///< elements of a buffer

/// A buffer of a task, on the stack so that a training step allocates nothing.
template <class Real>
using response_buffer = std::array<Real, static_cast<std::size_t>(response_capacity)>;

/// True if a pixel's channels, with zeros on both sides, fit a buffer.
[[nodiscard]] constexpr bool response_fits_pixel(index_t channels, index_t radius) noexcept {
  return radius <= response_capacity && channels + 2 * radius <= response_capacity;
}

/// Pixels of a tile for which a ring of 2 * radius + 1 channels fits a buffer; 0 if there are none.
[[nodiscard]] constexpr index_t response_tile(index_t radius) noexcept {
  const index_t fitting = response_capacity / (2 * radius + 1);
  return fitting >= 64 ? 64 : fitting / 4 * 4;
}

}  // namespace gradus::kernels::detail

#define GRADUS_TARGET_BODY "gradus/kernels/cpu/detail/norm/local_response_norm_body.hpp"
#include "gradus/simd/for_each_target.hpp"

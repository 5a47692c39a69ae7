// SPDX-License-Identifier: BSL-1.0
//
// The arguments of the loops of batch normalization over runs of adjacent elements, on the CPU.
#pragma once

#include <algorithm>    // std::clamp, std::copy_n, std::fill_n, std::max, std::min
#include <cstddef>      // std::size_t
#include <type_traits>  // std::integral_constant

#include "gradus/core/index.hpp"
#include "gradus/kernels/cpu/detail/elementwise/activation.hpp"
#include "gradus/kernels/cpu/detail/simd/packets.hpp"

namespace gradus::kernels::detail {

/// Arrays that sums are taken over. With a null dy: of x - s and of (x - s)^2, where s is the mean that is passed with
/// them. Else of g and of g * (x - mean), where g is dy times the derivative of the activation whose output is y; a
/// null y: no activation.
template <class Element>
struct norm_terms {
  const Element* x = nullptr;
  const Element* y = nullptr;
  const Element* dy = nullptr;
  held_derivative<computed<Element>> derivative{};
};

/// y = act((x - mean) * scale + shift + residual), in runs of `length` elements one after another.
template <class Element>
struct normalized_runs {
  const Element* x = nullptr;
  Element* y = nullptr;
  const Element* residual = nullptr;                ///< null: none
  const computed<Element>* coefficients = nullptr;  ///< (mean, scale, shift), `channels` apart
  held_activation<computed<Element>> act{};
  index_t channels = 0;
  index_t length = 0;
  bool per_lane = false;  ///< each element of a run is a channel; else all belong to channel `run % channels`
};

/// dx = scale * (g - mean of g) - factor * (x - mean), and the residual's gradient g. Where a channel has one value, g
/// and x equal their means exactly, and dx is 0.
template <class Element>
struct gradient_runs {
  const Element* x = nullptr;
  const Element* y = nullptr;  ///< null: no activation
  const Element* dy = nullptr;
  Element* dx = nullptr;                 ///< null: not needed; then dresidual is
  Element* dresidual = nullptr;          ///< null: not needed
  const Element* relu_output = nullptr;  ///< of the layer before; null: no mask
  const computed<Element>* mean = nullptr;
  const computed<Element>* coefficients = nullptr;  ///< (scale, mean of g, factor), `channels` apart
  index_t channels = 0;
  index_t length = 0;
  bool per_lane = false;                                ///< as normalized_runs::per_lane
  held_derivative<computed<Element>> of_y{};            ///< of the activation whose output is y
  held_derivative<computed<Element>> of_relu_output{};  ///< of that whose output is relu_output
  bool accumulate = false;
  bool accumulate_residual = false;
};

inline constexpr index_t short_sum = 16;         ///< terms that are added before they are widened
inline constexpr index_t joined_channels = 512;  ///< rows are joined to rows of at most this length

}  // namespace gradus::kernels::detail

#define GRADUS_TARGET_BODY "gradus/kernels/cpu/detail/norm/batch_norm_body.hpp"
#include "gradus/simd/for_each_target.hpp"

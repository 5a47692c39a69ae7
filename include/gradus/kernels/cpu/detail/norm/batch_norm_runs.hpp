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
  const Element* residual = nullptr;        ///< null: none
  const computed<Element>* mean = nullptr;  ///< this, scale and shift: one for each channel
  const computed<Element>* scale = nullptr;
  const computed<Element>* shift = nullptr;
  held_activation<computed<Element>> act{};
  index_t channels = 0;
  index_t length = 0;
  bool per_lane = false;  ///< each element of a run is a channel; else all belong to channel `run % channels`
};

/// dx = scale * (g - shift) - factor * (x - mean), where shift is the mean of g, and the residual's gradient g. Where a
/// channel has one value, g and x equal their means exactly, and dx is 0. For sets of channels: dx = scale * g - shift
/// - factor * (x - mean).
template <class Element>
struct gradient_runs {
  const Element* x = nullptr;
  const Element* y = nullptr;  ///< null: no activation
  const Element* dy = nullptr;
  Element* dx = nullptr;                    ///< null: not needed; then dresidual is
  Element* dresidual = nullptr;             ///< null: not needed
  const Element* relu_output = nullptr;     ///< of the layer before; null: no mask
  const computed<Element>* mean = nullptr;  ///< this, scale, shift and factor: one for each channel
  const computed<Element>* scale = nullptr;
  const computed<Element>* shift = nullptr;
  const computed<Element>* factor = nullptr;
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

namespace gradus::kernels::detail {

/// The functions of batch_norm_body.hpp for the instruction set in use.
template <class Element>
void sum_runs(const norm_terms<Element>& terms, index_t runs, index_t stride, index_t count, computed<Element> mean,
              double& first, double& second) {
  on_target([&](auto target) { sum_runs(target, terms, runs, stride, count, mean, first, second); });
}
template <class Element, class Mean>
void sum_rows(const norm_terms<Element>& terms, index_t rows, index_t channels, const Mean* mean, double* first,
              double* second) {
  on_target([&](auto target) { sum_rows(target, terms, rows, channels, mean, first, second); });
}

}  // namespace gradus::kernels::detail

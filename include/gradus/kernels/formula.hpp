// SPDX-License-Identifier: BSL-1.0
//
// The contract of kernels that run a formula (tensor/formula.hpp) over memory.
#pragma once

#include <array>     // std::array
#include <concepts>  // std::same_as
#include <cstddef>   // std::byte, std::size_t
#include <span>      // std::span

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/softmax.hpp"
#include "gradus/tensor/formula.hpp"

namespace gradus::kernels {

/// The elements of a batch in memory order, as (outer, channels, inner): (n, c, h * w) for nchw, (n * h * w, c, 1) for
/// nhwc. A formula without parameters may take any split of the elements.
struct formula_shape {
  index_t outer = 1;     ///< rows of channels
  index_t channels = 1;  ///< elements of a parameter of each channel
  index_t inner = 1;     ///< adjacent elements of one channel

  /// The number of elements.
  [[nodiscard]] constexpr index_t count() const noexcept { return outer * channels * inner; }
};

/// What a formula of Inputs + Parameters variables is computed from: the first variables are elements of images, the
/// others parameters.
template <network_element Element, int Inputs, int Parameters>
struct formula_arguments {
  /// The type of parameters and of the arithmetic.
  using real = parameter_element_t<Element>;
  std::array<const Element*, static_cast<std::size_t>(Inputs)> inputs{};       ///< shape.count() elements each
  std::array<const real*, static_cast<std::size_t>(Parameters)> parameters{};  ///< one or shape.channels elements each
  std::array<bool, static_cast<std::size_t>(Parameters)> per_channel{};  ///< true: shape.channels elements, false: one
};

/// Where the derivatives of a formula are written.
template <network_element Element, int Inputs, int Parameters>
struct formula_gradients {
  /// The type of parameters and of the arithmetic.
  using real = parameter_element_t<Element>;
  std::array<Element*, static_cast<std::size_t>(Inputs)> inputs{};       ///< null where a gradient is not needed
  std::array<bool, static_cast<std::size_t>(Inputs)> accumulate{};       ///< true: add to the gradient of an input
  std::array<real*, static_cast<std::size_t>(Parameters)> parameters{};  ///< overwritten; sizes as in the arguments
};

namespace detail {
using any_formula = formula<gradus::detail::variable<0>, 1>;
}  // namespace detail

/// A device that runs formulas:
///
///   formula_forward writes y = f(inputs, parameters).
///   formula_backward writes or adds the gradients of the inputs, and writes those of the parameters, from the inputs,
///   the parameters, dy and, if Formula::gradient_reads_value, y. Inputs are read only if
///   Formula::gradient_reads_inputs.
///   formula_workspace_bytes is the size of the workspace of formula_backward for a batch of this size or a smaller
///   one, 0 without parameters.
///
/// 16-bit elements are computed in float. Arrays need only the alignment of their elements. The output of
/// formula_forward may be one of the inputs; that of formula_backward only if there are no parameters.
template <class Device, class Element>
concept has_formula = requires(Device& device, const formula_shape& shape, const detail::any_formula& function,
                               const formula_arguments<Element, 1, 0>& arguments, Element* y, const Element* dy,
                               const formula_gradients<Element, 1, 0>& gradients, std::span<std::byte> workspace) {
  formula_forward(device, shape, function, arguments, y);
  formula_backward(device, shape, function, arguments, dy, dy, gradients, workspace);
  formula_workspace_bytes(device, shape, 1);
};

/// A device that computes losses by a formula: formula_loss returns the sum over the examples n of weights(n) (1 where
/// `weights` is null) times the loss of the example: the sum or mean, as the formula says, over its per_example scores
/// and targets. Unless `gradient` is null it writes scale * the derivative by each score. The device may deliver the
/// sum later (has_deferred_loss_sums).
template <class Device, class Element>
concept has_formula_loss = requires(Device& device, index_t examples, index_t per_example,
                                    const loss_formula<gradus::detail::variable<0>, false>& loss, const Element* scores,
                                    const parameter_element_t<Element>* targets,
                                    const parameter_element_t<Element>* weights, double scale, Element* gradient) {
  {
    formula_loss(device, examples, per_example, loss, scores, targets, weights, scale, gradient)
    } -> std::same_as<loss_sums>;
};

/// Says that the device lacks the overload of `has_formula_loss`. Always true when it compiles.
template <class Device, class Element>
consteval bool explain_formula_loss() {
  static_assert(
      has_formula_loss<Device, Element>,
      "gradus: the device computes no losses by formulas: overload formula_loss (gradus/kernels/formula.hpp); "
      "for gradus::cpu include gradus/kernels/cpu/formula.hpp, for gradus::cuda "
      "gradus/kernels/cuda/formula.cuh");
  return true;
}

/// Says that the device lacks the overloads of `has_formula`. Always true when it compiles.
template <class Device, class Element>
consteval bool explain_formula() {
  static_assert(
      has_formula<Device, Element>,
      "gradus: the device runs no formulas: overload formula_forward, formula_backward and formula_workspace_bytes "
      "(gradus/kernels/formula.hpp); for gradus::cuda include gradus/kernels/cuda/formula.cuh");
  return true;
}

}  // namespace gradus::kernels

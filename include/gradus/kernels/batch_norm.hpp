// SPDX-License-Identifier: BSL-1.0
//
// The contract of batch normalization kernels: the parameters of a pass and the functions that every device overloads.
#pragma once

#include <concepts>  // std::same_as
#include <cstddef>   // std::byte, std::size_t
#include <span>      // std::span

#include "gradus/core/element.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

/// Scale and shift of every channel, shape (C) each. A null gamma is 1, a null beta is 0.
template <class Element>
struct batch_norm_affine {
  const Element* gamma = nullptr;  ///< scale of every channel
  const Element* beta = nullptr;   ///< shift of every channel, after the scale
};

/// Running statistics of every channel, shape (C) each: running <- (1 - momentum) * running + momentum * batch. The
/// batch's variance is the unbiased one, M / (M - 1) times the biased one. Where a channel has one value (M = 1) it is
/// 0, the biased one, as in TensorFlow: training continues, with a running variance that shrinks. Null pointers: not
/// needed. Inference reads both arrays.
template <class Element>
struct batch_norm_running {
  Element* mean = nullptr;      ///< running mean of every channel
  Element* variance = nullptr;  ///< running variance of every channel
  double momentum = 0.1;        ///< weight of the batch, in [0, 1]; TensorFlow's decay is 1 - momentum
};

/// Statistics that a training pass keeps for backward, shape (C) each.
template <class Element>
struct batch_norm_saved {
  Element* mean = nullptr;               ///< mean of the batch
  Element* inverse_deviation = nullptr;  ///< 1 / sqrt(variance + epsilon), with the biased variance
  /// (3, C): mean, scale and shift of y = act((x - mean) * scale + shift + residual); the first row may be `mean`.
  /// Null: the pass is never repeated.
  Element* coefficients = nullptr;
};

/// What a forward pass applies to y before it stores it: y = act(y + residual).
template <class Element>
struct batch_norm_epilogue {
  const Element* residual = nullptr;      ///< of the shape and layout of y; null adds nothing
  activation act = activation::identity;  ///< the last step, after the residual
};

/// The outputs of a backward pass besides dx. Null pointers: not needed.
template <class Element>
struct batch_norm_gradients {
  parameter_element_t<Element>* gamma = nullptr;  ///< (C), overwritten
  parameter_element_t<Element>* beta = nullptr;   ///< (C), overwritten
  Element* residual = nullptr;                    ///< of the shape and layout of dy: dy times the derivative of `act`
  bool accumulate_residual = false;               ///< adds to `residual` what it contains; otherwise it is only written
};

/// A requirement of `has_batch_norm`: batch_norm_workspace_bytes returns the bytes of workspace that any of the kernels
/// needs for images of `shape` (N, C, H, W), or for fewer of them.
template <class Device, class Element, class Layout>
concept has_batch_norm_workspace_bytes = requires(Device& device, const image_extents& shape) {
  { batch_norm_workspace_bytes<Element, Layout>(device, shape) } -> std::same_as<std::size_t>;
};

/// A requirement of `has_batch_norm`: batch_norm_forward_training overwrites y with x normalized by the statistics of
/// the batch, moves `running` towards them, and overwrites the arrays of `saved` that are not null.
template <class Device, class Element, class Layout>
concept has_batch_norm_forward_training = requires(Device& device, image_view<const Element, Layout, Device> x,
                                                   image_view<Element, Layout, Device> y,
                                                   const batch_norm_affine<parameter_element_t<Element>>& affine,
                                                   double epsilon,
                                                   const batch_norm_running<parameter_element_t<Element>>& running,
                                                   const batch_norm_saved<parameter_element_t<Element>>& saved,
                                                   const batch_norm_epilogue<Element>& epilogue,
                                                   std::span<std::byte> workspace) {
  batch_norm_forward_training(device, x, y, affine, epsilon, running, saved, epilogue, workspace);
};

/// A requirement of `has_batch_norm`: batch_norm_forward_again overwrites y with the output of the training pass that
/// filled `saved.coefficients`, from the same x.
template <class Device, class Element, class Layout>
concept has_batch_norm_forward_again = requires(Device& device, image_view<const Element, Layout, Device> x,
                                                image_view<Element, Layout, Device> y,
                                                const batch_norm_saved<parameter_element_t<Element>>& saved,
                                                const batch_norm_epilogue<Element>& epilogue) {
  batch_norm_forward_again(device, x, y, saved, epilogue);
};

/// A requirement of `has_batch_norm`: batch_norm_forward_inference overwrites y with x normalized by `running`, which
/// it does not change.
template <class Device, class Element, class Layout>
concept has_batch_norm_forward_inference = requires(Device& device, image_view<const Element, Layout, Device> x,
                                                    image_view<Element, Layout, Device> y,
                                                    const batch_norm_affine<parameter_element_t<Element>>& affine,
                                                    double epsilon,
                                                    const batch_norm_running<parameter_element_t<Element>>& running,
                                                    const batch_norm_epilogue<Element>& epilogue,
                                                    std::span<std::byte> workspace) {
  batch_norm_forward_inference(device, x, y, affine, epsilon, running, epilogue, workspace);
};

/// A requirement of `has_batch_norm`: batch_norm_backward computes dx and `gradients` from x, dy, gamma and the `saved`
/// mean and inverse_deviation of the training pass. It reads y unless `act` is the identity. It overwrites dx unless
/// `epilogue.accumulate`; a dx without data is not needed.
template <class Device, class Element, class Layout>
concept has_batch_norm_backward = requires(Device& device, image_view<const Element, Layout, Device> x,
                                           image_view<const Element, Layout, Device> y,
                                           image_view<const Element, Layout, Device> dy,
                                           image_view<Element, Layout, Device> dx,
                                           const batch_norm_affine<parameter_element_t<Element>>& affine,
                                           const batch_norm_saved<parameter_element_t<Element>>& saved, activation act,
                                           const batch_norm_gradients<Element>& gradients,
                                           const backward_epilogue<Element>& epilogue, std::span<std::byte> workspace) {
  batch_norm_backward(device, x, y, dy, dx, affine, saved, act, gradients, epilogue, workspace);
};

/// A device that normalizes batches; nn::batch_norm asks for it.
///
/// Normalization of every channel over n, h and w (Ioffe, Szegedy 2015, algorithm 1), with M = N * H * W:
///
///   xhat = (x - mean) / sqrt(variance + epsilon);   y = act(gamma * xhat + beta + residual)
///
/// and for g = dL/dy times the derivative of act:
///
///   dbeta = sum g;   dgamma = sum g * xhat;
///   dx = gamma / sqrt(variance + epsilon) * (g - dbeta / M - xhat * dgamma / M)
///
/// Where a channel has one value, x equals its mean: y = act(beta + residual), dgamma = 0 and dx = 0, exactly. Where
/// all values of a channel are equal, its variance, xhat and dgamma are 0, exactly. (PyTorch refuses to train with one
/// value per channel.)
///
/// The variance is computed from differences to the channel's first value x0: mean((x - x0)^2) - mean(x - x0)^2. So it
/// stays accurate for any mean. Its error is a few roundings of variance + (x0 - mean)^2, and the second term is at
/// most M times the first. The saved mean is rounded to parameter_element_t<Element>. y compensates for that, and the
/// gradients are those of the rounded mean: dgamma / M is off by at most half a unit in the last place of mean /
/// sqrt(variance + epsilon) times |dbeta| / M.
///
/// Images x, y, dy and dx have the shape (N, C, H, W). In forward, y may be x unless backward will read x; dx may be
/// dy. Sums are in double precision. The workspace has the bytes that batch_norm_workspace_bytes gives for this batch
/// or a larger one. It is aligned to 64 bytes and need not be kept between calls; other arrays need only the
/// alignment of their elements. A batch of 0 leaves running statistics unchanged and gives gradients of 0. Results are
/// bitwise the same for any number of threads.
template <class Device, class Element, class Layout>
concept has_batch_norm = has_batch_norm_workspace_bytes<Device, Element, Layout> &&
    has_batch_norm_forward_training<Device, Element, Layout> && has_batch_norm_forward_again<Device, Element, Layout> &&
    has_batch_norm_forward_inference<Device, Element, Layout> && has_batch_norm_backward<Device, Element, Layout>;

/// Says which overload of `has_batch_norm` the device misses. Always true when it compiles.
template <class Device, class Element, class Layout>
consteval bool explain_batch_norm() {
  static_assert(
      has_batch_norm_workspace_bytes<Device, Element, Layout>,
      "gradus: the device lacks a kernel of the network: overload template <class Element, class Layout> std::size_t "
      "batch_norm_workspace_bytes(Device&, const image_extents&); for gradus::cuda include gradus/kernels/cuda.cuh");
  static_assert(has_batch_norm_forward_training<Device, Element, Layout>,
                "gradus: the device lacks a kernel of the network: overload void batch_norm_forward_training(Device&, "
                "x, y, const batch_norm_affine<P>&, double epsilon, const batch_norm_running<P>&, const "
                "batch_norm_saved<P>&, const batch_norm_epilogue<Element>&, std::span<std::byte> workspace); for "
                "gradus::cuda include gradus/kernels/cuda.cuh");
  static_assert(
      has_batch_norm_forward_again<Device, Element, Layout>,
      "gradus: the device lacks a kernel of the network: overload void batch_norm_forward_again(Device&, x, y, const "
      "batch_norm_saved<P>&, const batch_norm_epilogue<Element>&); for gradus::cuda include gradus/kernels/cuda.cuh");
  static_assert(
      has_batch_norm_forward_inference<Device, Element, Layout>,
      "gradus: the device lacks a kernel of the network: overload void batch_norm_forward_inference(Device&, x, y, "
      "const batch_norm_affine<P>&, double epsilon, const batch_norm_running<P>&, const batch_norm_epilogue<Element>&, "
      "std::span<std::byte> workspace); for gradus::cuda include gradus/kernels/cuda.cuh");
  static_assert(has_batch_norm_backward<Device, Element, Layout>,
                "gradus: the device lacks a kernel of the network: overload void batch_norm_backward(Device&, x, y, "
                "dy, dx, const batch_norm_affine<P>&, const batch_norm_saved<P>&, activation, const "
                "batch_norm_gradients<Element>&, const backward_epilogue<Element>&, std::span<std::byte> workspace); "
                "for gradus::cuda include gradus/kernels/cuda.cuh");
  return true;
}

}  // namespace gradus::kernels

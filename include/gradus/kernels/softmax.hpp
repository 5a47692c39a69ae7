// SPDX-License-Identifier: BSL-1.0
//
// The contract of softmax cross-entropy kernels: their sums and the functions that devices overload.
#pragma once

#include <concepts>  // std::same_as
#include <cstdint>   // std::int32_t

#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"

namespace gradus::kernels {

/// Sums over the rows of a batch; divide by the number of examples for means.
struct loss_sums {
  double loss = 0;      ///< sum of the examples' losses, in nats
  index_t correct = 0;  ///< examples whose largest logit (the first of equals) is that of their label

  /// Adds the sums of other rows.
  constexpr loss_sums& operator+=(const loss_sums& other) noexcept {
    loss += other.loss;
    correct += other.correct;
    return *this;
  }
};

// The kernels of `has_softmax_cross_entropy` and `has_softmax`, for network elements E.
//
// On an asynchronous device, softmax_cross_entropy_loss may return zeros. The device then overloads `take_loss_sums`,
// which waits for the sums of the last call and returns them. The network calls it after it has enqueued the rest of
// the step. For a loss scale whose numbers are in the device's memory, the device may also overload `use_loss_scale`,
// which makes numbers[scale], read when the kernel runs, one more factor of the next loss's dlogits, and
// `apply_loss_scale`, which multiplies the gradient by it if the loss of a program computed the gradient, without that
// factor.
//
// dlogits (rows, classes) (null: not needed) is overwritten with scale * (softmax(logits) - onehot(labels)); scale is
// the loss scale's factor / (examples of the global batch). Labels are in [0, classes). A logit may be minus infinity:
// its probability is 0. If a logit is NaN or infinity, or all are minus infinity, the row's loss, gradient and
// probabilities are NaN, and the row may count as correct or not. dlogits may be logits, and so may probabilities.

/// A device that computes the loss of a network; nn::softmax_cross_entropy asks for it.
template <class Device, class Element>
concept has_softmax_cross_entropy = requires(Device& device, index_t rows, index_t classes, const Element* logits,
                                             const std::int32_t* labels, double scale, Element* dlogits) {
  { softmax_cross_entropy_loss(device, rows, classes, logits, labels, scale, dlogits) } -> std::same_as<loss_sums>;
};

/// A device that computes probabilities.
template <class Device, class Element>
concept has_softmax = requires(Device& device, index_t rows, index_t classes, const Element* logits,
                               Element* probabilities) {
  softmax(device, rows, classes, logits, probabilities);
};

/// A device whose softmax_cross_entropy_loss may return zeros. Not required.
template <class Device>
concept has_deferred_loss_sums = requires(Device& device) {
  { take_loss_sums(device) } -> std::same_as<loss_sums>;
};

/// A device that reads the numbers of a loss scale in its own memory. Not required.
template <class Device>
concept has_loss_scale_use = requires(Device& device, const loss_scale& scale) {
  use_loss_scale(device, scale);
};

/// A device that multiplies gradients of other losses by that scale. Not required.
template <class Device, class Element>
concept has_loss_scale_application = requires(Device& device, index_t count, Element* gradient) {
  apply_loss_scale(device, count, gradient);
};

/// Says which overload of `has_softmax_cross_entropy` the device misses. Always true when it compiles.
template <class Device, class Element>
consteval bool explain_softmax_cross_entropy() {
  static_assert(
      has_softmax_cross_entropy<Device, Element>,
      "gradus: the device lacks a kernel of the network: overload loss_sums softmax_cross_entropy_loss(Device&, "
      "index_t rows, index_t classes, const Element* logits, const std::int32_t* labels, double scale, Element* "
      "dlogits); for gradus::cuda include gradus/kernels/cuda.cuh");
  return true;
}

}  // namespace gradus::kernels

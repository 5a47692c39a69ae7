// SPDX-License-Identifier: BSL-1.0
//
// The contract of softmax cross-entropy kernels: their sums and the functions that devices overload.
#pragma once

#include "gradus/core/index.hpp"

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

// Every device D in the library overloads, for network elements E:
//
//   loss_sums softmax_cross_entropy_loss(D&, index_t rows, index_t classes, const E* logits,
//                                        const std::int32_t* labels, double scale, E* dlogits);
//   void softmax(D&, index_t rows, index_t classes, const E* logits, E* probabilities);
//
// On an asynchronous device, softmax_cross_entropy_loss may return zeros. The device then overloads
//
//   loss_sums take_loss_sums(D&);
//
// which waits for the sums of the last call and returns them. The network calls it after it has enqueued the rest of
// the step. For a loss scale whose numbers are in the device's memory, the device may also overload
//
//   void use_loss_scale(D&, const loss_scale&);
//
// which makes numbers[scale], read when the kernel runs, one more factor of the next loss's dlogits, and
//
//   void apply_loss_scale(D&, index_t count, E* gradient);
//
// which multiplies the gradient by it if the loss of a program computed the gradient, without that factor.
//
// dlogits (rows, classes) (null: not needed) is overwritten with scale * (softmax(logits) - onehot(labels)); scale is
// the loss scale's factor / (examples of the global batch). Labels are in [0, classes). A logit may be minus infinity:
// its probability is 0. If a logit is NaN or infinity, or all are minus infinity, the row's loss, gradient and
// probabilities are NaN, and the row may count as correct or not. dlogits may be logits, and so may probabilities.

}  // namespace gradus::kernels

// SPDX-License-Identifier: BSL-1.0
//
// Softmax cross-entropy: what a device computes and returns.
#pragma once

#include "gradus/core/index.hpp"

namespace gradus::kernels {

/// Sums over the rows of a batch; divide by the number of examples for means.
struct loss_sums {
  double loss = 0;      ///< sum of the examples' losses, in nats
  index_t correct = 0;  ///< examples whose largest logit (the first one of equals) is at their label

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
// A device whose work goes on while the host does may return zeros, and overload
//
//   loss_sums take_loss_sums(D&);
//
// which waits for the sums of the last call and returns them: the network asks for them when it has given the device
// the rest of the step. It may also overload, for a loss scale of which the numbers lie in its own memory,
//
//   void use_loss_scale(D&, const loss_scale&);
//
// after which numbers[scale], read when the work is done, is one more factor of the next loss's dlogits, and
//
//   void apply_loss_scale(D&, index_t count, E* gradient);
//
// which multiplies the gradient by it where what computed the loss was no kernel that knows of it, but a program's own.
//
// dlogits (null: not wanted) = scale * (softmax(logits) - onehot(labels)), of (rows, classes), overwritten; scale is
// the loss scale's factor / (examples of the global batch). Labels lie in [0, classes). A logit may be minus infinity:
// its probability is 0. Where one is NaN or infinity, or all are minus infinity, the row's loss, gradient and
// probabilities are NaN, and it may count as correct or not. dlogits may be logits, and probabilities too.

}  // namespace gradus::kernels

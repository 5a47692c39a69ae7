// SPDX-License-Identifier: BSL-1.0
//
// The contract of softmax cross-entropy kernels: their sums and the functions that devices overload.
#pragma once

#include <concepts>  // std::same_as
#include <cstdint>   // std::int32_t

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"

namespace gradus::kernels {

/// Sums over a batch. Divide the loss by the number of examples for its mean, and `correct` by `labels`.
struct loss_sums {
  double loss = 0;      ///< sum of the examples' losses
  index_t correct = 0;  ///< labels for which the largest logit (the first of equals) is that of the label
  index_t labels = 0;   ///< labels that were compared: of examples or of pixels; 0 where the targets are real numbers

  /// Adds the sums of other rows.
  constexpr loss_sums& operator+=(const loss_sums& other) noexcept {
    loss += other.loss;
    correct += other.correct;
    labels += other.labels;
    return *this;
  }
};

/// Logits with a label for each pixel, and how their losses are added up.
template <class Number>
struct pixel_cross_entropy {
  index_t examples = 0;                   ///< images
  index_t classes = 0;                    ///< logits of a pixel
  index_t pixels = 1;                     ///< of an example
  bool channels_last = false;             ///< logits (examples, pixels, classes) instead of (examples, classes, pixels)
  double label_smoothing = 0;             ///< in [0, 1): the part of a label that is spread evenly over all classes
  const Number* class_weights = nullptr;  ///< (classes) in the memory of the device, or null: 1
  const Number* example_weights = nullptr;  ///< (examples) in the memory of the device, or null: 1
  bool ignores = false;                     ///< pixels whose label is `ignored_label` have no loss
  std::int32_t ignored_label = 0;           ///< used if `ignores`
};

/// A device that computes the loss of labeled pixels; nn::softmax_cross_entropy asks for it where the scores are
/// images, or labels are smoothed or weighted.
///
/// pixel_cross_entropy_loss returns the sums over the examples, where the loss of an example is the mean over its
/// pixels (ignored ones included, with a loss of 0), times its weight. With s the label smoothing, w the class weights
/// and p = softmax(z), the loss of a pixel with label t is
///
///   -(1 - s) * w(t) * log p(t) - s / classes * sum over k of w(k) * log p(k)
///
/// as torch.nn.functional.cross_entropy with reduction = "sum". Unless it is null, dlogits, in the order of the logits,
/// is overwritten with the gradient of the sum times `scale`. dlogits may be logits. Labels (examples, pixels) are in
/// [0, classes) or ignored.
template <class Device, class Element>
concept has_pixel_cross_entropy = requires(Device& device,
                                           const pixel_cross_entropy<parameter_element_t<Element>>& shape,
                                           const Element* logits, const std::int32_t* labels, double scale,
                                           Element* dlogits) {
  { pixel_cross_entropy_loss(device, shape, logits, labels, scale, dlogits) } -> std::same_as<loss_sums>;
};

/// A device that computes the loss of a network; nn::softmax_cross_entropy asks for it.
///
/// softmax_cross_entropy_loss returns the sums over the rows of logits (rows, classes) with labels (rows) in [0,
/// classes). Unless it is null, dlogits (rows, classes) is overwritten with scale * (softmax(logits) - onehot(labels));
/// scale is the loss scale's factor / (examples of the global batch). dlogits may be logits.
///
/// A logit may be minus infinity: its probability is 0. If a logit is NaN or infinity, or all are minus infinity, the
/// row's loss and gradient are NaN, and the row may count as correct or not.
template <class Device, class Element>
concept has_softmax_cross_entropy = requires(Device& device, index_t rows, index_t classes, const Element* logits,
                                             const std::int32_t* labels, double scale, Element* dlogits) {
  { softmax_cross_entropy_loss(device, rows, classes, logits, labels, scale, dlogits) } -> std::same_as<loss_sums>;
};

/// A device that computes probabilities: softmax overwrites probabilities (rows, classes) with
/// exp(logit) / (sum of exp over the row) of logits (rows, classes). Minus infinity, infinity and NaN are as for
/// has_softmax_cross_entropy. probabilities may be logits.
template <class Device, class Element>
concept has_softmax = requires(Device& device, index_t rows, index_t classes, const Element* logits,
                               Element* probabilities) {
  softmax(device, rows, classes, logits, probabilities);
};

/// An asynchronous device whose softmax_cross_entropy_loss may return zeros. Not required. take_loss_sums waits for the
/// sums of the last call and returns them. The network calls it after it has enqueued the rest of the step.
template <class Device>
concept has_deferred_loss_sums = requires(Device& device) {
  { take_loss_sums(device) } -> std::same_as<loss_sums>;
};

/// A device that reads the numbers of a loss scale in its own memory. Not required. use_loss_scale makes
/// numbers[scale], read when the kernel runs, one more factor of the next loss's dlogits.
template <class Device>
concept has_loss_scale_use = requires(Device& device, const loss_scale& scale) {
  use_loss_scale(device, scale);
};

/// A device that multiplies gradients of losses of the program by the scale of use_loss_scale. Not required.
/// apply_loss_scale multiplies gradient (count), which such a loss computed without the factor.
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

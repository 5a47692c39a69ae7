// SPDX-License-Identifier: BSL-1.0
//
// The contract of kernels that compute the loss of the cosine similarity.
#pragma once

#include <concepts>  // std::same_as

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/softmax.hpp"

namespace gradus::kernels {

/// Vectors of scores and targets, one for each pixel, and how their losses are added up.
template <class Number>
struct cosine_vectors {
  index_t examples = 0;                     ///< images
  index_t channels = 0;                     ///< numbers of a vector
  index_t pixels = 1;                       ///< vectors of an example
  bool channels_last = false;               ///< (examples, pixels, channels) instead of (examples, channels, pixels)
  double epsilon = 1e-8;                    ///< the least norm by which is divided, above 0
  const Number* example_weights = nullptr;  ///< (examples) in the memory of the device, or null: 1
};

/// A device that computes the loss of nn::cosine_similarity.
///
/// cosine_loss returns the sum over the examples of the mean over the pixels of 1 - cos(y, t), times the weight of the
/// example, with cos(y, t) = y * t / (max(|y|, epsilon) * max(|t|, epsilon)). Unless it is null, gradient, in the order
/// of the scores, is overwritten with the derivative of the sum by the scores times `scale`; max(|y|, epsilon) is
/// differentiated as |y|, and |y| at 0 as 0, as in torch.nn.functional.cosine_similarity. gradient may be scores.
/// Norms and products are summed in double. The device may deliver the sum later (has_deferred_loss_sums).
template <class Device, class Element>
concept has_cosine_loss = requires(Device& device, const cosine_vectors<parameter_element_t<Element>>& shape,
                                   const Element* scores, const parameter_element_t<Element>* targets, double scale,
                                   Element* gradient) {
  { cosine_loss(device, shape, scores, targets, scale, gradient) } -> std::same_as<loss_sums>;
};

/// Says that the device lacks the overload of `has_cosine_loss`. Always true when it compiles.
template <class Device, class Element>
consteval bool explain_cosine_loss() {
  static_assert(has_cosine_loss<Device, Element>,
                "gradus: the device lacks the kernel of nn::cosine_similarity: overload loss_sums cosine_loss(Device&, "
                "const kernels::cosine_vectors<parameter_element_t<Element>>&, const Element* scores, const "
                "parameter_element_t<Element>* targets, double scale, Element* gradient); for gradus::cuda include "
                "gradus/kernels/cuda/cosine.cuh");
  return true;
}

}  // namespace gradus::kernels

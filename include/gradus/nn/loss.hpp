// SPDX-License-Identifier: BSL-1.0
//
// The interface of a loss at the end of a network, and the softmax cross-entropy.
#pragma once

#include <cstdint>      // std::int32_t
#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/kernels/softmax.hpp"
#include "gradus/nn/image_batch.hpp"
#include "gradus/nn/targets.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::nn {

/// A loss of scores and targets, without the type of the layout: what a network calls.
template <class Element, class Device>
class loss_base {
 public:
  loss_base() = default;
  loss_base(const loss_base&) = delete;
  loss_base& operator=(const loss_base&) = delete;
  virtual ~loss_base() = default;

  /// The kind of loss in messages: "softmax_cross_entropy".
  [[nodiscard]] virtual std::string_view kind() const noexcept = 0;

  /// Checks and stores the shape of one example's scores.
  /// @throws shape_error when the loss cannot use scores of this shape
  virtual void infer(const value_shape& scores) = 0;

  /// Which targets compute reads: by default a class for each example. The network checks that a batch has them, and
  /// no others. @pre infer was called
  [[nodiscard]] virtual target_description targets() const { return {.labels = 1}; }

  /// Returns the sums over the batch. Unless `gradient` is without memory, writes scale * d(sum of losses)/d(scores) to
  /// it.
  /// @param batch_targets    the targets of the batch
  /// @param scale     factor of the gradient. A loss scale in the device's memory is not part of it: the network
  ///                  multiplies by that afterwards, unless a kernel of the library has done so.
  /// @param gradient  of the shape of the scores; without memory in evaluation
  /// @note  The device may deliver the sums later (kernels/softmax.hpp).
  virtual kernels::loss_sums compute(const image_batch<const Element, Device>& scores,
                                     const nn::targets<Element, Device>& batch_targets, double scale,
                                     const image_batch<Element, Device>& gradient) = 0;
};

/// The base of losses. To add a loss, write an aggregate of options with a nested
/// `template <class Element, class Layout, class Device> class loss` that derives from this class and whose constructor
/// takes the options. A loss that computes with expressions on views of scores and gradient runs on every device.
template <class Element, class Layout, class Device>
class loss_function : public loss_base<Element, Device> {
 protected:
  /// A view of the scores or of their gradient, for kernels and expressions: `base::view(scores)`.
  template <class Any>
  [[nodiscard]] static image_view<Any, Layout, Device> view(const image_batch<Any, Device>& images) noexcept {
    return {images.device(), images.data(), images.extents()};
  }
};

/// The cross-entropy of softmax(scores) and the labels, in nats.
///
///   symbol | meaning | shape
///   z      | scores  | (N, K)
///   t      | labels  | (N)      class indices in [0, K)
///   loss   | sum over n of -log(exp(z(n, t(n))) / sum_j exp(z(n, j)))
///
/// Gradient: d(loss)/dz(n, j) = softmax(z)(n, j) - [j = t(n)]   (N, K)   overwritten, times `scale`
///
/// @throws shape_error when the scores are not a vector for each example
struct softmax_cross_entropy {
  /// The loss for one element type, layout and device.
  template <class Element, class Layout, class Device>
  class loss;
};

namespace detail {

/// @throws shape_error unless the value is a vector of scores, one for each class
inline void require_class_scores(std::string_view kind, const value_shape& scores) {
  if (scores.height != 1 || scores.width != 1 || scores.channels < 1) {
    raise<shape_error>(kind, "a vector of scores, one for each class", describe(scores),
                       "end the network with nn::dense{.out_features = classes}");
  }
}

/// @throws shape_error when a label is not in [0, classes)
GRADUS_NEVER_INLINE inline void require_labels(std::string_view kind, std::span<const std::int32_t> labels,
                                               index_t classes) {
  for (const std::int32_t label : labels) {
    if (label < 0 || label >= classes) {
      raise<shape_error>(kind, {"labels in [0, ", classes, ")"}, {label},
                         "the last layer needs one score for each class: compare its out_features with the data set");
    }
  }
}

}  // namespace detail

/// The loss for one element type, layout and device.
template <class Element, class Layout, class Device>
class softmax_cross_entropy::loss final : public loss_function<Element, Layout, Device> {
  static_assert(kernels::explain_softmax_cross_entropy<Device, Element>());

 public:
  /// The options have no members.
  explicit loss(const softmax_cross_entropy& /*options*/) {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "softmax_cross_entropy"; }

  void infer(const value_shape& scores) override {
    detail::require_class_scores(kind(), scores);
    classes_ = scores.channels;
  }

  kernels::loss_sums compute(const image_batch<const Element, Device>& scores,
                             const nn::targets<Element, Device>& batch_targets, double scale,
                             const image_batch<Element, Device>& gradient) override {
    if constexpr (!has_memory_of_its_own<Device>) {
      detail::require_labels(kind(), batch_targets.labels, classes_);
    }
    return softmax_cross_entropy_loss(scores.device(), scores.extent(0), classes_, scores.data(),
                                      batch_targets.labels.data(), scale, gradient.data());
  }

 private:
  index_t classes_ = 0;
};

}  // namespace gradus::nn

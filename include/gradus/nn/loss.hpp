// SPDX-License-Identifier: BSL-1.0
//
// The loss at the end of a network.
#pragma once

#include <cstdint>      // std::int32_t
#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/kernels/softmax.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::nn {

/// The run-time interface of a loss over (examples, classes) scores with one integer label an example. A loss of a
/// program's own is an aggregate of options with a nested template `loss` that derives from it; it may compute with
/// expressions on views of scores and gradient, and is the same for all devices then.
template <class Element, class Layout, class Device>
class loss_function {
 public:
  loss_function() = default;
  loss_function(const loss_function&) = delete;
  loss_function& operator=(const loss_function&) = delete;
  virtual ~loss_function() = default;

  [[nodiscard]] virtual std::string_view kind() const noexcept = 0;

  /// @throws shape_error when scores of this shape make no sense to the loss
  virtual void infer(const value_shape& scores) = 0;

  /// Sums over the batch; writes scale * d(sum of losses)/d(scores), in the order of the scores, unless gradient is
  /// null. Labels are in the memory of the device. A loss scale that lies there is not part of `scale`: the network
  /// multiplies by it afterwards, unless a kernel of the library has done so. Sums may be left to the device
  /// (kernels/softmax.hpp).
  virtual kernels::loss_sums compute(Device& device, image_view<const Element, Layout, Device> scores,
                                     std::span<const std::int32_t> labels, double scale, Element* gradient) = 0;
};

/// The cross-entropy of softmax(scores) and the labels, in nats: -log(exp(z_label) / sum_j exp(z_j)).
struct softmax_cross_entropy {
  template <class Element, class Layout, class Device>
  class loss;
};

namespace detail {

/// @throws shape_error when the value is no vector of scores, one for each class
GRADUS_COLD inline void require_class_scores(std::string_view kind, const value_shape& scores) {
  if (scores.height != 1 || scores.width != 1 || scores.channels < 1) {
    raise<shape_error>(kind, "a vector of scores, one for each class", describe(scores),
                       "end the network with nn::dense{.out_features = classes}");
  }
}

/// @throws shape_error when a label is no class
GRADUS_NEVER_INLINE inline void require_labels(std::string_view kind, std::span<const std::int32_t> labels,
                                               index_t classes) {
  for (const std::int32_t label : labels) {
    if (label < 0 || label >= classes) {
      raise<shape_error>(kind, {"labels in [0, ", classes, ")"}, {label},
                         "the last layer has one score a class: compare its out_features with the data set");
    }
  }
}

}  // namespace detail

template <class Element, class Layout, class Device>
class softmax_cross_entropy::loss final : public loss_function<Element, Layout, Device> {
  static_assert(kernels::explain_softmax_cross_entropy<Device, Element>());

 public:
  explicit loss(const softmax_cross_entropy& /*options*/) {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "softmax_cross_entropy"; }

  void infer(const value_shape& scores) override {
    detail::require_class_scores(kind(), scores);
    classes_ = scores.channels;
  }

  kernels::loss_sums compute(Device& device, image_view<const Element, Layout, Device> scores,
                             std::span<const std::int32_t> labels, double scale, Element* gradient) override {
    if constexpr (!has_memory_of_its_own<Device>) {
      detail::require_labels(kind(), labels, classes_);
    }
    return softmax_cross_entropy_loss(device, scores.extent(0), classes_, scores.data(), labels.data(), scale,
                                      gradient);
  }

 private:
  index_t classes_ = 0;
};

}  // namespace gradus::nn

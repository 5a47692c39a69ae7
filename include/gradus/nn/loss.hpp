// SPDX-License-Identifier: BSL-1.0
//
// The interface of a loss at the end of a network, and the softmax cross-entropy.
#pragma once

#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t
#include <memory>       // std::make_unique, std::unique_ptr
#include <optional>     // std::optional
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/compiled.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/kernels/softmax.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/nn/attribute_visitor.hpp"
#include "gradus/nn/network/image_batch.hpp"
#include "gradus/nn/targets.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/tensor/instances.hpp"
#include "gradus/tensor/tensor.hpp"
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

  /// Tells `visit` the options of the loss. Ranks that train together compare them, and so do checkpoints; those of a
  /// loss that tells nothing are not compared. @pre infer was called
  virtual void attributes(attribute_visitor& /*visit*/) const {}

  /// Called once after infer, with the device that runs the network: the place to take memory.
  virtual void prepare(Device& /*device*/) {}

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

namespace detail {

/// The loss of a description: a function of its own, so that it can be compiled once.
template <class Description, class Element, class Layout, class Device>
[[nodiscard]] std::unique_ptr<loss_base<Element, Device>> make_loss(const Description& description) {
  return std::make_unique<typename Description::template loss<Element, Layout, Device>>(description);
}

}  // namespace detail

/// By what softmax_cross_entropy divides.
enum class label_reduction : unsigned char {
  pixels,  ///< all pixels of an example, also those that are ignored: the same on any number of ranks
  valid    ///< the class weights of the labels that are not ignored, in the batch: PyTorch's reduction = "mean"
};

/// The cross-entropy of softmax(scores) and the labels, in nats.
///
///   symbol | meaning                         | shape
///   z      | scores, K classes               | (N, K), or (N, K, H, W) for images
///   t      | labels                          | (N), or (N, H, W): class indices in [0, K)
///   p      | softmax over the classes        | as z
///   w      | class weights                   | (K)   1 without
///   loss   | mean over the pixels of -(1 - s) w(t) log p(t) - s / K * sum over k of w(k) log p(k),
///          | summed over n, times the weight of the example; s: label_smoothing
///
/// Gradient without options: d(loss)/dz(n, j) = p(n, j) - [j = t(n)], overwritten, times `scale`.
///
/// It is torch.nn.functional.cross_entropy with reduction = "sum", divided by the number of pixels of an example.
/// Ignored pixels have no loss and no gradient, and count as pixels. PyTorch's "mean" divides by the sum of the class
/// weights of the valid labels instead: label_reduction::valid does so in the batch that a rank computes at a time. As
/// with PyTorch's DistributedDataParallel, each rank and each micro-batch has a mean of its own, and the result depends
/// on how a batch is divided. A batch without a valid label has the loss 0. It takes a device whose memory the host
/// reads.
///
/// @throws shape_error (network::loss) when there are class weights and not one for each class
/// @throws configuration_error (network::loss) when label_smoothing is not in [0, 1) or a weight is not a finite number
/// of
///         at least 0
struct softmax_cross_entropy {
  double label_smoothing = 0;  ///< in [0, 1): spread evenly over all classes (Szegedy et al. 2016, section 7)
  std::vector<double> class_weights = {};               ///< one for each class, or empty: 1
  std::optional<std::int32_t> ignored_label = {};       ///< labels with this number are ignored
  label_reduction reduction = label_reduction::pixels;  ///< by what the losses of the labels are divided

  /// The loss for one element type, layout and device.
  template <class Element, class Layout, class Device>
  class loss;
};

namespace detail {

/// @throws shape_error, configuration_error when the options do not fit the scores
void require_cross_entropy(std::string_view kind, const softmax_cross_entropy& options, const value_shape& scores);

/// As loss_base::attributes.
void tell_cross_entropy(attribute_visitor& visit, const softmax_cross_entropy& options);

/// @throws shape_error when a label is not in [0, classes)
void require_labels(std::string_view kind, std::span<const std::int32_t> labels, index_t classes,
                    const std::optional<std::int32_t>& ignored);

/// What turns a mean over `labels` labels into one over the weights of those that are valid; 0 if none is.
[[nodiscard]] double valid_label_factor(std::span<const std::int32_t> all, const softmax_cross_entropy& options,
                                        double labels) noexcept;

/// The softmax cross-entropy, without the type of the layout. It is compiled once for all layouts.
template <class Element, class Device>
class cross_entropy : public loss_base<Element, Device> {
  static_assert(kernels::explain_softmax_cross_entropy<Device, Element>());

 public:
  /// @param strides  of images in the layout
  GRADUS_NEVER_INLINE cross_entropy(const softmax_cross_entropy& options,
                                    std::array<index_t, 4> (*strides)(const extents<4>&) noexcept)
      : options_{options}, strides_{strides} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "softmax_cross_entropy"; }

  void infer(const value_shape& scores) override {
    require_cross_entropy(kind(), options_, scores);
    shape_ = scores;
  }

  void attributes(attribute_visitor& visit) const override { tell_cross_entropy(visit, options_); }

  void prepare(Device& device) override {
    if (!options_.class_weights.empty()) {
      std::vector<number> weights(options_.class_weights.begin(), options_.class_weights.end());
      class_weights_.emplace(device, extents<1>{shape_.channels});
      device.copy_from_host(class_weights_->data(), weights.data(), weights.size() * sizeof(number));
    }
  }

  /// With an ignored label, a data set may count it as a class: then the number of classes is not compared.
  [[nodiscard]] target_description targets() const override {
    return {.labels = shape_.height * shape_.width, .classes = options_.ignored_label ? 0 : shape_.channels};
  }

  kernels::loss_sums compute(const image_batch<const Element, Device>& scores,
                             const nn::targets<Element, Device>& batch_targets, double scale,
                             const image_batch<Element, Device>& gradient) override {
    if constexpr (!has_memory_of_its_own<Device>) {
      require_labels(kind(), batch_targets.labels, shape_.channels, options_.ignored_label);
      if (options_.reduction == label_reduction::valid) {
        const double factor =
            valid_label_factor(batch_targets.labels, options_, static_cast<double>(batch_targets.labels.size()));
        kernels::loss_sums sums = sums_of(scores, batch_targets, scale * factor, gradient);
        sums.loss *= factor;
        return sums;
      }
    } else if (options_.reduction == label_reduction::valid) {
      raise<configuration_error>(kind(), "a device whose memory the host reads, for label_reduction::valid",
                                 "a device with memory of its own",
                                 "label_reduction::pixels divides by the number of pixels");
    }
    return sums_of(scores, batch_targets, scale, gradient);
  }

 private:
  kernels::loss_sums sums_of(const image_batch<const Element, Device>& scores,
                             const nn::targets<Element, Device>& batch_targets, double scale,
                             const image_batch<Element, Device>& gradient) {
    const bool plain = targets().labels == 1 && options_.label_smoothing == 0 && options_.class_weights.empty() &&
                       !options_.ignored_label && batch_targets.weights.empty();
    if (plain) {
      return softmax_cross_entropy_loss(scores.device(), scores.extent(0), shape_.channels, scores.data(),
                                        batch_targets.labels.data(), scale, gradient.data());
    }
    if constexpr (kernels::has_pixel_cross_entropy<Device, Element>) {
      const kernels::pixel_cross_entropy<number> shape{
          .examples = scores.extent(0),
          .classes = shape_.channels,
          .pixels = targets().labels,
          .channels_last = strides_(scores.extents())[1] == 1 && shape_.channels > 1,
          .label_smoothing = options_.label_smoothing,
          .class_weights = class_weights_ ? class_weights_->data() : nullptr,
          .example_weights = batch_targets.weights.empty() ? nullptr : batch_targets.weights.data(),
          .ignores = options_.ignored_label.has_value(),
          .ignored_label = options_.ignored_label.value_or(0)};
      return pixel_cross_entropy_loss(scores.device(), shape, scores.data(), batch_targets.labels.data(), scale,
                                      gradient.data());
    } else {
      raise<configuration_error>(kind(), "a device with the kernel pixel_cross_entropy_loss", "one without",
                                 "see kernels::has_pixel_cross_entropy; without options and weights it is not needed");
    }
  }

  using number = parameter_element_t<Element>;

  softmax_cross_entropy options_;
  std::array<index_t, 4> (*strides_)(const extents<4>&) noexcept;
  value_shape shape_;
  std::optional<tensor<number, 1, row_major, Device>> class_weights_;
};

}  // namespace detail

/// The loss for one element type, layout and device.
template <class Element, class Layout, class Device>
class softmax_cross_entropy::loss final : public detail::cross_entropy<Element, Device> {
 public:
  /// @throws nothing that copying the options does not
  explicit loss(const softmax_cross_entropy& options)
      : detail::cross_entropy<Element, Device>{options, &dense_strides<Layout, 4>} {}
};

}  // namespace gradus::nn

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn::detail {

GRADUS_INLINE void require_cross_entropy(std::string_view kind, const softmax_cross_entropy& options,
                                         const value_shape& scores) {
  if (scores.flattened) {
    raise<shape_error>(kind, "a vector of scores, one for each class, or an image of them", describe(scores),
                       "end the network with nn::dense{.out_features = classes}");
  }
  if (!(options.label_smoothing >= 0 && options.label_smoothing < 1)) {
    raise<configuration_error>(kind, "a label_smoothing in [0, 1)", {options.label_smoothing});
  }
  if (!options.class_weights.empty() && static_cast<index_t>(options.class_weights.size()) != scores.channels) {
    raise<shape_error>(kind, {"a weight for each of ", scores.channels, " classes, or none"},
                       {options.class_weights.size(), " weights"},
                       "class_weights has the order of the scores; the scores have a channel for each class");
  }
  for (const double weight : options.class_weights) {
    if (!(weight >= 0) || !is_finite(weight)) {
      raise<configuration_error>(kind, "finite class weights of at least 0", {weight});
    }
  }
}

GRADUS_INLINE void tell_cross_entropy(attribute_visitor& visit, const softmax_cross_entropy& options) {
  visit.real("label_smoothing", options.label_smoothing);
  for (std::size_t k = 0; k < options.class_weights.size(); ++k) {
    visit.real(gradus::join({"class_weights[", k, "]"}), options.class_weights[k]);
  }
  if (options.ignored_label) {
    visit.integer("ignored_label", *options.ignored_label);
  }
  visit.text("reduction", options.reduction == label_reduction::valid ? "valid" : "pixels");
}

GRADUS_NEVER_INLINE GRADUS_INLINE void require_labels(std::string_view kind, std::span<const std::int32_t> labels,
                                                      index_t classes, const std::optional<std::int32_t>& ignored) {
  for (const std::int32_t label : labels) {
    if ((label < 0 || label >= classes) && label != ignored) {
      const std::string also = ignored ? gradus::join({" or the ignored_label ", *ignored}) : "";
      raise<shape_error>(
          kind, {"labels in [0, ", classes, ")", also}, {label},
          {label < 0 ? ""
                     : "the last layer needs one score for each class: compare its out_features with the "
                       "data set; ",
           "if ", label, " is no class, write nn::softmax_cross_entropy{.ignored_label = ", label, "}"});
    }
  }
}

GRADUS_INLINE double valid_label_factor(std::span<const std::int32_t> all, const softmax_cross_entropy& options,
                                        double labels) noexcept {
  double weights = 0;
  for (const std::int32_t label : all) {
    if (label != options.ignored_label) {
      weights += options.class_weights.empty() ? 1.0 : options.class_weights[static_cast<std::size_t>(label)];
    }
  }
  return weights > 0 ? labels / weights : 0.0;
}

}  // namespace gradus::nn::detail
#endif

// A loss of the library, by its options, as GRADUS_COMPILED_LAYER.
#ifdef GRADUS_HAS_INSTANCES
#define GRADUS_COMPILED_LOSS(description) GRADUS_EACH_LAYOUT(GRADUS_DETAIL_LOSS, description)
#define GRADUS_DETAIL_LOSS(instance, layout, element, description)          \
  instance(std::unique_ptr<::gradus::nn::loss_base<element, ::gradus::cpu>> \
               gradus::nn::detail::make_loss<description, element, layout, ::gradus::cpu>(const description&))
#else
#define GRADUS_COMPILED_LOSS(description)
#endif

GRADUS_COMPILED_LOSS(::gradus::nn::softmax_cross_entropy)

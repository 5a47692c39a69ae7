// SPDX-License-Identifier: BSL-1.0
//
// Losses of real targets, and losses from expressions. For gradus::cuda include gradus/kernels/cuda/formula.cuh, also
// gradus/kernels/cuda/cosine.cuh for the cosine similarity and gradus/kernels/cuda/shaping.cuh for soft labels.
#pragma once

#include <cmath>             // std::isfinite
#include <cstddef>           // std::size_t
#include <initializer_list>  // std::initializer_list
#include <optional>          // std::optional
#include <span>              // std::span
#include <string_view>       // std::string_view
#include <utility>           // std::declval, std::move
#include <vector>            // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/kernels/channel_softmax.hpp"
#include "gradus/kernels/cosine.hpp"
#include "gradus/kernels/cpu/channel_softmax.hpp"
#include "gradus/kernels/cpu/cosine.hpp"
#include "gradus/kernels/cpu/formula.hpp"
#include "gradus/kernels/formula.hpp"
#include "gradus/kernels/softmax.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/nn/attribute_visitor.hpp"
#include "gradus/nn/loss.hpp"
#include "gradus/nn/network/image_batch.hpp"
#include "gradus/nn/targets.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/tensor/formula.hpp"
#include "gradus/tensor/functions.hpp"
#include "gradus/tensor/tensor.hpp"

namespace gradus::nn {

namespace detail {
template <class Formula, class Element, class Device>
class formula_loss_of;
}  // namespace detail

/// Options of a loss that is a function of scores and targets; nn::loss_of makes them.
///
///   symbol | meaning                  | shape
///   y      | scores                   | (N, C, H, W)
///   t      | real targets             | (N, C, H, W)
///   w      | weights of the examples  | (N)   1 without weights
///   loss   | sum over n of w(n) * f(y(n), t(n)), where f is a sum or a mean over the elements of an example
///
/// The network divides by the number of examples of the global batch. So with a mean the loss is that of PyTorch with
/// reduction = "mean", and with a sum its sum over the elements, divided by the examples.
template <class Formula>
struct loss_of_options {
  Formula function;                   ///< f
  std::string_view kind = "loss_of";  ///< the kind of loss in messages; it must outlive the loss

  /// The loss for one element type and device; all layouts share it.
  template <class Element, class Layout, class Device>
  using loss = detail::formula_loss_of<Formula, Element, Device>;
};

namespace detail {

/// Tells several numbers: "positive_weight[2]".
inline void tell_numbers(attribute_visitor& visit, std::string_view name, std::span<const double> numbers) {
  for (std::size_t k = 0; k < numbers.size(); ++k) {
    visit.real(gradus::join({name, "[", k, "]"}), numbers[k]);
  }
}

template <class Formula, class Element, class Device>
class formula_loss_of : public loss_base<Element, Device> {
  static_assert(kernels::explain_formula_loss<Device, Element>());

 public:
  explicit formula_loss_of(const loss_of_options<Formula>& options)
      : kind_{options.kind}, function_{options.function} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return kind_; }

  void infer(const value_shape& scores) override { shape_ = {scores.channels, scores.height, scores.width}; }

  void attributes(attribute_visitor& visit) const override {
    tell_numbers(visit, "numbers of the function", function_.numbers());
  }

  [[nodiscard]] target_description targets() const override { return {.labels = 0, .values = shape_}; }

  kernels::loss_sums compute(const image_batch<const Element, Device>& scores,
                             const nn::targets<Element, Device>& batch_targets, double scale,
                             const image_batch<Element, Device>& gradient) override {
    return formula_loss(scores.device(), scores.extent(0), shape_.size(), function_, scores.data(),
                        batch_targets.values.data(),
                        batch_targets.weights.empty() ? nullptr : batch_targets.weights.data(), scale, gradient.data());
  }

 private:
  std::string_view kind_;
  Formula function_;
  value_shape shape_;
};

template <class Formula>
[[nodiscard]] loss_of_options<Formula> loss_of_kind(const Formula& function, std::string_view kind) {
  return {function, kind};
}

/// The options that the member `function()` of a loss returns.
template <class Description>
using loss_function_options = decltype(std::declval<const Description&>().function());

/// The loss of a description whose member `function()` returns loss_of_options.
template <class Description, class Element, class Layout, class Device>
class described_loss final : public loss_function_options<Description>::template loss<Element, Layout, Device> {
 public:
  explicit described_loss(const Description& options)
      : loss_function_options<Description>::template loss<Element, Layout, Device>(options.function()) {}
};

}  // namespace detail

/// A loss from an expression of scores y and targets t:
///
///   net.loss(nn::loss_of([](auto y, auto t) { return mean(square(y - t)); }), y);
///
/// The function is called once, with variables in place of tensors. The compiler differentiates it by the scores; value
/// and gradient are computed in one pass over memory. It may use what nn::elementwise takes, and ends with a mean or
/// sum over all elements of an example.
template <class Function>
[[nodiscard]] auto loss_of(const Function& function) {
  return detail::loss_of_kind(loss_formula_of(function), "loss_of");
}

/// The mean over the elements of (y - t)^2. torch.nn.MSELoss.
struct mean_squared_error {
  /// The function of scores and targets.
  [[nodiscard]] auto function() const {
    return detail::loss_of_kind(loss_formula_of([](auto y, auto t) { return mean(square(y - t)); }),
                                "mean_squared_error");
  }
  /// The loss for one element type and device.
  template <class Element, class Layout, class Device>
  using loss = detail::described_loss<mean_squared_error, Element, Layout, Device>;
};

/// The mean over the elements of |y - t|; the derivative at 0 is 0. torch.nn.L1Loss.
struct mean_absolute_error {
  /// The function of scores and targets.
  [[nodiscard]] auto function() const {
    return detail::loss_of_kind(loss_formula_of([](auto y, auto t) { return mean(abs(y - t)); }),
                                "mean_absolute_error");
  }
  /// The loss for one element type and device.
  template <class Element, class Layout, class Device>
  using loss = detail::described_loss<mean_absolute_error, Element, Layout, Device>;
};

/// The mean over the elements of (y - t)^2 / 2 where |y - t| <= delta, else delta * (|y - t| - delta / 2). (Huber 1964)
/// torch.nn.HuberLoss.
/// @throws configuration_error (network::loss) when delta is not above 0
struct huber {
  double delta = 1.0;  ///< above 0: where the loss becomes linear

  /// The function of scores and targets.
  [[nodiscard]] auto function() const {
    if (!(delta > 0) || !std::isfinite(delta)) {
      raise<configuration_error>("huber", "a finite delta above 0", {delta});
    }
    return detail::loss_of_kind(loss_formula_of([d = delta](auto y, auto t) {
                                  const auto error = abs(y - t);
                                  const auto low = min(error, d);  // its square does not overflow
                                  return mean(low * (error - 0.5 * low));
                                }),
                                "huber");
  }
  /// The loss for one element type and device.
  template <class Element, class Layout, class Device>
  using loss = detail::described_loss<huber, Element, Layout, Device>;
};

/// One number for all channels, or one for each of them, in their order: `.positive_weight = 2.5` or
/// `.positive_weight = {0.5, 1, 4}`.
class channel_numbers {
 public:
  /// One number for all channels.
  channel_numbers(double all) : values_{all} {}
  /// One number for each channel.
  channel_numbers(std::initializer_list<double> each) : values_{each} {}
  /// One number for each channel.
  channel_numbers(std::vector<double> each) : values_{std::move(each)} {}

  /// The numbers; a single one is that of all channels.
  [[nodiscard]] const std::vector<double>& values() const noexcept { return values_; }

 private:
  std::vector<double> values_;
};

/// The mean over the elements of -positive_weight * t * log(s) - (1 - t) * log(1 - s), where s = sigmoid(y) and the
/// targets t are in [0, 1]. It is computed from the logits y without overflow. torch.nn.BCEWithLogitsLoss.
/// @throws configuration_error (network::loss) when a positive_weight is not above 0, or there are not as many as the
///         scores have channels
/// @throws shape_error (network::loss) when there are several for flattened images
struct binary_cross_entropy_with_logits {
  /// Above 0: factor of the part of targets that are 1, of all channels or of each (pos_weight).
  channel_numbers positive_weight = 1.0;

  /// The loss for one element type, layout and device.
  template <class Element, class Layout, class Device>
  class loss;
};

namespace detail {

/// Throws unless there is one positive weight, or one for each channel.
inline void require_positive_weights(const std::vector<double>& weights) {
  if (weights.empty()) {
    raise<configuration_error>("binary_cross_entropy_with_logits", "a positive_weight, or one for each channel",
                               "none");
  }
  for (const double weight : weights) {
    if (!(weight > 0) || !std::isfinite(weight)) {
      raise<configuration_error>("binary_cross_entropy_with_logits", "a finite positive_weight above 0", {weight});
    }
  }
}
inline void require_positive_weights(const std::vector<double>& weights, const value_shape& scores) {
  if (weights.size() == 1) {
    return;
  }
  if (scores.flattened) {
    raise<shape_error>("binary_cross_entropy_with_logits", "scores with channels, for a positive_weight of each",
                       describe(scores), "end the network with nn::dense or nn::conv2d");
  }
  if (static_cast<index_t>(weights.size()) != scores.channels) {
    raise<configuration_error>("binary_cross_entropy_with_logits",
                               {"one positive_weight, or one for each of ", scores.channels, " channels"},
                               {weights.size(), " weights"});
  }
}

}  // namespace detail

/// The loss for one element type, layout and device. With weights p of the channels, an element has the target
/// p t / (p t + 1 - t) and the weight p t + 1 - t, which is the same loss.
template <class Element, class Layout, class Device>
class binary_cross_entropy_with_logits::loss final : public loss_function<Element, Layout, Device> {
  static_assert(kernels::explain_formula_loss<Device, Element>());
  using number = parameter_element_t<Element>;

 public:
  /// @throws configuration_error when a weight is not above 0
  explicit loss(const binary_cross_entropy_with_logits& options) : weights_{options.positive_weight.values()} {
    detail::require_positive_weights(weights_);
  }

  [[nodiscard]] std::string_view kind() const noexcept override { return "binary_cross_entropy_with_logits"; }

  void infer(const value_shape& scores) override {
    detail::require_positive_weights(weights_, scores);
    shape_ = scores;
  }

  void attributes(attribute_visitor& visit) const override { detail::tell_numbers(visit, "positive_weight", weights_); }

  void prepare(Device& device) override {
    if (weights_.size() > 1) {
      const std::vector<number> values(weights_.begin(), weights_.end());
      per_channel_.emplace(device, extents<1>{static_cast<index_t>(values.size())});
      device.copy_from_host(per_channel_->data(), values.data(), values.size() * sizeof(number));
    }
  }

  [[nodiscard]] target_description targets() const override {
    return {.labels = 0, .values = {shape_.channels, shape_.height, shape_.width}};
  }

  kernels::loss_sums compute(const image_batch<const Element, Device>& scores,
                             const nn::targets<Element, Device>& batch_targets, double scale,
                             const image_batch<Element, Device>& gradient) override {
    Device& device = scores.device();
    const index_t batch = scores.extent(0);
    const number* const examples = batch_targets.weights.empty() ? nullptr : batch_targets.weights.data();
    const auto formula = loss_formula_of([p = per_channel_ ? 1.0 : weights_[0]](auto y, auto t) {
      return mean(p * t * gradus::softplus(-y) + (1 - t) * gradus::softplus(y));
    });
    if (!per_channel_) {
      return formula_loss(device, batch, shape_.size(), formula, scores.data(), batch_targets.values.data(), examples,
                          scale, gradient.data());
    }
    const index_t count = batch * shape_.size();
    if (!elements_ || elements_->size() < 3 * count) {  // the first batch of this size
      elements_.emplace(device, extents<1>{3 * count});
    }
    number* const targets = elements_->data();
    number* weights = targets + count;
    const index_t pixels = shape_.height * shape_.width;
    const bool channels_last = dense_strides<Layout, 4>(scores.extents())[1] == 1 && shape_.channels > 1;
    const kernels::formula_shape shape{.outer = channels_last ? batch * pixels : batch,
                                       .channels = shape_.channels,
                                       .inner = channels_last ? index_t{1} : pixels};
    const kernels::formula_arguments<number, 1, 1> given{
        .inputs = {batch_targets.values.data()}, .parameters = {per_channel_->data()}, .per_channel = {true}};
    formula_forward(device, shape, formula_of<2>([](auto t, auto p) { return p * t / (p * t + 1 - t); }), given,
                    targets);
    const double share = 1.0 / static_cast<double>(shape_.size());
    formula_forward(device, shape, formula_of<2>([share](auto t, auto p) { return share * (p * t + 1 - t); }), given,
                    weights);
    if (examples != nullptr) {
      const kernels::formula_arguments<number, 1, 1> weighted{
          .inputs = {weights}, .parameters = {examples}, .per_channel = {true}};
      weights += count;
      formula_forward(device, {.outer = 1, .channels = batch, .inner = shape_.size()},
                      formula_of<2>([](auto w, auto of_example) { return w * of_example; }), weighted, weights);
    }
    return formula_loss(device, count, 1, formula, scores.data(), static_cast<const number*>(targets),
                        static_cast<const number*>(weights), scale, gradient.data());
  }

 private:
  std::vector<double> weights_;
  value_shape shape_;
  std::optional<tensor<number, 1, row_major, Device>> per_channel_;
  std::optional<tensor<number, 1, row_major, Device>> elements_;  // targets, weights, and those times the examples'
};

/// 1 - cos(y, t), where the vectors y and t are the channels of a pixel; of images, the mean over the pixels. Flattened
/// scores are one vector.
///
///   symbol | meaning                                                     | shape
///   y      | scores                                                      | (N, C, H, W)
///   t      | real targets                                                | (N, C, H, W)
///   cos    | y * t / (max(|y|, epsilon) * max(|t|, epsilon))             | (N, H, W)
///   w      | weights of the examples                                     | (N)   1 without weights
///   loss   | sum over n of w(n) * mean over h, w of 1 - cos(n, h, w)      |
///
/// Gradient: d cos / dy = t / (|y| |t|) - cos * y / |y|^2. A vector of zeros has the loss 1; the gradient by scores
/// that are all 0 is -t / (epsilon * |t|), which is large. It is 1 - torch.nn.functional.cosine_similarity, values and
/// gradients, and torch.nn.CosineEmbeddingLoss with targets of 1 but for the epsilon.
/// @throws configuration_error (network::loss) when epsilon is not above 0
struct cosine_similarity {
  double epsilon = 1e-8;  ///< above 0: the least norm by which is divided

  /// The loss for one element type, layout and device.
  template <class Element, class Layout, class Device>
  class loss;
};

/// The loss for one element type, layout and device.
template <class Element, class Layout, class Device>
class cosine_similarity::loss final : public loss_function<Element, Layout, Device> {
  static_assert(kernels::explain_cosine_loss<Device, Element>());

 public:
  /// @throws configuration_error when epsilon is not above 0
  explicit loss(const cosine_similarity& options) : epsilon_{options.epsilon} {
    if (!(epsilon_ > 0) || !std::isfinite(epsilon_)) {
      raise<configuration_error>("cosine_similarity", "a finite epsilon above 0", {epsilon_});
    }
  }

  [[nodiscard]] std::string_view kind() const noexcept override { return "cosine_similarity"; }

  void infer(const value_shape& scores) override { shape_ = scores; }

  void attributes(attribute_visitor& visit) const override { visit.real("epsilon", epsilon_); }

  [[nodiscard]] target_description targets() const override {
    return {.labels = 0, .values = {shape_.channels, shape_.height, shape_.width}};
  }

  kernels::loss_sums compute(const image_batch<const Element, Device>& scores,
                             const nn::targets<Element, Device>& batch_targets, double scale,
                             const image_batch<Element, Device>& gradient) override {
    const bool channels_last = dense_strides<Layout, 4>(scores.extents())[1] == 1 && shape_.channels > 1;
    const kernels::cosine_vectors<parameter_element_t<Element>> vectors{
        .examples = scores.extent(0),
        .channels = shape_.flattened ? shape_.size() : shape_.channels,
        .pixels = shape_.flattened ? index_t{1} : shape_.height * shape_.width,
        .channels_last = channels_last,
        .epsilon = epsilon_,
        .example_weights = batch_targets.weights.empty() ? nullptr : batch_targets.weights.data()};
    return cosine_loss(scores.device(), vectors, scores.data(), batch_targets.values.data(), scale, gradient.data());
  }

 private:
  double epsilon_;
  value_shape shape_;
};

/// The cross-entropy of softmax(scores) and probabilities of the classes, such as the mixed labels of mixup (Zhang et
/// al. 2018) and CutMix or the scores of a teacher:
///
///   symbol | meaning                                   | shape
///   y      | scores, K classes                         | (N, K), or (N, K, H, W) for images
///   t      | real targets: a probability of each class | as y
///   w      | weights of the examples                   | (N)   1 without weights
///   loss   | sum over n of w(n) * mean over h, w of -sum over k of t(k) * log softmax(y)(k)
///
/// Gradient: d(loss)/dy(k) = softmax(y)(k) * (sum over j of t(j)) - t(k). It is torch.nn.CrossEntropyLoss with
/// probabilities. Targets that do not add up to 1 are taken as they are. In networks of 16 bits the logarithms are
/// rounded to 16 bits.
/// @throws shape_error (network::loss) when the scores are flattened images
struct soft_cross_entropy {
  /// The loss for one element type, layout and device.
  template <class Element, class Layout, class Device>
  class loss;
};

/// The loss for one element type, layout and device.
template <class Element, class Layout, class Device>
class soft_cross_entropy::loss final : public loss_function<Element, Layout, Device> {
  static_assert(kernels::explain_channel_softmax<Device, Element>());
  static_assert(kernels::explain_formula_loss<Device, Element>());

 public:
  /// There are no options.
  explicit loss(const soft_cross_entropy& /*options*/) {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "soft_cross_entropy"; }

  void infer(const value_shape& scores) override {
    if (scores.flattened) {
      raise<shape_error>(kind(), "a vector of scores, one for each class, or an image of them", describe(scores),
                         "end the network with nn::dense{.out_features = classes}");
    }
    shape_ = scores;
  }

  [[nodiscard]] target_description targets() const override {
    return {.labels = 0, .values = {shape_.channels, shape_.height, shape_.width}};
  }

  kernels::loss_sums compute(const image_batch<const Element, Device>& scores,
                             const nn::targets<Element, Device>& batch_targets, double scale,
                             const image_batch<Element, Device>& gradient) override {
    const index_t batch = scores.extent(0);
    const index_t pixels = shape_.height * shape_.width;
    const bool channels_last = dense_strides<Layout, 4>(scores.extents())[1] == 1 && shape_.channels > 1;
    const kernels::channel_softmax_shape shape{.outer = channels_last ? batch * pixels : batch,
                                               .channels = shape_.channels,
                                               .inner = channels_last ? index_t{1} : pixels,
                                               .logarithm = true};
    Device& device = scores.device();
    const index_t count = batch * shape_.size();
    if (!logarithms_ || logarithms_->size() < count) {  // the first batch of this size
      logarithms_.emplace(device, extents<1>{count});
      by_logarithms_.emplace(device, extents<1>{count});
    }
    channel_softmax_forward(device, shape, scores.data(), logarithms_->data());
    const auto formula =
        loss_formula_of([share = 1.0 / static_cast<double>(pixels)](auto y, auto t) { return sum(-share * (y * t)); });
    const bool trains = gradient.data() != nullptr;
    const kernels::loss_sums sums = formula_loss(
        device, batch, shape_.size(), formula, static_cast<const Element*>(logarithms_->data()),
        batch_targets.values.data(), batch_targets.weights.empty() ? nullptr : batch_targets.weights.data(), scale,
        trains ? by_logarithms_->data() : nullptr);
    if (trains) {
      channel_softmax_backward(device, shape, static_cast<const Element*>(logarithms_->data()),
                               static_cast<const Element*>(by_logarithms_->data()), gradient.data(), false);
    }
    return sums;
  }

 private:
  value_shape shape_;
  std::optional<tensor<Element, 1, row_major, Device>> logarithms_;     // of softmax
  std::optional<tensor<Element, 1, row_major, Device>> by_logarithms_;  // the gradient by them
};

}  // namespace gradus::nn

GRADUS_COMPILED_LOSS(::gradus::nn::mean_squared_error)
GRADUS_COMPILED_LOSS(::gradus::nn::mean_absolute_error)
GRADUS_COMPILED_LOSS(::gradus::nn::huber)
GRADUS_COMPILED_LOSS(::gradus::nn::binary_cross_entropy_with_logits)
GRADUS_COMPILED_LOSS(::gradus::nn::cosine_similarity)
GRADUS_COMPILED_LOSS(::gradus::nn::soft_cross_entropy)

// SPDX-License-Identifier: BSL-1.0
//
// What a metric is: the batches that it reads, the members that it has, and a meter that runs it in one process.
#pragma once

#include <array>        // std::array
#include <concepts>     // std::constructible_from, std::convertible_to, std::same_as
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::int32_t
#include <optional>     // std::optional
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <tuple>        // std::tuple
#include <type_traits>  // std::remove_const_t, std::type_identity_t
#include <utility>      // std::declval
#include <vector>       // std::vector

#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/nn/network/image_batch.hpp"
#include "gradus/nn/targets.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::metrics {

/// What a metric compares in each example.
struct example_shape {
  nn::value_shape scores;          ///< (channels, height, width); with labels, a channel is a class
  nn::target_description targets;  ///< what the scores are compared with

  /// The number of pixels of an example; 1 for a vector of scores.
  [[nodiscard]] constexpr index_t pixels() const noexcept { return scores.height * scores.width; }
  /// Equal members.
  friend constexpr bool operator==(const example_shape&, const example_shape&) noexcept = default;
};

/// Examples in host memory, as double: what a metric reads. Vectors of scores are images of one pixel. The numbers of a
/// pixel are adjacent, whatever the layout of the network.
class batch {
 public:
  /// The number of examples.
  [[nodiscard]] index_t examples() const noexcept { return examples_; }
  /// Scores of a pixel: with labels, the number of classes.
  [[nodiscard]] index_t channels() const noexcept { return channels_; }
  /// Pixels of an example.
  [[nodiscard]] index_t pixels() const noexcept { return pixels_; }
  /// The scores of a pixel, one for each channel. Pixel h * width + w is the one in row h and column w.
  /// @pre 0 <= example < examples() and 0 <= pixel < pixels()
  [[nodiscard]] std::span<const double> scores(index_t example, index_t pixel = 0) const noexcept {
    return row_of(scores_, example, pixel);
  }
  /// The real targets of a pixel, one for each channel. @pre as scores, and the targets are real numbers
  [[nodiscard]] std::span<const double> targets(index_t example, index_t pixel = 0) const noexcept {
    return row_of(targets_, example, pixel);
  }
  /// The class of a pixel, as the data set gives it. @pre as scores, and the targets are classes
  [[nodiscard]] std::int32_t label(index_t example, index_t pixel = 0) const noexcept {
    return labels_[static_cast<std::size_t>(example * pixels_ + pixel)];
  }
  /// The weight of an example: 1 if the data set has no weights.
  [[nodiscard]] double weight(index_t example) const noexcept {
    return weights_.empty() ? 1.0 : weights_[static_cast<std::size_t>(example)];
  }

  /// Copies the examples [first, first + count) of a device. Waits for the device. Memory that was enough for an
  /// earlier call is not allocated again.
  /// @param scores   (n, c, h, w)
  /// @param strides  of the scores and of real targets, in elements of n, c, h, w; n is the slowest axis
  /// @param compared targets that have the shapes of the scores, or labels for each example or pixel, or nothing
  template <class Element, class Device>
  void assign(const nn::image_batch<const Element, Device>& scores, const std::array<index_t, 4>& strides,
              const nn::targets<Element, Device>& compared, index_t first, index_t count) {
    const auto& shape = scores.extents();
    examples_ = count;
    channels_ = shape[1];
    pixels_ = shape[2] * shape[3];
    const index_t one = shape[1] * shape[2] * shape[3];
    Device& device = scores.device();
    copy_images(device, scores.data() + first * one, shape, strides, scores_);
    targets_.clear();
    if (compared.values.data() != nullptr) {
      copy_images(device, compared.values.data() + first * one, shape, strides, targets_);
    }
    const index_t labels = compared.labels.empty() ? 0 : static_cast<index_t>(compared.labels.size()) / shape[0];
    copy_numbers(
        device,
        compared.labels.subspan(static_cast<std::size_t>(first * labels), static_cast<std::size_t>(count * labels)),
        labels_);
    copy_numbers(device,
                 compared.weights.empty()
                     ? compared.weights
                     : compared.weights.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)),
                 weights_);
  }

 private:
  [[nodiscard]] std::span<const double> row_of(const std::vector<double>& numbers, index_t example,
                                               index_t pixel) const noexcept {
    return {numbers.data() + (example * pixels_ + pixel) * channels_, static_cast<std::size_t>(channels_)};
  }

  /// The numbers in host memory.
  template <class Number, class Device>
  [[nodiscard]] const Number* on_host(Device& device, const Number* data, std::size_t count) {
    if constexpr (has_host_memory<Device>) {
      device.synchronize();
      return data;
    } else {
      staged_.resize(count * sizeof(Number));
      device.copy_to_host(staged_.data(), data, count * sizeof(Number));
      return reinterpret_cast<const Number*>(staged_.data());
    }
  }

  template <class From, class To, class Device>
  void copy_numbers(Device& device, std::span<const From> from, std::vector<To>& to) {
    to.resize(from.size());
    if (!from.empty()) {
      const From* const data = on_host(device, from.data(), from.size());
      for (std::size_t i = 0; i < from.size(); ++i) {
        to[i] = static_cast<To>(data[i]);
      }
    }
  }

  template <class Number, class Device>
  void copy_images(Device& device, const Number* from, const extents<4>& shape, const std::array<index_t, 4>& strides,
                   std::vector<double>& to) {
    to.resize(static_cast<std::size_t>(examples_ * pixels_ * channels_));
    if (to.empty()) {
      return;
    }
    const Number* const data = on_host(device, from, to.size());
    std::size_t at = 0;
    for (index_t n = 0; n < examples_; ++n) {
      for (index_t h = 0; h < shape[2]; ++h) {
        for (index_t w = 0; w < shape[3]; ++w) {
          const Number* const pixel = data + n * strides[0] + h * strides[2] + w * strides[3];
          for (index_t c = 0; c < channels_; ++c) {
            to[at++] = static_cast<double>(static_cast<parameter_element_t<Number>>(pixel[c * strides[1]]));
          }
        }
      }
    }
  }

  index_t examples_ = 0;
  index_t channels_ = 0;
  index_t pixels_ = 0;
  std::vector<double> scores_;   // (example, pixel, channel)
  std::vector<double> targets_;  // likewise, or empty
  std::vector<double> weights_;  // (example), or empty
  std::vector<std::int32_t> labels_;
  std::vector<std::byte> staged_;  // of a device with memory of its own
};

/// The channel with the largest of the scores, the first of equals; -1 if one of them is NaN: such scores say nothing.
[[nodiscard]] inline index_t predicted_class(std::span<const double> scores) noexcept {
  std::size_t best = 0;
  for (std::size_t k = 0; k < scores.size(); ++k) {
    if (scores[k] != scores[k]) {
      return -1;
    }
    best = scores[k] > scores[best] ? k : best;
  }
  return static_cast<index_t>(best);
}

/// A requirement of `metric`: Metric has a name.
template <class Metric>
concept has_metric_name = requires {
  { Metric::name } -> std::convertible_to<std::string_view>;
};
/// A requirement of `metric`: Metric::state is made of the options and the shape of the examples.
template <class Metric>
concept has_metric_state = requires {
  typename Metric::state;
  requires std::constructible_from<typename Metric::state, const Metric&, const example_shape&>;
};
/// A requirement of `metric`: a state reads batches.
template <class Metric>
concept has_metric_update = requires(typename Metric::state& state, const batch& examples) {
  state.update(examples);
};
/// A requirement of `metric`: a state has sums.
template <class Metric>
concept has_metric_sums = requires(typename Metric::state& state) {
  { state.sums() } -> std::same_as<std::span<double>>;
};
/// A requirement of `metric`: a state computes the result.
template <class Metric>
concept has_metric_result = requires(const typename Metric::state& state) {
  state.compute();
};

/// A metric: an aggregate of options, and a state of sums over examples. A type Metric models `metric` when
///   1. `Metric::name` is a constant string;
///   2. `Metric::state(options, shape)` makes a state without examples, from `const Metric&` and
///      `const example_shape&`. It throws shape_error where it cannot compare such examples;
///   3. `state.update(batch)` adds the examples of a `const metrics::batch&`;
///   4. `state.sums()` is the `std::span<double>` of all that the state knows of its examples. Its size depends on
///      options and shape only. Ranks add their sums element by element, and each gets those of all;
///   5. `state.compute()`, const, is the result of the sums: a number, or any copyable type.
/// Optional members:
///   * `state.merge(others)` adds the sums of other examples, a `std::span<const double>`, where that is not the sum of
///     the elements;
///   * `Metric::description()` is a text of name and options, for messages. Ranks compare it;
///   * `summary()` is, for a result of another type than a number, the number that train::progress shows.
/// Semantics: sums of any parts of a data set, added up, are those of the data set. An example counts as often as its
/// weight says.
template <class Metric>
concept metric = has_metric_name<Metric> && has_metric_state<Metric> && has_metric_update<Metric> &&
    has_metric_sums<Metric> && has_metric_result<Metric>;

/// Says which requirement of `metric` the type Metric does not meet. Always true when it compiles.
template <class Metric>
consteval bool explain_metric() {
  static_assert(has_metric_name<Metric>,
                "gradus: not a metric: give it a name, e.g. static constexpr std::string_view name = \"mine\";");
  static_assert(has_metric_state<Metric>,
                "gradus: not a metric: give it a class state with a constructor state(const M& options, const "
                "metrics::example_shape& shape)");
  if constexpr (has_metric_state<Metric>) {
    static_assert(has_metric_update<Metric>,
                  "gradus: not a metric: give its state void update(const metrics::batch& examples)");
    static_assert(has_metric_sums<Metric>, "gradus: not a metric: give its state std::span<double> sums()");
    static_assert(has_metric_result<Metric>, "gradus: not a metric: give its state a result: double compute() const");
  }
  return true;
}

/// Several metrics, for one pass over a data set:
///
///   metrics::list{metrics::top_k{5}, metrics::confusion_matrix{}}
template <class... Metrics>
struct list {
  static_assert((explain_metric<Metrics>() && ...));

  /// Copies the metrics.
  explicit list(const Metrics&... each) : metrics{each...} {}

  std::tuple<Metrics...> metrics;  ///< their options
};

/// The result of a metric.
template <metric Metric>
using result_t = decltype(std::declval<const typename Metric::state&>().compute());

/// The metric in messages: its description, or its name without one.
template <metric Metric>
[[nodiscard]] std::string describe(const Metric& options) {
  if constexpr (requires {
                  { options.description() } -> std::convertible_to<std::string>;
                }) {
    return options.description();
  } else {
    return std::string{std::string_view{Metric::name}};
  }
}

/// Computes a metric without a trainer, in one process:
///
///   metrics::meter top5{metrics::top_k{5}};
///   top5.update(net.forward(images), labels);  // for each batch
///   const double share = top5.compute();
///
/// An update allocates only where a batch is larger than those before.
template <metric Metric>
class meter {
 public:
  /// A meter without examples.
  explicit meter(const Metric& options) : options_{options} {}

  /// Adds the examples of a batch.
  /// @param scores    (n, c, h, w) in the memory of a device
  /// @param compared  n or n * h * w labels, or real targets of the shape of the scores, and n weights or none, in the
  ///                  memory of the same device
  /// @throws shape_error when the targets do not fit the scores or the metric, or the shapes of an example change
  template <class Element, class Layout, class Device>
  void update(const image_view<Element, Layout, Device>& scores,
              const nn::targets<std::remove_const_t<Element>, std::type_identity_t<Device>>& compared,
              error_location where = error_location::current()) {
    at_call(where, [&, this] {
      if (scores.extent(0) == 0) {
        return;
      }
      start(scores.extents(), {.labels = static_cast<index_t>(compared.labels.size()),
                               .values = compared.values.extents(),
                               .weights = static_cast<index_t>(compared.weights.size())});
      const nn::image_batch<const std::remove_const_t<Element>, Device> images{scores};
      batch_.assign(images, dense_strides<Layout, 4>(scores.extents()), compared, 0, scores.extent(0));
      state_->update(batch_);
    });
  }

  /// The result of all examples since the construction or the last reset.
  /// @throws configuration_error when there were none
  [[nodiscard]] auto compute(error_location where = error_location::current()) const {
    if (!state_) {
      raise<configuration_error>(Metric::name, "examples", "none", "call update before compute", where);
    }
    return at_call(where, [&, this] { return state_->compute(); });
  }

  /// Forgets all examples.
  void reset() { state_.reset(); }

 private:
  void start(const extents<4>& scores, const nn::detail::target_sizes& given) {
    const index_t n = scores[0];
    const bool real = given.values.n > 0;
    example_shape shape{.scores = {scores[1], scores[2], scores[3]}, .targets = {.labels = given.labels / n}};
    if (real) {
      shape.targets.values = {given.values.c, given.values.h, given.values.w};
    }
    if (given.labels % n != 0 || (real && given.values.n != n) || (given.weights != 0 && given.weights != n)) {
      raise<shape_error>(Metric::name, {"targets of ", n, " examples"},
                         {given.labels, " labels, ", given.values.n, " real targets and ", given.weights, " weights"});
    }
    if (!state_) {
      state_.emplace(options_, shape);
      shape_ = shape;
    } else if (!(shape == shape_)) {
      raise<shape_error>(Metric::name,
                         {"scores of ", to_string(shape_.scores), " and ", nn::describe(shape_.targets),
                          " for each example, as before"},
                         {"scores of ", to_string(shape.scores), " and ", nn::describe(shape.targets)},
                         "call reset() before a metric of other examples");
    }
  }

  Metric options_;
  example_shape shape_{};
  std::optional<typename Metric::state> state_;
  batch batch_;
};

}  // namespace gradus::metrics

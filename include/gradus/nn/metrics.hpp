// SPDX-License-Identifier: BSL-1.0
//
// Metrics of classes and of real numbers. Each counts an example as often as its weight says.
#pragma once

#include <cmath>        // std::abs
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t
#include <limits>       // std::numeric_limits
#include <optional>     // std::optional
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/metric.hpp"
#include "gradus/nn/targets.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::metrics {

namespace detail {

/// The mean of no examples.
inline constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

/// @throws shape_error unless each example has a class, or one for each pixel of the scores
inline void require_classes(std::string_view name, const example_shape& shape) {
  if (shape.targets.labels != shape.pixels()) {
    const nn::target_description needed{.labels = shape.pixels()};
    raise<shape_error>(name, {nn::describe(needed), " for each example, with scores of ", to_string(shape.scores)},
                       nn::describe(shape.targets),
                       shape.targets.values.channels > 0
                           ? "with real targets use metrics::mean_absolute_error, mean_squared_error or r2"
                           : "the scores need one pixel for each label");
  }
}

/// @throws shape_error unless each example has real targets of the shape of its scores
inline void require_numbers(std::string_view name, const example_shape& shape) {
  const bool real = shape.targets.values.channels > 0;
  if (!real || shape.targets.values.batch(1) != shape.scores.batch(1)) {
    const nn::target_description needed{.labels = 0,
                                        .values = {shape.scores.channels, shape.scores.height, shape.scores.width}};
    raise<shape_error>(name, {nn::describe(needed), " for each example"}, nn::describe(shape.targets),
                       real ? "real targets have the shape of the scores"
                            : "with classes use metrics::accuracy, top_k, confusion_matrix or "
                              "intersection_over_union");
  }
}

/// Calls add(example, pixel, label) for each pixel whose label is not ignored.
/// @throws shape_error when a label is not a class
template <class Add>
void for_each_label(std::string_view name, const batch& examples, const std::optional<std::int32_t>& ignored,
                    const Add& add) {
  for (index_t n = 0; n < examples.examples(); ++n) {
    for (index_t p = 0; p < examples.pixels(); ++p) {
      const std::int32_t label = examples.label(n, p);
      if (label == ignored) {
        continue;
      }
      if (label < 0 || label >= examples.channels()) {
        raise<shape_error>(name, {"labels in [0, ", examples.channels(), "), the number of scores"}, {label},
                           "set ignored_label, or compare out_features of the last layer with the data set");
      }
      add(n, p, label);
    }
  }
}

/// The share of the weight that counts.
struct share_sums {
  double sums[2] = {};  // that counts, and all

  void add(double weight, bool counts) noexcept {
    sums[0] += counts ? weight : 0.0;
    sums[1] += weight;
  }
  [[nodiscard]] double share() const noexcept { return sums[1] > 0 ? sums[0] / sums[1] : nothing; }
};

/// A sum and the weight of its terms.
struct mean_sums {
  double sums[2] = {};

  /// Adds the mean of function(score - target) over the elements of each example.
  template <class Function>
  void add(const batch& examples, const Function& function) {
    for (index_t n = 0; n < examples.examples(); ++n) {
      double sum = 0;
      for (index_t p = 0; p < examples.pixels(); ++p) {
        const auto scores = examples.scores(n, p);
        const auto targets = examples.targets(n, p);
        for (std::size_t c = 0; c < scores.size(); ++c) {
          sum += function(scores[c] - targets[c]);
        }
      }
      if (examples.weight(n) > 0) {  // else NaN scores would count
        sums[0] += examples.weight(n) * sum / static_cast<double>(examples.pixels() * examples.channels());
        sums[1] += examples.weight(n);
      }
    }
  }
  [[nodiscard]] double mean() const noexcept { return sums[1] > 0 ? sums[0] / sums[1] : nothing; }
};

/// Weights of pixels by label and prediction.
class confusion_sums {
 public:
  confusion_sums(std::string_view name, const example_shape& shape, const std::optional<std::int32_t>& ignored)
      : name_{name}, ignored_{ignored}, classes_{shape.scores.channels} {
    require_classes(name, shape);
    sums_.resize(static_cast<std::size_t>(classes_ * (classes_ + 1)));
  }
  void update(const batch& examples) {
    for_each_label(name_, examples, ignored_, [&, this](index_t n, index_t p, std::int32_t label) {
      const index_t predicted = predicted_class(examples.scores(n, p));
      sums_[at(label, predicted < 0 ? classes_ : predicted)] += examples.weight(n);
    });
  }
  [[nodiscard]] std::span<double> sums() noexcept { return sums_; }
  [[nodiscard]] index_t classes() const noexcept { return classes_; }
  /// @param predicted  a class, or classes() for no prediction
  [[nodiscard]] double weight(index_t label, index_t predicted) const noexcept { return sums_[at(label, predicted)]; }

 private:
  [[nodiscard]] std::size_t at(index_t label, index_t predicted) const noexcept {
    return static_cast<std::size_t>(label * (classes_ + 1) + predicted);
  }

  std::string_view name_;
  std::optional<std::int32_t> ignored_;
  index_t classes_;
  std::vector<double> sums_;  // (label, prediction); the last column has no prediction
};

}  // namespace detail

/// The share of labels whose class has the largest score (the first of equals), of examples or of pixels. A pixel with
/// a score that is NaN is wrong. NaN without labels.
struct accuracy {
  static constexpr std::string_view name = "accuracy";  ///< in messages
  std::optional<std::int32_t> ignored_label = {};       ///< labels with this number do not count

  /// The sums: right labels and labels, each times the weight of its example.
  class state {
   public:
    /// @throws shape_error unless the targets are classes
    state(const accuracy& options, const example_shape& shape) : ignored_{options.ignored_label} {
      detail::require_classes(name, shape);
    }
    /// Adds examples. @throws shape_error when a label is not a class
    void update(const batch& examples) {
      detail::for_each_label(name, examples, ignored_, [&, this](index_t n, index_t p, std::int32_t label) {
        sums_.add(examples.weight(n), predicted_class(examples.scores(n, p)) == label);
      });
    }
    /// Right labels, and labels.
    [[nodiscard]] std::span<double> sums() noexcept { return sums_.sums; }
    /// In [0, 1].
    [[nodiscard]] double compute() const noexcept { return sums_.share(); }

   private:
    std::optional<std::int32_t> ignored_;
    detail::share_sums sums_;
  };
};

/// The share of labels whose class is among the k with the largest scores. Of equal scores, that of the smaller class
/// ranks first: top_k{1} is accuracy. A pixel with a score that is NaN is wrong. NaN without labels.
/// torcheval.metrics.functional.multiclass_accuracy with k.
struct top_k {
  static constexpr std::string_view name = "top_k";  ///< in messages
  index_t k = 5;                                     ///< from 1 to the number of classes
  std::optional<std::int32_t> ignored_label = {};    ///< labels with this number do not count

  /// "top-5".
  [[nodiscard]] std::string description() const { return gradus::join({"top-", k}); }

  /// The sums: right labels and labels, each times the weight of its example.
  class state {
   public:
    /// @throws shape_error unless the targets are classes
    /// @throws configuration_error unless k is from 1 to the number of classes
    state(const top_k& options, const example_shape& shape) : k_{options.k}, ignored_{options.ignored_label} {
      detail::require_classes(name, shape);
      if (k_ < 1 || k_ > shape.scores.channels) {
        raise<configuration_error>(name, {"a k from 1 to ", shape.scores.channels, ", the number of classes"}, {k_},
                                   k_ < 1 ? "write metrics::top_k{5} for the five largest scores"
                                          : "among the scores of all classes every label is found: take a smaller k");
      }
    }
    /// Adds examples. @throws shape_error when a label is not a class
    void update(const batch& examples) {
      detail::for_each_label(name, examples, ignored_, [&, this](index_t n, index_t p, std::int32_t label) {
        sums_.add(examples.weight(n), is_in(examples.scores(n, p), static_cast<std::size_t>(label)));
      });
    }
    /// Right labels, and labels.
    [[nodiscard]] std::span<double> sums() noexcept { return sums_.sums; }
    /// In [0, 1].
    [[nodiscard]] double compute() const noexcept { return sums_.share(); }

   private:
    [[nodiscard]] bool is_in(std::span<const double> scores, std::size_t label) const noexcept {
      const double own = scores[label];
      index_t before = 0;
      for (std::size_t c = 0; c < scores.size(); ++c) {
        if (scores[c] != scores[c]) {
          return false;
        }
        before += scores[c] > own || (scores[c] == own && c < label) ? 1 : 0;
      }
      return before < k_;
    }

    index_t k_;
    std::optional<std::int32_t> ignored_;
    detail::share_sums sums_;
  };
};

/// How often each class was taken for each other one.
struct confusion {
  index_t classes = 0;              ///< number of classes
  std::vector<double> counts;       ///< (label, prediction): labels, each times the weight of its example
  std::vector<double> unpredicted;  ///< (label): labels of pixels with a score that is NaN

  /// Labels of class `label` that were predicted as class `prediction`. @pre both are in [0, classes)
  [[nodiscard]] double operator()(index_t label, index_t prediction) const noexcept {
    return counts[static_cast<std::size_t>(label * classes + prediction)];
  }
  /// The share of the diagonal: the accuracy. NaN without labels.
  [[nodiscard]] double accuracy() const noexcept {
    detail::share_sums sums;
    for (index_t label = 0; label < classes; ++label) {
      for (index_t prediction = 0; prediction < classes; ++prediction) {
        sums.add((*this)(label, prediction), label == prediction);
      }
      sums.add(unpredicted[static_cast<std::size_t>(label)], false);
    }
    return sums.share();
  }
};

/// The confusion matrix: labels by class and by the class with the largest score (the first of equals), of examples or
/// of pixels. sklearn.metrics.confusion_matrix. The number of classes is that of the scores.
struct confusion_matrix {
  static constexpr std::string_view name = "confusion_matrix";  ///< in messages
  std::optional<std::int32_t> ignored_label = {};               ///< labels with this number do not count

  /// The sums: (label, prediction), and a column of labels without a prediction.
  class state {
   public:
    /// @throws shape_error unless the targets are classes
    state(const confusion_matrix& options, const example_shape& shape) : sums_{name, shape, options.ignored_label} {}
    /// Adds examples. @throws shape_error when a label is not a class
    void update(const batch& examples) { sums_.update(examples); }
    /// (classes, classes + 1).
    [[nodiscard]] std::span<double> sums() noexcept { return sums_.sums(); }
    /// The matrix.
    [[nodiscard]] confusion compute() const {
      confusion result{.classes = sums_.classes(), .counts = {}, .unpredicted = {}};
      for (index_t label = 0; label < result.classes; ++label) {
        for (index_t prediction = 0; prediction < result.classes; ++prediction) {
          result.counts.push_back(sums_.weight(label, prediction));
        }
        result.unpredicted.push_back(sums_.weight(label, result.classes));
      }
      return result;
    }

   private:
    detail::confusion_sums sums_;
  };
};

/// Intersections over unions of labels and predictions.
struct class_overlaps {
  std::vector<double> per_class;  ///< in [0, 1]; NaN for a class that is neither a label nor a prediction
  double mean = 0;                ///< over the classes that are; NaN if there is none

  /// The mean.
  [[nodiscard]] double summary() const noexcept { return mean; }
};

/// For each class, the pixels whose label and whose prediction it is, divided by those whose label or whose prediction
/// it is; and the mean over the classes. The prediction is the largest score, the first of equals. Pixels with a score
/// that is NaN are in the union of their label only. torchmetrics.JaccardIndex, sklearn.metrics.jaccard_score.
struct intersection_over_union {
  static constexpr std::string_view name = "intersection_over_union";  ///< in messages
  std::optional<std::int32_t> ignored_label = {};  ///< labels with this number do not count, nor their predictions

  /// "mean IoU".
  [[nodiscard]] std::string description() const { return "mean IoU"; }

  /// The sums: those of the confusion matrix.
  class state {
   public:
    /// @throws shape_error unless the targets are classes
    state(const intersection_over_union& options, const example_shape& shape)
        : sums_{name, shape, options.ignored_label} {}
    /// Adds examples. @throws shape_error when a label is not a class
    void update(const batch& examples) { sums_.update(examples); }
    /// (classes, classes + 1).
    [[nodiscard]] std::span<double> sums() noexcept { return sums_.sums(); }
    /// Of each class, and the mean.
    [[nodiscard]] class_overlaps compute() const {
      class_overlaps result;
      double total = 0;
      double seen = 0;
      const index_t classes = sums_.classes();
      for (index_t k = 0; k < classes; ++k) {
        double either = sums_.weight(k, classes);
        for (index_t other = 0; other < classes; ++other) {
          either += sums_.weight(k, other) + (other == k ? 0.0 : sums_.weight(other, k));
        }
        result.per_class.push_back(either > 0 ? sums_.weight(k, k) / either : detail::nothing);
        total += either > 0 ? result.per_class.back() : 0.0;
        seen += either > 0 ? 1.0 : 0.0;
      }
      result.mean = seen > 0 ? total / seen : detail::nothing;
      return result;
    }

   private:
    detail::confusion_sums sums_;
  };
};

/// The mean of |score - target| over all elements. NaN without examples. sklearn.metrics.mean_absolute_error.
struct mean_absolute_error {
  static constexpr std::string_view name = "mean_absolute_error";  ///< in messages

  /// The sum over examples and its weight.
  class state {
   public:
    /// @throws shape_error unless the targets are real numbers
    state(const mean_absolute_error& /*options*/, const example_shape& shape) { detail::require_numbers(name, shape); }
    /// Adds examples.
    void update(const batch& examples) {
      sums_.add(examples, [](double error) { return std::abs(error); });
    }
    /// The sum, and the weight.
    [[nodiscard]] std::span<double> sums() noexcept { return sums_.sums; }
    /// At least 0.
    [[nodiscard]] double compute() const noexcept { return sums_.mean(); }

   private:
    detail::mean_sums sums_;
  };
};

/// The mean of (score - target)^2 over all elements. NaN without examples. sklearn.metrics.mean_squared_error.
struct mean_squared_error {
  static constexpr std::string_view name = "mean_squared_error";  ///< in messages

  /// The sum over examples and its weight.
  class state {
   public:
    /// @throws shape_error unless the targets are real numbers
    state(const mean_squared_error& /*options*/, const example_shape& shape) { detail::require_numbers(name, shape); }
    /// Adds examples.
    void update(const batch& examples) {
      sums_.add(examples, [](double error) { return error * error; });
    }
    /// The sum, and the weight.
    [[nodiscard]] std::span<double> sums() noexcept { return sums_.sums; }
    /// At least 0.
    [[nodiscard]] double compute() const noexcept { return sums_.mean(); }

   private:
    detail::mean_sums sums_;
  };
};

/// Coefficients of determination.
struct determination {
  std::vector<double> per_output;  ///< of each channel
  double mean = 0;                 ///< of the channels

  /// The mean.
  [[nodiscard]] double summary() const noexcept { return mean; }
};

/// The coefficient of determination of each channel, and their mean: 1 - (sum of (score - target)^2) / (sum of (target
/// - mean of the targets)^2), over examples and pixels. 1 is best; the mean of the targets as scores gives 0.
/// sklearn.metrics.r2_score (the mean is "uniform_average"), torcheval.metrics.R2Score.
///
/// Where all targets of a channel are equal, it is 1 if there is no error and else 0, as in sklearn. NaN for fewer than
/// two targets of a channel with a weight above 0; each pixel is one. Sums of squares are about the mean (Chan, Golub,
/// LeVeque 1983), so that large means cost no digits; ranks merge theirs in the order of ranks.
struct r2 {
  static constexpr std::string_view name = "r2";  ///< in messages

  /// Counts, weights, and for each channel the squares of errors, the mean, and the squares about the mean.
  class state {
   public:
    /// @throws shape_error unless the targets are real numbers
    state(const r2& /*options*/, const example_shape& shape)
        : channels_{static_cast<std::size_t>(shape.scores.channels)}, sums_(2 + 3 * channels_) {
      detail::require_numbers(name, shape);
    }
    /// Adds examples.
    void update(const batch& examples) {
      for (index_t n = 0; n < examples.examples(); ++n) {
        const double weight = examples.weight(n);
        if (!(weight > 0)) {
          continue;
        }
        for (index_t p = 0; p < examples.pixels(); ++p) {
          const auto scores = examples.scores(n, p);
          const auto targets = examples.targets(n, p);
          sums_[0] += 1;
          sums_[1] += weight;
          for (std::size_t c = 0; c < channels_; ++c) {
            const double error = scores[c] - targets[c];
            const double before = targets[c] - mean(c);
            sums_[2 + c] += weight * error * error;
            mean(c) += before * (weight / sums_[1]);
            squares(c) += weight * before * (targets[c] - mean(c));
          }
        }
      }
    }
    /// (count, weight, squares of errors, means, squares about the means).
    [[nodiscard]] std::span<double> sums() noexcept { return sums_; }
    /// Adds the sums of other examples.
    void merge(std::span<const double> others) {
      const double own = sums_[1];
      const double other = others[1];
      sums_[0] += others[0];
      sums_[1] += other;
      if (!(other > 0)) {
        return;
      }
      for (std::size_t c = 0; c < channels_; ++c) {
        const double apart = others[2 + channels_ + c] - mean(c);
        sums_[2 + c] += others[2 + c];
        squares(c) += others[2 + 2 * channels_ + c] + apart * apart * (own * (other / sums_[1]));
        mean(c) += apart * (other / sums_[1]);
      }
    }
    /// At most 1.
    [[nodiscard]] determination compute() const {
      determination result;
      double total = 0;
      for (std::size_t c = 0; c < channels_; ++c) {
        const double errors = sums_[2 + c];
        const double spread = sums_[2 + 2 * channels_ + c];
        double value = detail::nothing;
        if (sums_[0] >= 2) {
          value = spread == 0 ? (errors == 0 ? 1.0 : 0.0) : 1.0 - errors / spread;
        }
        result.per_output.push_back(value);
        total += value;
      }
      result.mean = total / static_cast<double>(channels_);
      return result;
    }

   private:
    [[nodiscard]] double& mean(std::size_t c) noexcept { return sums_[2 + channels_ + c]; }
    [[nodiscard]] double& squares(std::size_t c) noexcept { return sums_[2 + 2 * channels_ + c]; }

    std::size_t channels_;
    std::vector<double> sums_;
  };
};

}  // namespace gradus::metrics

// SPDX-License-Identifier: BSL-1.0
//
// Metrics against their definitions: both layouts, images, weights, ignored labels, equal scores, NaN, large means.
#include "gradus/nn/metrics.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/random.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/nn/metric.hpp"
#include "gradus/tensor/tensor.hpp"

namespace {

namespace metrics = gradus::metrics;
using gradus::index_t;

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// Examples in two batches of different size. Scores are multiples of 1/2, so that many are equal.
template <class Element, class Layout>
struct metric_examples {
  using number = gradus::parameter_element_t<Element>;

  struct part {
    gradus::image_tensor<Element, Layout> scores;
    gradus::image_tensor<number, Layout> targets;
    std::vector<std::int32_t> labels;
    std::vector<number> weights;
  };

  gradus::cpu device{{.intra_op_threads = 1}};
  index_t channels;
  index_t height;
  index_t width;
  bool weighted;
  std::vector<part> parts;

  metric_examples(index_t c, index_t h, index_t w, bool with_weights, double nan_share, double mean = 0)
      : channels{c}, height{h}, width{w}, weighted{with_weights} {
    const gradus::random_stream stream{7, "metrics"};
    std::uint64_t at = 0;
    const auto draw = [&] { return static_cast<double>(stream.uniform(at++)); };
    for (const index_t n : {index_t{5}, index_t{2}}) {
      const gradus::image_extents extents{n, c, h, w};
      part each{{device, extents}, {device, extents}, {}, {}};
      for (index_t i = 0; i < n; ++i) {
        for (index_t y = 0; y < h; ++y) {
          for (index_t x = 0; x < w; ++x) {
            for (index_t k = 0; k < c; ++k) {
              const double score = draw() < nan_share ? not_a_number : std::floor(8 * draw()) / 2 - 2;
              each.scores(i, k, y, x) = static_cast<Element>(static_cast<number>(mean + score));
              each.targets(i, k, y, x) = static_cast<number>(mean + draw());
            }
            const auto label = static_cast<std::int32_t>(draw() * static_cast<double>(c));
            each.labels.push_back(draw() < 0.2 ? 255 : label);
          }
        }
        if (weighted) {
          each.weights.push_back(static_cast<number>(i % 3) / 2);
        }
      }
      parts.push_back(std::move(each));
    }
  }

  /// Calls see(example of all, part, index in the part, row, column, weight).
  template <class See>
  void for_each_pixel(const See& see) const {
    for (const part& each : parts) {
      for (index_t i = 0; i < each.scores.extent(0); ++i) {
        for (index_t y = 0; y < height; ++y) {
          for (index_t x = 0; x < width; ++x) {
            see(each, i, y, x, weighted ? static_cast<double>(each.weights[static_cast<std::size_t>(i)]) : 1.0);
          }
        }
      }
    }
  }
  [[nodiscard]] static double score(const part& each, index_t i, index_t k, index_t y, index_t x) {
    return static_cast<double>(static_cast<number>(each.scores(i, k, y, x)));
  }
  [[nodiscard]] std::int32_t label(const part& each, index_t i, index_t y, index_t x) const {
    return each.labels[static_cast<std::size_t>((i * height + y) * width + x)];
  }
  /// The classes from the largest score to the smallest, equal ones in order; empty where a score is NaN.
  [[nodiscard]] std::vector<std::int32_t> ranking(const part& each, index_t i, index_t y, index_t x) const {
    std::vector<std::int32_t> order(static_cast<std::size_t>(channels));
    std::iota(order.begin(), order.end(), 0);
    for (const std::int32_t k : order) {
      if (std::isnan(score(each, i, k, y, x))) {
        return {};
      }
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int32_t a, std::int32_t b) { return score(each, i, a, y, x) > score(each, i, b, y, x); });
    return order;
  }

  /// What a meter says of the labels or the targets.
  template <class Metric>
  auto measure(const Metric& metric, bool labels) {
    metrics::meter<Metric> meter{metric};
    for (part& each : parts) {
      gradus::nn::targets<Element, gradus::cpu> compared;
      if (labels) {
        compared.labels = each.labels;
      } else {
        compared.values = gradus::nn::image_batch<const number, gradus::cpu>{each.targets.view()};
      }
      compared.weights = each.weights;
      meter.update(each.scores.view(), compared);
    }
    return meter.compute();
  }
};

bool same_number(double have, double want, double tolerance) {
  return std::isnan(want) ? std::isnan(have) : std::abs(have - want) <= tolerance * (1 + std::abs(want));
}

template <class Element, class Layout>
void check_class_metrics(index_t c, index_t h, index_t w, bool weighted, double nan_share) {
  metric_examples<Element, Layout> examples{c, h, w, weighted, nan_share};
  std::vector<double> matrix(static_cast<std::size_t>(c * (c + 1)));
  std::vector<double> right(static_cast<std::size_t>(c + 1));
  double all = 0;
  examples.for_each_pixel([&](const auto& part, index_t i, index_t y, index_t x, double weight) {
    const std::int32_t label = examples.label(part, i, y, x);
    if (label == 255) {
      return;
    }
    all += weight;
    const std::vector<std::int32_t> order = examples.ranking(part, i, y, x);
    const index_t column = order.empty() ? c : order[0];
    matrix[static_cast<std::size_t>(label * (c + 1) + column)] += weight;
    for (index_t k = 1; k <= c; ++k) {
      const bool in = !order.empty() && std::find(order.begin(), order.begin() + k, label) != order.begin() + k;
      right[static_cast<std::size_t>(k)] += in ? weight : 0.0;
    }
  });
  const auto at = [&](index_t label, index_t column) {
    return matrix[static_cast<std::size_t>(label * (c + 1) + column)];
  };
  for (index_t k = 1; k <= c; ++k) {
    const double want = right[static_cast<std::size_t>(k)] / all;
    BOOST_TEST(examples.measure(metrics::top_k{.k = k, .ignored_label = 255}, true) == want);
  }
  BOOST_TEST(examples.measure(metrics::accuracy{.ignored_label = 255}, true) == right[1] / all);
  const metrics::confusion confusion = examples.measure(metrics::confusion_matrix{.ignored_label = 255}, true);
  BOOST_TEST(confusion.classes == c);
  BOOST_TEST(confusion.accuracy() == right[1] / all);
  const auto overlaps = examples.measure(metrics::intersection_over_union{.ignored_label = 255}, true);
  BOOST_REQUIRE(overlaps.per_class.size() == static_cast<std::size_t>(c));
  double total = 0;
  double seen = 0;
  for (index_t k = 0; k < c; ++k) {
    double labeled = 0;
    double predicted = 0;
    for (index_t other = 0; other <= c; ++other) {
      labeled += at(k, other);
      if (other < c) {
        predicted += at(other, k);
        BOOST_TEST(confusion(k, other) == at(k, other));
      }
    }
    BOOST_TEST(confusion.unpredicted[static_cast<std::size_t>(k)] == at(k, c));
    const double either = labeled + predicted - at(k, k);
    const double want = either > 0 ? at(k, k) / either : not_a_number;
    BOOST_TEST(same_number(overlaps.per_class[static_cast<std::size_t>(k)], want, 1e-15));
    total += either > 0 ? want : 0.0;
    seen += either > 0 ? 1.0 : 0.0;
  }
  BOOST_TEST(same_number(overlaps.mean, total / seen, 1e-15));
}

template <class Element, class Layout>
void check_number_metrics(index_t c, index_t h, index_t w, bool weighted, double mean, double tolerance) {
  metric_examples<Element, Layout> examples{c, h, w, weighted, 0.0, mean};
  double absolute = 0;
  double squared = 0;
  double all = 0;
  std::vector<long double> sum(static_cast<std::size_t>(c));
  const auto target = [](const auto& part, index_t i, index_t k, index_t y, index_t x) {
    return static_cast<double>(part.targets(i, k, y, x));
  };
  examples.for_each_pixel([&](const auto& part, index_t i, index_t y, index_t x, double weight) {
    for (index_t k = 0; k < c; ++k) {
      const double error = examples.score(part, i, k, y, x) - target(part, i, k, y, x);
      absolute += weight * std::abs(error) / static_cast<double>(c);
      squared += weight * error * error / static_cast<double>(c);
      sum[static_cast<std::size_t>(k)] += static_cast<long double>(weight * target(part, i, k, y, x));
    }
    all += weight;
  });
  BOOST_TEST(same_number(examples.measure(metrics::mean_absolute_error{}, false), absolute / all, 1e-13));
  BOOST_TEST(same_number(examples.measure(metrics::mean_squared_error{}, false), squared / all, 1e-13));
  const auto determination = examples.measure(metrics::r2{}, false);
  BOOST_REQUIRE(determination.per_output.size() == static_cast<std::size_t>(c));
  double total = 0;
  for (index_t k = 0; k < c; ++k) {
    long double errors = 0;
    long double spread = 0;
    const long double middle = sum[static_cast<std::size_t>(k)] / static_cast<long double>(all);
    examples.for_each_pixel([&](const auto& part, index_t i, index_t y, index_t x, double weight) {
      const long double t = target(part, i, k, y, x);
      const long double error = examples.score(part, i, k, y, x) - t;
      errors += static_cast<long double>(weight) * error * error;
      spread += static_cast<long double>(weight) * (t - middle) * (t - middle);
    });
    const auto want = static_cast<double>(1 - errors / spread);
    BOOST_TEST(same_number(determination.per_output[static_cast<std::size_t>(k)], want, tolerance));
    total += want;
  }
  BOOST_TEST(same_number(determination.mean, total / static_cast<double>(c), tolerance));
}

std::string metric_failure(const std::function<void()>& call) {
  try {
    call();
  } catch (const gradus::error& failure) {
    return failure.what();
  }
  return "no error";
}

/// The share of labels that are wrong: as small as a metric of a program's own is.
struct error_rate {
  static constexpr std::string_view name = "error_rate";

  class state {
   public:
    state(const error_rate& /*options*/, const metrics::example_shape& /*shape*/) {}
    void update(const metrics::batch& examples) {
      for (index_t n = 0; n < examples.examples(); ++n) {
        sums_[0] += metrics::predicted_class(examples.scores(n)) == examples.label(n) ? 0 : 1;
        sums_[1] += 1;
      }
    }
    std::span<double> sums() { return sums_; }
    [[nodiscard]] double compute() const { return sums_[0] / sums_[1]; }

   private:
    double sums_[2] = {};
  };
};
static_assert(metrics::metric<error_rate> && metrics::metric<metrics::r2> && !metrics::metric<int>);

}  // namespace

BOOST_AUTO_TEST_SUITE(metrics_of_one_process)

BOOST_AUTO_TEST_CASE(class_metrics_are_their_definitions) {
  struct chosen {
    index_t c, h, w;
  };
  for (const chosen& s : {chosen{1, 1, 1}, {2, 1, 1}, {5, 1, 1}, {11, 1, 1}, {3, 3, 5}, {6, 4, 1}}) {
    for (const bool weighted : {false, true}) {
      for (const double nan_share : {0.0, 0.1}) {
        BOOST_TEST_CONTEXT(s.c << " classes, " << s.h << " x " << s.w << ", weighted " << weighted << ", NaN "
                               << nan_share) {
          check_class_metrics<double, gradus::nchw>(s.c, s.h, s.w, weighted, nan_share);
          check_class_metrics<float, gradus::nhwc>(s.c, s.h, s.w, weighted, nan_share);
          check_class_metrics<gradus::bfloat16, gradus::nhwc>(s.c, s.h, s.w, weighted, nan_share);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(number_metrics_are_their_definitions) {
  for (const bool weighted : {false, true}) {
    BOOST_TEST_CONTEXT("weighted " << weighted) {
      check_number_metrics<double, gradus::nchw>(3, 4, 5, weighted, 0, 1e-13);
      check_number_metrics<double, gradus::nhwc>(2, 3, 1, weighted, 0, 1e-13);
      check_number_metrics<float, gradus::nhwc>(4, 1, 1, weighted, 0, 1e-13);
      check_number_metrics<gradus::bfloat16, gradus::nchw>(3, 2, 3, weighted, 0, 1e-13);
    }
  }
}

// The difference of sums of squares would have no digit left: 1e8^2 has no digits behind the point in double.
BOOST_AUTO_TEST_CASE(r2_of_targets_far_from_zero_keeps_its_digits) {
  check_number_metrics<double, gradus::nchw>(2, 5, 5, false, 1e8, 1e-6);
  check_number_metrics<double, gradus::nhwc>(2, 5, 5, true, -3e7, 1e-6);
}

// Any parts of the examples, merged, are the whole; a state without examples changes nothing.
BOOST_AUTO_TEST_CASE(r2_of_parts_is_merged) {
  const metrics::example_shape shape{.scores = {1}, .targets = {.labels = 0, .values = {1}}};
  gradus::cpu device{{.intra_op_threads = 1}};
  const index_t count = 101;
  const gradus::random_stream stream{3, "parts"};
  gradus::image_tensor<double, gradus::nchw> y{device, {count, 1, 1, 1}};
  gradus::image_tensor<double, gradus::nchw> t{device, {count, 1, 1, 1}};
  for (index_t i = 0; i < count; ++i) {
    t(i, 0, 0, 0) = 1e9 + stream.normal(static_cast<std::uint64_t>(i));
    y(i, 0, 0, 0) = t(i, 0, 0, 0) + 0.1 * stream.normal(static_cast<std::uint64_t>(i + count));
  }
  const auto state_of = [&](index_t first, index_t number) {
    metrics::r2::state state{{}, shape};
    metrics::batch batch;
    gradus::nn::targets<double, gradus::cpu> compared;
    compared.values = gradus::nn::image_batch<const double, gradus::cpu>{t.view()};
    batch.assign(gradus::nn::image_batch<const double, gradus::cpu>{y.view()}, {1, 1, 1, 1}, compared, first, number);
    state.update(batch);
    return state;
  };
  const double whole = state_of(0, count).compute().mean;
  BOOST_TEST(whole > 0.9);
  metrics::r2::state merged{{}, shape};
  index_t first = 0;
  for (const index_t number : {1, 40, 0, 7, 53}) {
    metrics::r2::state part = state_of(first, number);
    merged.merge(part.sums());
    first += number;
  }
  BOOST_TEST(merged.compute().mean == whole, boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(r2_of_equal_targets_and_of_too_few) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::image_tensor<double, gradus::nchw> y{device, {3, 1, 1, 1}};
  gradus::image_tensor<double, gradus::nchw> t{device, {3, 1, 1, 1}};
  for (index_t i = 0; i < 3; ++i) {
    y(i, 0, 0, 0) = t(i, 0, 0, 0) = 0.1;
  }
  const auto r2_of = [&](index_t count) {
    metrics::meter meter{metrics::r2{}};
    meter.update(y.view().slice(0, count), t.view().slice(0, count));
    return meter.compute().mean;
  };
  BOOST_TEST(r2_of(3) == 1.0);
  BOOST_TEST(std::isnan(r2_of(1)));
  y(1, 0, 0, 0) = 0.2;
  BOOST_TEST(r2_of(3) == 0.0);
  t(2, 0, 0, 0) = not_a_number;
  BOOST_TEST(std::isnan(r2_of(3)));
  // Each pixel of one example is a target.
  gradus::image_tensor<double, gradus::nchw> scores{device, {1, 1, 1, 3}};
  gradus::image_tensor<double, gradus::nchw> targets{device, {1, 1, 1, 3}};
  targets(0, 0, 0, 0) = 1;
  targets(0, 0, 0, 2) = -1;
  scores(0, 0, 0, 0) = 2;
  metrics::meter meter{metrics::r2{}};
  meter.update(scores.view(), targets.view());
  BOOST_TEST(meter.compute().mean == 0.0);
}

BOOST_AUTO_TEST_CASE(equal_scores_rank_by_class_and_nan_ranks_nowhere) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::image_tensor<float, gradus::nhwc> scores{device, {1, 4, 1, 1}};
  const auto top = [&](index_t k, std::int32_t label) {
    metrics::meter meter{metrics::top_k{k}};
    meter.update(scores.view(), std::vector<std::int32_t>{label});
    return meter.compute();
  };
  for (std::int32_t label = 0; label < 4; ++label) {  // all scores are 0
    for (index_t k = 1; k <= 4; ++k) {
      BOOST_TEST(top(k, label) == (label < k ? 1.0 : 0.0));
    }
  }
  scores(0, 3, 0, 0) = static_cast<float>(not_a_number);
  BOOST_TEST(top(4, 0) == 0.0);
  BOOST_TEST(top(4, 3) == 0.0);
  scores(0, 3, 0, 0) = -std::numeric_limits<float>::infinity();
  BOOST_TEST(top(3, 2) == 1.0);
  BOOST_TEST(top(3, 3) == 0.0);
}

BOOST_AUTO_TEST_CASE(a_metric_of_the_program_is_a_metric) {
  metric_examples<float, gradus::nchw> examples{4, 1, 1, false, 0.0};
  for (auto& part : examples.parts) {
    std::replace(part.labels.begin(), part.labels.end(), 255, 0);
  }
  const double accuracy = examples.measure(metrics::accuracy{}, true);
  BOOST_TEST(examples.measure(error_rate{}, true) == 1 - accuracy, boost::test_tools::tolerance(1e-15));
}

BOOST_AUTO_TEST_CASE(a_meter_starts_again_and_refuses_what_does_not_fit) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::image_tensor<float, gradus::nhwc> scores{device, {2, 3, 1, 1}};
  gradus::image_tensor<float, gradus::nhwc> images{device, {2, 3, 2, 2}};
  gradus::image_tensor<float, gradus::nhwc> one{device, {2, 1, 1, 1}};
  const std::vector<std::int32_t> labels{0, 1};
  const auto expect = [](const std::function<void()>& call, const std::string& text) {
    const std::string message = metric_failure(call);
    BOOST_TEST(message.find(text) != std::string::npos, message);
    BOOST_TEST(message.find("[metrics.cpp:") != std::string::npos, message);
  };
  metrics::meter accuracy{metrics::accuracy{}};
  expect([&] { (void)accuracy.compute(); }, "accuracy: expected examples, got none");
  accuracy.update(scores.view(), labels);
  BOOST_TEST(accuracy.compute() == 0.5);
  accuracy.reset();
  accuracy.update(scores.view(), std::vector<std::int32_t>{0, 0});
  BOOST_TEST(accuracy.compute() == 1.0);
  expect([&] { accuracy.update(images.view(), std::vector<std::int32_t>(8)); },
         "accuracy: expected scores of (3) and a class for each example, as before, got scores of (3, 2, 2) and a "
         "class for each of 4 pixels");
  metrics::meter fresh{metrics::accuracy{}};
  expect([&] { fresh.update(scores.view(), std::vector<std::int32_t>{0, 3}); }, "labels in [0, 3)");
  expect([&] { metrics::meter{metrics::accuracy{}}.update(images.view(), labels); },
         "expected a class for each of 4 pixels for each example, with scores of (3, 2, 2), got a class");
  expect([&] { metrics::meter{metrics::accuracy{}}.update(scores.view(), scores.view()); },
         "expected a class for each example, with scores of (3), got real numbers of (3, 1, 1)");
  expect([&] { metrics::meter{metrics::accuracy{}}.update(scores.view(), std::vector<std::int32_t>(3)); },
         "expected targets of 2 examples, got 3 labels");
  expect([&] { metrics::meter{metrics::r2{}}.update(scores.view(), labels); },
         "r2: expected real numbers of (3, 1, 1) for each example, got a class");
  expect([&] { metrics::meter{metrics::mean_squared_error{}}.update(scores.view(), one.view()); },
         "real targets have the shape of the scores");
  for (const index_t k : {0, 4}) {
    expect([&] { metrics::meter{metrics::top_k{k}}.update(scores.view(), labels); },
           "top_k: expected a k from 1 to 3, the number of classes, got " + std::to_string(k));
  }
}

BOOST_AUTO_TEST_SUITE_END()

// SPDX-License-Identifier: BSL-1.0
//
// Losses against their definitions: values, gradients, weights, both layouts, 16 bits.
#include "gradus/nn/losses.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/random.hpp"
#include "gradus/kernels/cpu.hpp"
#include "gradus/kernels/cpu/formula.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/network.hpp"

namespace {

namespace nn = gradus::nn;
using gradus::index_t;

/// Value and derivative of a loss of one element.
struct loss_term {
  double value;
  double derivative;
};

/// Computes a loss of random scores and targets directly, and compares it with the definition.
template <class Element, class Layout, class Loss>
void check_terms(const Loss& options, const std::function<loss_term(double y, double t)>& definition, bool weighted,
                 double tolerance, bool probabilities = false) {
  gradus::cpu device{{.intra_op_threads = 2}};
  using number = gradus::parameter_element_t<Element>;
  const nn::value_shape shape{3, 5, 7};
  const gradus::image_extents extents = shape.batch(4);
  const auto count = static_cast<std::size_t>(extents.size());
  std::vector<Element> y(count);
  std::vector<Element> gradient(count);
  std::vector<number> t(count);
  const gradus::random_stream stream{3, "losses"};
  for (std::size_t i = 0; i < count; ++i) {
    y[i] = static_cast<Element>(static_cast<number>(2 * stream.normal(i)));
    t[i] = static_cast<number>(probabilities ? stream.uniform(i + count) : stream.normal(i + count));
  }
  const std::vector<number> weights{number{1}, number{0}, number{2}, number{0.5}};
  typename Loss::template loss<Element, Layout, gradus::cpu> loss{options};
  loss.infer(shape);
  loss.prepare(device);
  BOOST_TEST((loss.targets() == nn::target_description{.labels = 0, .values = shape}));
  nn::targets<Element, gradus::cpu> targets;
  targets.values = {device, t.data(), extents};
  if (weighted) {
    targets.weights = weights;
  }
  const nn::image_batch<const Element, gradus::cpu> scores{device, y.data(), extents};
  const auto sums = loss.compute(scores, targets, 0.25, {device, gradient.data(), extents});
  const auto only = loss.compute(scores, targets, 0.0, {device, nullptr, extents});
  double expected = 0;
  double worst = 0;
  const std::size_t per_example = count / 4;
  for (std::size_t i = 0; i < count; ++i) {
    const double weight = weighted ? static_cast<double>(weights[i / per_example]) : 1.0;
    const loss_term exact = definition(static_cast<double>(static_cast<number>(y[i])), static_cast<double>(t[i]));
    expected += weight * exact.value / static_cast<double>(per_example);
    const double slope = 0.25 * weight * exact.derivative / static_cast<double>(per_example);
    const double size = 1 + std::abs(slope) * static_cast<double>(per_example);
    worst = std::max(worst, std::abs(slope - static_cast<double>(static_cast<number>(gradient[i]))) / size);
  }
  BOOST_TEST_CONTEXT(loss.kind() << (weighted ? ", weighted" : "")) {
    BOOST_TEST(sums.loss == expected, boost::test_tools::tolerance(tolerance));
    BOOST_TEST(only.loss == sums.loss);
    BOOST_TEST(sums.labels == 0);
    BOOST_TEST(worst * static_cast<double>(per_example) < tolerance);
  }
}

template <class Loss>
void check_loss(const Loss& options, const std::function<loss_term(double, double)>& definition,
                bool probabilities = false) {
  for (const bool weighted : {false, true}) {
    check_terms<double, gradus::nchw>(options, definition, weighted, 1e-13, probabilities);
    check_terms<float, gradus::nhwc>(options, definition, weighted, 2e-6, probabilities);
    check_terms<gradus::bfloat16, gradus::nhwc>(options, definition, weighted, 0.02, probabilities);
  }
}

double sign_of(double x) {
  return x > 0 ? 1.0 : (x < 0 ? -1.0 : 0.0);
}

/// Scores and labels of images, with all options of the cross-entropy.
struct pixel_case {
  index_t classes;
  index_t height;
  index_t width;
  nn::softmax_cross_entropy options;
  bool weighted;
};

template <class Element, class Layout>
void check_pixels(const pixel_case& chosen, double tolerance) {
  gradus::cpu device{{.intra_op_threads = 2}};
  using number = gradus::parameter_element_t<Element>;
  const nn::value_shape shape{chosen.classes, chosen.height, chosen.width};
  const gradus::image_extents extents = shape.batch(3);
  const auto strides = gradus::dense_strides<Layout, 4>(extents);
  const auto count = static_cast<std::size_t>(extents.size());
  const auto pixels = static_cast<std::size_t>(chosen.height * chosen.width);
  std::vector<Element> z(count);
  std::vector<Element> gradient(count);
  std::vector<std::int32_t> labels(3 * pixels);
  const gradus::random_stream stream{5, "pixels"};
  for (std::size_t i = 0; i < count; ++i) {
    z[i] = static_cast<Element>(static_cast<number>(3 * stream.normal(i)));
  }
  for (std::size_t i = 0; i < labels.size(); ++i) {
    labels[i] = static_cast<std::int32_t>(stream.uniform(i + count) * static_cast<double>(chosen.classes));
    if (chosen.options.ignored_label && i % 4 == 1) {
      labels[i] = *chosen.options.ignored_label;
    }
  }
  const std::vector<number> weights{number{0.5}, number{2}, number{1}};
  nn::softmax_cross_entropy::loss<Element, Layout, gradus::cpu> loss{chosen.options};
  loss.infer(shape);
  loss.prepare(device);
  nn::targets<Element, gradus::cpu> targets{labels};
  if (chosen.weighted) {
    targets.weights = weights;
  }
  const auto sums = loss.compute({device, z.data(), extents}, targets, 0.5, {device, gradient.data(), extents});
  double expected = 0;
  double worst = 0;
  index_t correct = 0;
  index_t counted = 0;
  for (index_t n = 0; n < 3; ++n) {
    for (std::size_t p = 0; p < pixels; ++p) {
      const auto logit = [&](index_t k) {
        const auto h = static_cast<index_t>(p) / chosen.width;
        const auto w = static_cast<index_t>(p) % chosen.width;
        return static_cast<std::size_t>(n * strides[0] + k * strides[1] + h * strides[2] + w * strides[3]);
      };
      const std::int32_t label = labels[static_cast<std::size_t>(n) * pixels + p];
      const bool counts = label != chosen.options.ignored_label;
      double largest = -1e300;
      index_t best = 0;
      for (index_t k = 0; k < chosen.classes; ++k) {
        const auto value = static_cast<double>(static_cast<number>(z[logit(k)]));
        if (value > largest) {
          largest = value;
          best = k;
        }
      }
      double sum = 0;
      for (index_t k = 0; k < chosen.classes; ++k) {
        sum += std::exp(static_cast<double>(static_cast<number>(z[logit(k)])) - largest);
      }
      counted += counts ? 1 : 0;
      correct += counts && best == label ? 1 : 0;
      const double weight = (chosen.weighted ? static_cast<double>(weights[static_cast<std::size_t>(n)]) : 1.0) /
                            static_cast<double>(pixels);
      // The loss is the sum over k of share(k) * -log p(k).
      std::vector<double> share(static_cast<std::size_t>(chosen.classes));
      double total = 0;
      for (index_t k = 0; k < chosen.classes && counts; ++k) {
        const auto i = static_cast<std::size_t>(k);
        const double of_class = chosen.options.class_weights.empty() ? 1.0 : chosen.options.class_weights[i];
        share[i] = of_class * (chosen.options.label_smoothing / static_cast<double>(chosen.classes) +
                               (k == label ? 1 - chosen.options.label_smoothing : 0.0));
        total += share[i];
      }
      for (index_t k = 0; k < chosen.classes; ++k) {
        const auto i = static_cast<std::size_t>(k);
        const double log_p = static_cast<double>(static_cast<number>(z[logit(k)])) - largest - std::log(sum);
        expected -= weight * share[i] * log_p;
        const double slope = 0.5 * weight * (total * std::exp(log_p) - share[i]);
        worst = std::max(worst, std::abs(slope - static_cast<double>(static_cast<number>(gradient[logit(k)]))));
      }
    }
  }
  BOOST_TEST(sums.loss == expected, boost::test_tools::tolerance(tolerance));
  BOOST_TEST(worst * static_cast<double>(pixels) < tolerance);
  BOOST_TEST(sums.correct == correct);
  BOOST_TEST(sums.labels == counted);
}

std::string text_of_failure(const std::function<void()>& call) {
  try {
    call();
  } catch (const gradus::error& failure) {
    return failure.what();
  }
  return "no error";
}

using huber_elements = std::tuple<float, double>;

}  // namespace

BOOST_AUTO_TEST_SUITE(losses)

BOOST_AUTO_TEST_CASE(elementwise_losses_are_their_definitions) {
  check_loss(nn::mean_squared_error{}, [](double y, double t) { return loss_term{(y - t) * (y - t), 2 * (y - t)}; });
  check_loss(nn::mean_absolute_error{}, [](double y, double t) { return loss_term{std::abs(y - t), sign_of(y - t)}; });
  check_loss(nn::huber{.delta = 0.7}, [](double y, double t) {
    const double e = std::abs(y - t);
    return e <= 0.7 ? loss_term{0.5 * e * e, y - t} : loss_term{0.7 * (e - 0.35), 0.7 * sign_of(y - t)};
  });
  for (const double p : {1.0, 3.0}) {
    check_loss(
        nn::binary_cross_entropy_with_logits{.positive_weight = p},
        [p](double y, double t) {
          const double s = 1 / (1 + std::exp(-y));
          return loss_term{p * t * std::log1p(std::exp(-y)) + (1 - t) * std::log1p(std::exp(y)),
                           -p * t * (1 - s) + (1 - t) * s};
        },
        true);
  }
  check_loss(nn::loss_of([](auto y, auto t) { return mean(square(square(y - t))); }), [](double y, double t) {
    return loss_term{std::pow(y - t, 4), 4 * std::pow(y - t, 3)};
  });
}

// Each channel by itself, with its weight, adds up to the loss of all: that of
// torch.nn.BCEWithLogitsLoss(pos_weight=p).
template <class Element, class Layout>
void check_positive_weights(const std::vector<double>& p, bool weighted, double tolerance) {
  using number = gradus::parameter_element_t<Element>;
  gradus::cpu device{{.intra_op_threads = 3}};
  const nn::value_shape shape{static_cast<index_t>(p.size()), 3, 5};
  const gradus::image_extents extents = shape.batch(4);
  const auto strides = gradus::dense_strides<Layout, 4>(extents);
  const auto count = static_cast<std::size_t>(extents.size());
  std::vector<Element> y(count);
  std::vector<Element> gradient(count);
  std::vector<number> t(count);
  const gradus::random_stream stream{7, "positive weights"};
  for (std::size_t i = 0; i < count; ++i) {
    y[i] = static_cast<Element>(static_cast<number>(2 * stream.normal(i)));
    t[i] = static_cast<number>(i % 3 == 0 ? 0.0 : i % 3 == 1 ? 1.0 : stream.uniform(i + count));
  }
  const std::vector<number> weights{number{1}, number{0}, number{2}, number{0.5}};
  nn::binary_cross_entropy_with_logits::loss<Element, Layout, gradus::cpu> loss{
      nn::binary_cross_entropy_with_logits{.positive_weight = p}};
  loss.infer(shape);
  loss.prepare(device);
  nn::targets<Element, gradus::cpu> targets;
  targets.values = {device, t.data(), extents};
  if (weighted) {
    targets.weights = weights;
  }
  const auto sums = loss.compute({device, y.data(), extents}, targets, 0.25, {device, gradient.data(), extents});
  double expected = 0;
  double worst = 0;
  for (index_t n = 0; n < 4; ++n) {
    const double weight = (weighted ? static_cast<double>(weights[static_cast<std::size_t>(n)]) : 1.0) /
                          static_cast<double>(shape.size());
    for (index_t c = 0; c < shape.channels; ++c) {
      for (index_t h = 0; h < shape.height; ++h) {
        for (index_t w = 0; w < shape.width; ++w) {
          const auto i = static_cast<std::size_t>(n * strides[0] + c * strides[1] + h * strides[2] + w * strides[3]);
          const double of_channel = p[static_cast<std::size_t>(c)];
          const auto score = static_cast<double>(static_cast<number>(y[i]));
          const auto target = static_cast<double>(t[i]);
          const double s = 1 / (1 + std::exp(-score));
          expected += weight *
                      (of_channel * target * std::log1p(std::exp(-score)) + (1 - target) * std::log1p(std::exp(score)));
          const double slope = 0.25 * weight * (-of_channel * target * (1 - s) + (1 - target) * s);
          worst = std::max(worst, std::abs(slope - static_cast<double>(static_cast<number>(gradient[i]))));
        }
      }
    }
  }
  BOOST_TEST(sums.loss == expected, boost::test_tools::tolerance(tolerance));
  BOOST_TEST(worst * static_cast<double>(shape.size()) < tolerance, worst);
}

BOOST_AUTO_TEST_CASE(positive_weights_of_channels_are_those_of_pytorch) {
  for (const bool weighted : {false, true}) {
    for (const std::vector<double>& p : {std::vector<double>{0.5, 1, 4, 2.5}, std::vector<double>{3, 0.25}}) {
      check_positive_weights<double, gradus::nchw>(p, weighted, 1e-13);
      check_positive_weights<double, gradus::nhwc>(p, weighted, 1e-13);
      check_positive_weights<float, gradus::nhwc>(p, weighted, 2e-6);
      check_positive_weights<gradus::bfloat16, gradus::nchw>(p, weighted, 0.02);
    }
  }
}

BOOST_AUTO_TEST_CASE(huber_takes_errors_whose_square_is_infinite) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const std::vector<double> y{1e160, -1e300, 0.25, 3};
  const std::vector<double> t(4);
  std::vector<double> gradient(4);
  nn::huber::loss<double, gradus::nchw, gradus::cpu> loss{nn::huber{}};
  loss.infer({1});
  loss.prepare(device);
  const gradus::image_extents extents{4, 1, 1, 1};
  nn::targets<double, gradus::cpu> targets;
  targets.values = {device, t.data(), extents};
  const auto sums = loss.compute({device, y.data(), extents}, targets, 1.0, {device, gradient.data(), extents});
  BOOST_TEST(sums.loss == 1e300, boost::test_tools::tolerance(1e-15));
  BOOST_TEST(gradient == (std::vector<double>{1, -1, 0.25, 1}), boost::test_tools::per_element());
}

// Errors up to infinity, in a row that is as long as several packets: gradients are those of the definition.
BOOST_AUTO_TEST_CASE_TEMPLATE(huber_has_finite_gradients_for_all_finite_numbers, Element, huber_elements) {
  gradus::cpu device{{.intra_op_threads = 1}};
  constexpr Element most = std::numeric_limits<Element>::max();
  const std::vector<Element> numbers{most, -most, most / 2, -most / 2, std::sqrt(most), Element{1}, Element{0}};
  const Element large = std::sqrt(most) * 4;  // its square is infinite
  for (const Element delta : {Element{0.5}, Element{1}, large}) {
    std::vector<Element> y;
    std::vector<Element> t;
    for (const Element one : numbers) {
      for (const Element other : numbers) {
        y.push_back(one);
        t.push_back(other);
      }
    }
    const auto count = static_cast<gradus::index_t>(y.size());
    typename nn::huber::loss<Element, gradus::nchw, gradus::cpu> loss{nn::huber{.delta = static_cast<double>(delta)}};
    loss.infer({.channels = count});
    loss.prepare(device);
    const gradus::image_extents extents{1, count, 1, 1};
    nn::targets<Element, gradus::cpu> targets;
    targets.values = {device, t.data(), extents};
    std::vector<Element> gradient(y.size());
    const auto sums = loss.compute({device, y.data(), extents}, targets, static_cast<double>(count),
                                   {device, gradient.data(), extents});
    BOOST_TEST(!std::isnan(sums.loss));
    for (std::size_t i = 0; i < y.size(); ++i) {
      const Element error = y[i] - t[i];
      const Element want = std::abs(error) <= delta ? error : std::copysign(delta, error);
      BOOST_TEST(std::abs(gradient[i] - want) <= std::abs(want) * Element{1e-6F},
                 "y " << y[i] << " t " << t[i] << " delta " << delta << ": " << gradient[i]);
    }
  }
}

// Logits of +-1000 have finite losses and gradients.
BOOST_AUTO_TEST_CASE(binary_cross_entropy_does_not_overflow) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::binary_cross_entropy_with_logits::loss<float, gradus::nchw, gradus::cpu> loss{{}};
  loss.infer({.channels = 4});
  const float y[4] = {1000, -1000, 1000, -1000};
  const float t[4] = {1, 0, 0, 1};
  float gradient[4];
  nn::targets<float, gradus::cpu> targets;
  targets.values = {device, t, gradus::image_extents{1, 4, 1, 1}};
  const gradus::image_extents extents{1, 4, 1, 1};
  BOOST_TEST(loss.compute({device, y, extents}, targets, 4.0, {device, gradient, extents}).loss == 500.0);
  BOOST_TEST(gradient[0] == 0.0F);
  BOOST_TEST(gradient[1] == 0.0F);
  BOOST_TEST(gradient[2] == 1.0F);
  BOOST_TEST(gradient[3] == -1.0F);
}

BOOST_AUTO_TEST_CASE(cross_entropy_of_pixels_is_its_definition) {
  for (const index_t classes : {1, 2, 5, 19}) {
    std::vector<double> class_weights;
    for (index_t k = 0; k < classes; ++k) {
      class_weights.push_back(0.5 + 0.25 * static_cast<double>(k % 4));
    }
    for (const auto& [height, width] : {std::pair<index_t, index_t>{1, 1}, {3, 5}, {8, 9}}) {
      for (const double smoothing : {0.0, 0.1}) {
        for (int choice = 0; choice < 8; ++choice) {
          const pixel_case chosen{
              classes,
              height,
              width,
              {.label_smoothing = smoothing,
               .class_weights = (choice & 1) != 0 ? class_weights : std::vector<double>{},
               .ignored_label = (choice & 2) != 0 ? std::optional<std::int32_t>{255} : std::nullopt},
              (choice & 4) != 0};
          BOOST_TEST_CONTEXT(classes << " classes, " << height << " x " << width << ", smoothing " << smoothing
                                     << ", choice " << choice) {
            check_pixels<double, gradus::nchw>(chosen, 1e-12);
            check_pixels<float, gradus::nchw>(chosen, 2e-5);
            check_pixels<float, gradus::nhwc>(chosen, 2e-5);
            check_pixels<gradus::bfloat16, gradus::nhwc>(chosen, 0.02);
          }
        }
      }
    }
  }
}

// A hard label is a probability of 1: both losses and gradients are the same. The second batch is smaller.
BOOST_AUTO_TEST_CASE(soft_labels_of_one_class_are_labels) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const nn::value_shape shape{3, 2, 2};
  nn::soft_cross_entropy::loss<double, gradus::nhwc, gradus::cpu> soft{{}};
  nn::softmax_cross_entropy::loss<double, gradus::nhwc, gradus::cpu> hard{{}};
  soft.infer(shape);
  hard.infer(shape);
  for (const index_t batch : {3, 2}) {
    const gradus::image_extents extents = shape.batch(batch);
    const auto count = static_cast<std::size_t>(extents.size());
    std::vector<double> y(count);
    std::vector<double> t(count);
    std::vector<std::int32_t> labels(count / 3);
    const gradus::random_stream stream{5, "soft labels"};
    for (std::size_t i = 0; i < count; ++i) {
      y[i] = 3 * stream.normal(i);
      labels[i / 3] = static_cast<std::int32_t>(i / 3 % 3);
      t[i] = i % 3 == i / 3 % 3 ? 1.0 : 0.0;
    }
    std::vector<double> expected(count);
    std::vector<double> gradient(count);
    const nn::image_batch<const double, gradus::cpu> scores{device, y.data(), extents};
    nn::targets<double, gradus::cpu> probabilities;
    probabilities.values = {device, t.data(), extents};
    const auto sums = soft.compute(scores, probabilities, 0.5, {device, gradient.data(), extents});
    const auto right = hard.compute(scores, {labels}, 0.5, {device, expected.data(), extents});
    BOOST_TEST(sums.loss == right.loss, boost::test_tools::tolerance(1e-13));
    BOOST_TEST(soft.compute(scores, probabilities, 0.5, {}).loss == sums.loss);  // an evaluation
    for (std::size_t i = 0; i < count; ++i) {
      BOOST_TEST(std::abs(gradient[i] - expected[i]) < 1e-14);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_mean_over_valid_labels_without_one_is_zero) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::softmax_cross_entropy::loss<double, gradus::nhwc, gradus::cpu> loss{
      {.ignored_label = 255, .reduction = nn::label_reduction::valid}};
  loss.infer({2, 1, 1});
  const std::vector<double> y{1, -1, 2, 3};
  std::vector<double> gradient{7, 7, 7, 7};
  const auto compute = [&](const std::vector<std::int32_t>& labels) {
    return loss.compute({device, y.data(), {2, 2, 1, 1}}, {labels}, 0.5, {device, gradient.data(), {2, 2, 1, 1}}).loss;
  };
  BOOST_TEST(compute({255, 255}) == 0.0);
  BOOST_TEST(gradient == (std::vector<double>{0, 0, 0, 0}), boost::test_tools::per_element());
  // One valid label of two: its loss, twice, as a sum over two examples whose mean it is.
  BOOST_TEST(compute({255, 0}) == 2 * std::log(1 + std::exp(1.0)), boost::test_tools::tolerance(1e-13));
}

BOOST_AUTO_TEST_CASE(options_that_make_no_sense_are_refused) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const auto end = [&](const auto& loss) {
    nn::network<float, gradus::nhwc> net{device, {.channels = 3}};
    net.loss(loss, net.add("scores", nn::dense{.out_features = 4}, net.input()));
  };
  const auto expect = [&](const auto& loss, const std::string& text) {
    const std::string message = text_of_failure([&] { end(loss); });
    BOOST_TEST(message.find(text) != std::string::npos, message);
  };
  expect(nn::huber{.delta = 0}, "huber: expected a finite delta above 0, got 0");
  expect(nn::binary_cross_entropy_with_logits{.positive_weight = -1}, "positive_weight above 0, got -1");
  expect(nn::binary_cross_entropy_with_logits{.positive_weight = {1, 2, 0, 4}}, "positive_weight above 0, got 0");
  expect(nn::binary_cross_entropy_with_logits{.positive_weight = {1, 2}},
         "one positive_weight, or one for each of 4 channels, got 2 weights");
  expect(nn::softmax_cross_entropy{.label_smoothing = 1}, "a label_smoothing in [0, 1), got 1");
  expect(nn::softmax_cross_entropy{.class_weights = {1, 2}}, "a weight for each of 4 classes, or none, got 2 weights");
  expect(nn::softmax_cross_entropy{.class_weights = {1, 2, 3, -4}}, "finite class weights of at least 0, got -4");
}

BOOST_AUTO_TEST_CASE(targets_of_another_kind_are_refused) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float, gradus::nhwc> net{device, {.channels = 3}};
  net.loss(nn::mean_squared_error{}, net.add("scores", nn::dense{.out_features = 4}, net.input()));
  net.compile({.max_batch_size = 2});
  const gradus::image_tensor<float, gradus::nhwc> images{device, {2, 3, 1, 1}};
  const std::vector<std::int32_t> labels{0, 1};
  const std::string with_labels = text_of_failure([&] { net.train_step(images, labels); });
  BOOST_TEST(with_labels.find("expected real targets of (2, 4, 1, 1) and no labels, got 2 labels") != std::string::npos,
             with_labels);
  const gradus::image_tensor<float, gradus::nhwc> values{device, {2, 3, 1, 1}};
  const std::string with_values = text_of_failure([&] { net.train_step(images, values.view()); });
  BOOST_TEST(with_values.find("real targets of (2, 4, 1, 1)") != std::string::npos, with_values);
}

BOOST_AUTO_TEST_SUITE_END()

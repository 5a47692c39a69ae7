// SPDX-License-Identifier: BSL-1.0
//
// The loss of the cosine similarity against its definition: sizes of blocks and vectors, weights, 16 bits, threads.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/core/random.hpp"
#include "gradus/data/in_memory.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/kernels/cpu.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/losses.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/train/trainer.hpp"

namespace {

namespace nn = gradus::nn;
using gradus::index_t;

struct cosine_case {
  index_t channels;
  index_t height;
  index_t width;
  bool weighted;
  bool flattened;
  double epsilon;
};

/// What the loss of random scores is.
template <class Element>
struct cosine_outcome {
  double loss = 0;
  std::vector<Element> gradient;
};

template <class Element, class Layout>
class cosine_examples {
 public:
  using number = gradus::parameter_element_t<Element>;

  explicit cosine_examples(const cosine_case& chosen)
      : chosen_{chosen}, extents_{3, chosen.channels, chosen.height, chosen.width} {
    const gradus::random_stream stream{17, "cosine"};
    const auto count = static_cast<std::uint64_t>(extents_.size());
    for (std::uint64_t i = 0; i < count; ++i) {
      y.push_back(static_cast<Element>(static_cast<number>(2 * stream.normal(i))));
      t.push_back(static_cast<number>(stream.normal(i + count)));
    }
  }

  [[nodiscard]] cosine_outcome<Element> compute(int threads, double scale, bool in_place = false) {
    gradus::cpu device{{.intra_op_threads = threads}};
    typename nn::cosine_similarity::loss<Element, Layout, gradus::cpu> loss{{.epsilon = chosen_.epsilon}};
    loss.infer({chosen_.channels, chosen_.height, chosen_.width, chosen_.flattened});
    loss.prepare(device);
    nn::targets<Element, gradus::cpu> compared;
    compared.values = {device, t.data(), extents_};
    if (chosen_.weighted) {
      compared.weights = weights;
    }
    cosine_outcome<Element> result{0, in_place ? y : std::vector<Element>(y.size())};
    const Element* const scores = in_place ? result.gradient.data() : y.data();
    const auto sums =
        loss.compute({device, scores, extents_}, compared, scale, {device, result.gradient.data(), extents_});
    const auto only = loss.compute({device, y.data(), extents_}, compared, 0.0, {device, nullptr, extents_});
    BOOST_TEST(sums.loss == only.loss);
    BOOST_TEST(sums.labels == 0);
    result.loss = sums.loss;
    return result;
  }

  /// Loss and gradient by the definition.
  [[nodiscard]] cosine_outcome<double> define(double scale) const {
    cosine_outcome<double> result{0, std::vector<double>(y.size())};
    const auto strides = gradus::dense_strides<Layout, 4>(extents_);
    const index_t pixels = chosen_.flattened ? 1 : chosen_.height * chosen_.width;
    for (index_t n = 0; n < 3; ++n) {
      const double weight = (chosen_.weighted ? static_cast<double>(weights[static_cast<std::size_t>(n)]) : 1.0) /
                            static_cast<double>(pixels);
      for (index_t p = 0; p < pixels; ++p) {
        std::vector<std::size_t> vector;
        for (index_t c = 0; c < chosen_.channels; ++c) {
          for (index_t h = 0; h < chosen_.height; ++h) {
            for (index_t w = 0; w < chosen_.width; ++w) {
              if (chosen_.flattened || h * chosen_.width + w == p) {
                vector.push_back(
                    static_cast<std::size_t>(n * strides[0] + c * strides[1] + h * strides[2] + w * strides[3]));
              }
            }
          }
        }
        double product = 0;
        double own = 0;
        double other = 0;
        for (const std::size_t i : vector) {
          product += score(i) * static_cast<double>(t[i]);
          own += score(i) * score(i);
          other += static_cast<double>(t[i]) * static_cast<double>(t[i]);
        }
        const double divisor = std::max(std::sqrt(own), chosen_.epsilon);
        const double both = divisor * std::max(std::sqrt(other), chosen_.epsilon);
        result.loss += weight * (1 - product / both);
        for (const std::size_t i : vector) {
          result.gradient[i] =
              -scale * weight *
              (static_cast<double>(t[i]) / both - product / both / divisor * score(i) / std::sqrt(own));
        }
      }
    }
    return result;
  }

  std::vector<Element> y;
  std::vector<number> t;

 private:
  [[nodiscard]] double score(std::size_t i) const { return static_cast<double>(static_cast<number>(y[i])); }

  cosine_case chosen_;
  gradus::image_extents extents_;
  std::vector<number> weights{number{0.5}, number{0}, number{2}};
};

template <class Element, class Layout>
void check_cosine(const cosine_case& chosen, double tolerance) {
  cosine_examples<Element, Layout> examples{chosen};
  const auto want = examples.define(0.25);
  const auto have = examples.compute(1, 0.25);
  BOOST_TEST(have.loss == want.loss, boost::test_tools::tolerance(std::min(tolerance, 1e-12)));
  double worst = 0;
  for (std::size_t i = 0; i < want.gradient.size(); ++i) {
    const auto value =
        static_cast<double>(static_cast<typename cosine_examples<Element, Layout>::number>(have.gradient[i]));
    const double difference = std::abs(value - want.gradient[i]);
    worst = std::max(worst, std::isnan(difference) ? 1e300 : difference);
  }
  BOOST_TEST(worst <= tolerance, worst);
  for (const bool in_place : {false, true}) {
    const auto again = examples.compute(in_place ? 1 : 3, 0.25, in_place);
    BOOST_TEST(again.loss == have.loss);
    BOOST_TEST((again.gradient == have.gradient));
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cosine_similarity)

BOOST_AUTO_TEST_CASE(the_loss_is_its_definition) {
  for (const index_t channels : {1, 2, 7, 8, 9, 33, 128}) {
    for (const auto& [height, width] : {std::pair<index_t, index_t>{1, 1}, {3, 5}, {8, 8}, {5, 13}}) {
      for (const bool weighted : {false, true}) {
        for (const bool flattened : {false, true}) {
          for (const double epsilon : {1e-8, 3.0}) {  // 3: norms are below and above
            const cosine_case chosen{channels, height, width, weighted, flattened, epsilon};
            BOOST_TEST_CONTEXT(channels << " x " << height << " x " << width << ", weighted " << weighted
                                        << ", flattened " << flattened << ", epsilon " << epsilon) {
              check_cosine<double, gradus::nchw>(chosen, 1e-13);
              check_cosine<double, gradus::nhwc>(chosen, 1e-13);
              check_cosine<float, gradus::nchw>(chosen, 1e-7);
              check_cosine<float, gradus::nhwc>(chosen, 1e-7);
              check_cosine<gradus::bfloat16, gradus::nhwc>(chosen, 5e-3);
              check_cosine<gradus::float16, gradus::nchw>(chosen, 1e-3);
            }
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_gradient_agrees_with_finite_differences) {
  cosine_examples<double, gradus::nchw> examples{{5, 2, 3, true, false, 1e-8}};
  const auto gradient = examples.compute(1, 1.0).gradient;
  const double step = 1e-6;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double value = examples.y[i];
    examples.y[i] = value + step;
    const double above = examples.compute(1, 1.0).loss;
    examples.y[i] = value - step;
    const double below = examples.compute(1, 1.0).loss;
    examples.y[i] = value;
    BOOST_TEST(std::abs((above - below) / (2 * step) - gradient[i]) < 1e-8);
  }
}

BOOST_AUTO_TEST_CASE(nan_scores_have_a_nan_loss_and_epsilon_is_checked) {
  cosine_examples<float, gradus::nhwc> examples{{3, 1, 1, false, false, 1e-8}};
  examples.y[0] = std::nanf("");
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::cosine_similarity::loss<float, gradus::nhwc, gradus::cpu> loss{{}};
  loss.infer({.channels = 3});
  nn::targets<float, gradus::cpu> compared;
  const gradus::image_extents extents{3, 3, 1, 1};
  compared.values = {device, examples.t.data(), extents};
  BOOST_TEST(
      std::isnan(loss.compute({device, examples.y.data(), extents}, compared, 0.0, {device, nullptr, extents}).loss));
  nn::network<float, gradus::nhwc> net{device, {.channels = 3}};
  const nn::value scores = net.add("scores", nn::dense{.out_features = 4}, net.input());
  BOOST_CHECK_EXCEPTION(
      net.loss(nn::cosine_similarity{.epsilon = 0}, scores), gradus::configuration_error, [](const auto& failure) {
        return std::string{failure.what()}.find("a finite epsilon above 0, got 0") != std::string::npos;
      });
}

// The direction is learned, and not the length.
BOOST_AUTO_TEST_CASE(a_network_learns_directions) {
  std::vector<float> x;
  std::vector<float> y;
  for (int i = 0; i < 64; ++i) {
    const double angle = 0.1 * i;
    x.push_back(static_cast<float>(std::cos(angle)));
    x.push_back(static_cast<float>(std::sin(angle)));
    y.push_back(static_cast<float>(100 * std::cos(angle + 1)));
    y.push_back(static_cast<float>(100 * std::sin(angle + 1)));
  }
  const auto set = gradus::data::in_memory(gradus::data::examples_of(std::span{x}, {1, 2, 1, 1}),
                                           gradus::data::examples_of(std::span{y}, {1, 2, 1, 1}));
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float> net{device, {.channels = 2}};
  net.loss(nn::cosine_similarity{}, net.add("output", nn::dense{.out_features = 2}, net.input()));
  net.compile({.max_batch_size = 16, .seed = 1});
  gradus::data::loader<float, gradus::nchw> loader{device, set, {.global_batch_size = 16, .seed = 1}};
  gradus::train::trainer trainer{net, gradus::optim::adam{}};
  trainer.fit(loader, {.epochs = 100, .learning_rate = 0.02});
  BOOST_TEST(trainer.evaluate(loader).loss < 1e-3);
}

BOOST_AUTO_TEST_SUITE_END()

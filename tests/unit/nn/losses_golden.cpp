// SPDX-License-Identifier: BSL-1.0
//
// Losses and their gradients against what PyTorch computes (tests/golden/losses.txt), in both layouts, float and
// double.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gradus/kernels/cpu.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/nn/loss.hpp"
#include "gradus/nn/losses.hpp"
#include "source_directory.hpp"

namespace {

namespace nn = gradus::nn;
using gradus::index_t;

struct golden_loss {
  std::string name;
  bool weighted = false;
  gradus::image_extents shape{};
  std::vector<double> numbers;  // the loss, and the gradient in the order (n, c, h, w)
};

/// How a case changes the scores or targets of its first example.
enum class first_example { as_others, small_scores, zero_scores, zero_targets };

template <class Element, class Layout, class Loss>
void check_golden(const golden_loss& want, const Loss& options, bool labeled, double tolerance, double less = 0,
                  first_example first = first_example::as_others) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const auto strides = gradus::dense_strides<Layout, 4>(want.shape);
  const auto count = static_cast<std::size_t>(want.shape.size());
  const index_t one = want.shape.c * want.shape.h * want.shape.w;
  std::vector<Element> y(count);
  std::vector<Element> t(count);
  std::vector<Element> gradient(count);
  std::vector<std::size_t> at;  // of the elements in the order (n, c, h, w)
  for (index_t n = 0; n < want.shape.n; ++n) {
    for (index_t c = 0; c < want.shape.c; ++c) {
      for (index_t h = 0; h < want.shape.h; ++h) {
        for (index_t w = 0; w < want.shape.w; ++w) {
          at.push_back(static_cast<std::size_t>(n * strides[0] + c * strides[1] + h * strides[2] + w * strides[3]));
        }
      }
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    const bool in_first = static_cast<index_t>(i) < one;
    double score = (static_cast<double>((37 * i + 11) % 64) - 31) / 16;
    double target = static_cast<double>((23 * i + 5) % 32) / 32 - less;
    if (in_first && first == first_example::small_scores) {
      score = std::ldexp(score, -30);
    }
    score = in_first && first == first_example::zero_scores ? 0.0 : score;
    target = in_first && first == first_example::zero_targets ? 0.0 : target;
    y[at[i]] = static_cast<Element>(score);
    t[at[i]] = static_cast<Element>(target);
  }
  std::vector<std::int32_t> labels(static_cast<std::size_t>(want.shape.n * want.shape.h * want.shape.w));
  const bool ignores =
      want.name.ends_with("ignored") || want.name.ends_with("all") || want.name.starts_with("cross_entropy_valid");
  for (std::size_t i = 0; i < labels.size(); ++i) {
    labels[i] = i % 4 == 1 ? (ignores ? 255 : 0)
                           : static_cast<std::int32_t>((3 * i + 1) % static_cast<std::size_t>(want.shape.c));
  }
  std::vector<Element> weights;
  for (index_t i = 0; i < want.shape.n && want.weighted; ++i) {
    weights.push_back(static_cast<Element>(0.5 + static_cast<double>(i % 3)));
  }
  typename Loss::template loss<Element, Layout, gradus::cpu> loss{options};
  loss.infer({want.shape.c, want.shape.h, want.shape.w});
  loss.prepare(device);
  nn::targets<Element, gradus::cpu> compared;
  if (labeled) {
    compared.labels = labels;
  } else {
    compared.values = {device, t.data(), want.shape};
  }
  compared.weights = weights;
  const auto sums = loss.compute({device, y.data(), want.shape}, compared, 1.0, {device, gradient.data(), want.shape});
  BOOST_TEST(sums.loss == want.numbers[0], boost::test_tools::tolerance(tolerance));
  BOOST_REQUIRE_EQUAL(want.numbers.size(), count + 1);
  double worst = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double exact = want.numbers[i + 1];
    const double difference = std::abs(static_cast<double>(gradient[at[i]]) - exact) / std::max(1.0, std::abs(exact));
    worst = std::max(worst, std::isnan(difference) ? 1e300 : difference);
  }
  BOOST_TEST(worst <= tolerance, worst);
}

template <class Element, class Layout>
bool check_golden_case(const golden_loss& want) {
  const std::string& name = want.name;
  // PyTorch sums the cosine in float: terms that cancel leave its rounding error.
  const double float_tolerance = name == "cosine_similarity_small_scores" ? 1e-5 : 1e-6;
  const double tolerance = sizeof(Element) == 4 ? float_tolerance : 1e-13;
  const auto run = [&](const auto& options, bool labeled, double less = 0,
                       first_example first = first_example::as_others) {
    check_golden<Element, Layout>(want, options, labeled, tolerance, less, first);
    return true;
  };
  if (name.starts_with("cross_entropy")) {
    nn::softmax_cross_entropy options;
    const bool all = name == "cross_entropy_all";
    const bool valid = name.starts_with("cross_entropy_valid");
    options.label_smoothing = all || valid || name == "cross_entropy_smoothing" ? 0.125 : 0.0;
    for (index_t k = 0; k < want.shape.c && (all || name.ends_with("_weights")); ++k) {
      options.class_weights.push_back(0.5 + 0.25 * static_cast<double>(k));
    }
    if (all || valid || name == "cross_entropy_ignored") {
      options.ignored_label = 255;
    }
    options.reduction = valid ? nn::label_reduction::valid : nn::label_reduction::pixels;
    return run(options, true);
  }
  if (name.starts_with("binary_cross_entropy")) {
    return run(nn::binary_cross_entropy_with_logits{.positive_weight = name.ends_with("positive") ? 2.5 : 1.0}, false);
  }
  if (name.starts_with("cosine_similarity")) {
    return run(nn::cosine_similarity{}, false, 0.25,
               name.ends_with("zero_targets")   ? first_example::zero_targets
               : name.ends_with("zero_scores")  ? first_example::zero_scores
               : name.ends_with("small_scores") ? first_example::small_scores
                                                : first_example::as_others);
  }
  if (name == "soft_cross_entropy") {
    return run(nn::soft_cross_entropy{}, false);
  }
  return name == "mean_squared_error"    ? run(nn::mean_squared_error{}, false)
         : name == "mean_absolute_error" ? run(nn::mean_absolute_error{}, false)
         : name == "huber"               ? run(nn::huber{.delta = 0.75}, false)
                                         : false;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(losses_golden)

BOOST_AUTO_TEST_CASE(losses_are_those_of_pytorch) {
  std::ifstream file{path_in_tests("golden/losses.txt")};
  BOOST_REQUIRE_MESSAGE(file.good(), "tests/golden/losses.txt is missing");
  int cases = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words{line};
    golden_loss want;
    std::string shape;
    std::string weighted;
    std::string type;
    if (!(words >> want.name >> shape >> weighted >> type) || want.name == "#") {
      continue;
    }
    want.shape = shape == "image" ? gradus::image_extents{2, 4, 3, 2} : gradus::image_extents{3, 5, 1, 1};
    want.weighted = weighted == "weighted";
    for (double number = 0; words >> number;) {
      want.numbers.push_back(number);
    }
    BOOST_TEST_CONTEXT(want.name << " " << shape << " " << weighted << " " << type) {
      const bool known =
          type == "double"
              ? check_golden_case<double, gradus::nchw>(want) && check_golden_case<double, gradus::nhwc>(want)
              : check_golden_case<float, gradus::nchw>(want) && check_golden_case<float, gradus::nhwc>(want);
      BOOST_TEST(known);
      ++cases;
    }
  }
  BOOST_TEST(cases == 136);
}

BOOST_AUTO_TEST_SUITE_END()

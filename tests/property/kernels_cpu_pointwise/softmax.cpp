// SPDX-License-Identifier: BSL-1.0
//
// Softmax cross-entropy against its formula in double precision and finite differences.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gradus/kernels/cpu/softmax.hpp"
#include "support.hpp"

namespace {

using namespace pointwise;

struct expected_loss {
  double loss = 0;
  index_t correct = 0;
  std::vector<double> probabilities;
};

expected_loss reference(index_t rows, index_t classes, const std::vector<double>& logits,
                        const std::vector<std::int32_t>& labels) {
  expected_loss result{0, 0, std::vector<double>(logits.size())};
  for (index_t row = 0; row < rows; ++row) {
    const auto first = static_cast<std::size_t>(row * classes);
    const auto label = static_cast<std::size_t>(labels[static_cast<std::size_t>(row)]);
    double largest = logits[first];
    std::size_t best = 0;
    for (std::size_t i = 1; i < static_cast<std::size_t>(classes); ++i) {
      if (logits[first + i] > largest) {
        largest = logits[first + i];
        best = i;
      }
    }
    double total = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(classes); ++i) {
      total += std::exp(logits[first + i] - largest);
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(classes); ++i) {
      result.probabilities[first + i] = std::exp(logits[first + i] - largest) / total;
    }
    result.loss += std::log(total) + largest - logits[first + label];
    result.correct += best == label;
  }
  return result;
}

std::vector<std::int32_t> make_labels(index_t rows, index_t classes) {
  const gradus::random_stream stream{5, "labels"};
  std::vector<std::int32_t> labels;
  for (index_t row = 0; row < rows; ++row) {
    labels.push_back(
        static_cast<std::int32_t>(stream.below(static_cast<std::uint64_t>(classes), static_cast<std::uint64_t>(row))));
  }
  return labels;
}

using elements = std::tuple<float, double>;

struct size {
  index_t rows;
  index_t classes;
};
const std::vector<size> sizes{{0, 10}, {1, 1}, {1, 2}, {3, 7}, {64, 10}, {100, 10}, {5, 1000}, {2, 1001}, {5000, 3}};

}  // namespace

BOOST_AUTO_TEST_SUITE(softmax)

BOOST_AUTO_TEST_CASE_TEMPLATE(cross_entropy_agrees_with_its_formula, Element, elements) {
  for (const auto& [rows, classes] : sizes) {
    for (const double spread : {0.0, 1.0, 30.0}) {
      BOOST_TEST_CONTEXT("rows " << rows << " classes " << classes << " spread " << spread) {
        const plain_images logits{{rows, classes, 1, 1}, "logits", spread, 5};
        const auto labels = make_labels(rows, classes);
        const auto expected = reference(rows, classes, logits.values, labels);
        const double scale = 1.0 / 64;
        std::vector<double> slopes = expected.probabilities;
        for (index_t row = 0; row < rows; ++row) {
          slopes[static_cast<std::size_t>(row * classes + labels[static_cast<std::size_t>(row)])] -= 1;
        }
        for (double& slope : slopes) {
          slope *= scale;
        }
        const auto input = converted<Element>(logits.values);
        std::vector<std::vector<Element>> results;
        for (const int threads : {1, 3}) {
          cpu device{{.intra_op_threads = threads}};
          std::vector<Element> dlogits(input.size());
          const auto sums =
              softmax_cross_entropy_loss(device, rows, classes, input.data(), labels.data(), scale, dlogits.data());
          const auto without =
              softmax_cross_entropy_loss<Element>(device, rows, classes, input.data(), labels.data(), scale, nullptr);
          BOOST_TEST(sums.loss == without.loss);
          BOOST_TEST(sums.correct == expected.correct);
          BOOST_TEST(std::abs(sums.loss - expected.loss) <=
                     (sizeof(Element) == 4 ? 1e-6 : 1e-12) * (1 + expected.loss));
          BOOST_TEST(difference(doubles(dlogits), slopes) <= tolerance<Element>(2e-7));
          auto in_place = input;
          softmax_cross_entropy_loss(device, rows, classes, in_place.data(), labels.data(), scale, in_place.data());
          BOOST_TEST(same_bits(in_place, dlogits));
          std::vector<Element> probabilities(input.size());
          gradus::kernels::softmax(device, rows, classes, input.data(), probabilities.data());
          BOOST_TEST(difference(doubles(probabilities), expected.probabilities) <= tolerance<Element>(4e-7));
          dlogits.insert(dlogits.end(), probabilities.begin(), probabilities.end());
          dlogits.push_back(static_cast<Element>(sums.loss));
          results.push_back(dlogits);
        }
        BOOST_TEST(same_bits(results[0], results[1]));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_gradient_agrees_with_finite_differences) {
  const index_t rows = 4;
  const index_t classes = 6;
  plain_images logits{{rows, classes, 1, 1}, "logits"};
  const auto labels = make_labels(rows, classes);
  cpu device{{.intra_op_threads = 1}};
  std::vector<double> dlogits(logits.values.size());
  const auto loss = [&] {
    return 0.25 *
           softmax_cross_entropy_loss(device, rows, classes, logits.values.data(), labels.data(), 0.25, dlogits.data())
               .loss;
  };
  const auto slopes = finite_differences(logits.values, loss);
  loss();
  BOOST_TEST(difference(dlogits, slopes) <= 1e-9);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_first_largest_logit_counts, Element, elements) {
  cpu device{{.intra_op_threads = 1}};
  const std::vector<Element> logits{1, 3, 3, 3, 1, 3};
  std::vector<std::int32_t> labels{1, 0};
  const auto correct = [&] {
    return softmax_cross_entropy_loss<Element>(device, 2, 3, logits.data(), labels.data(), 1.0, nullptr).correct;
  };
  BOOST_TEST(correct() == 2);
  labels = {2, 2};
  BOOST_TEST(correct() == 0);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(extreme_logits, Element, elements) {
  cpu device{{.intra_op_threads = 1}};
  const auto largest = std::numeric_limits<Element>::max();
  const auto infinity = std::numeric_limits<Element>::infinity();
  const auto nan = std::numeric_limits<Element>::quiet_NaN();
  const auto run = [&](std::vector<Element> logits, std::int32_t label) {
    const auto sums = softmax_cross_entropy_loss(device, index_t{1}, static_cast<index_t>(logits.size()), logits.data(),
                                                 &label, 1.0, logits.data());
    logits.push_back(static_cast<Element>(sums.loss));
    return logits;
  };
  // No overflow: exp is taken of differences to the largest.
  BOOST_TEST(difference(doubles(run({1000, 999, 0}, 0)),
                        {-0.2689414213699951, 0.2689414213699951, 0, 0.3132616875182228}) <= tolerance<Element>(1e-6));
  BOOST_TEST(difference(doubles(run({-infinity, 0, 0}, 1)), {0, -0.5, 0.5, 0.6931471805599453}) <=
             tolerance<Element>(1e-6));
  BOOST_TEST(run({largest, -largest}, 0)[0] == 0);
  BOOST_TEST(run({-infinity, 0}, 0)[2] == infinity);
  for (const auto& bad : {std::vector<Element>{nan, 1, 2}, {1, nan, 2}, {1, 2, nan}, {infinity, 1, 2}}) {
    for (const Element value : run(bad, 1)) {
      BOOST_TEST(std::isnan(value));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

// SPDX-License-Identifier: BSL-1.0
//
// Predictions of any number of images are those of single batches; their classes are the largest scores.
#include "gradus/nn/predict.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/random.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/tensor/activations.hpp"
#include "gradus/tensor/expressions.hpp"

namespace {

namespace nn = gradus::nn;
using gradus::index_t;

template <class Element, class Layout>
void check_predictions(index_t micro_batch) {
  using number = gradus::parameter_element_t<Element>;
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<Element, Layout> net{device, {.channels = 2, .height = 5, .width = 4}};
  const nn::value scores = net.add("pixels", nn::conv2d{.out_channels = 3, .kernel = {3, 2}}, net.input());
  net.loss(nn::softmax_cross_entropy{}, scores);
  net.compile({.max_batch_size = 4, .seed = 2, .micro_batch_size = micro_batch});
  const gradus::random_stream stream{5, "images"};
  for (const index_t n : {0, 1, 4, 11}) {
    gradus::image_tensor<Element, Layout> images{device, {n, 2, 5, 4}};
    for (index_t i = 0; i < images.size(); ++i) {
      images.data()[i] = static_cast<Element>(static_cast<number>(stream.normal(static_cast<std::uint64_t>(i))));
    }
    const auto predicted = nn::predict(net, images);
    BOOST_TEST((predicted.extents() == gradus::extents<4>{n, 3, 3, 3}));
    const auto labels = nn::predicted_labels(predicted);
    BOOST_REQUIRE(labels.size() == static_cast<std::size_t>(9 * n));
    for (index_t i = 0; i < n; ++i) {
      const auto one = net.forward(images.view().slice(i, 1));
      for (index_t h = 0; h < 3; ++h) {
        for (index_t w = 0; w < 3; ++w) {
          index_t best = 0;
          for (index_t k = 0; k < 3; ++k) {
            const auto value = static_cast<number>(predicted(i, k, h, w));
            BOOST_TEST(value == static_cast<number>(one(0, k, h, w)));
            best = value > static_cast<number>(predicted(i, best, h, w)) ? k : best;
          }
          BOOST_TEST(labels[static_cast<std::size_t>((i * 3 + h) * 3 + w)] == best);
        }
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(predict)

BOOST_AUTO_TEST_CASE(any_number_of_images_has_the_scores_of_single_batches) {
  for (const index_t micro_batch : {0, 3}) {
    check_predictions<float, gradus::nhwc>(micro_batch);
    check_predictions<double, gradus::nchw>(micro_batch);
    check_predictions<gradus::bfloat16, gradus::nchw>(micro_batch);
  }
}

BOOST_AUTO_TEST_CASE(labels_are_the_first_of_equals_and_nan_has_none) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::image_tensor<float, gradus::nhwc> scores{device, {4, 3, 1, 1}};
  scores(1, 2, 0, 0) = 1;
  scores(2, 1, 0, 0) = std::numeric_limits<float>::quiet_NaN();
  scores(3, 0, 0, 0) = -std::numeric_limits<float>::infinity();
  BOOST_TEST(nn::predicted_labels(scores) == (std::vector<std::int32_t>{0, 2, -1, 1}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(probabilities_are_the_softmax_of_the_scores) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float> net{device, {.channels = 2}};
  net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 3}, net.input()));
  net.compile({.max_batch_size = 2});
  const gradus::image_tensor<float, gradus::nchw> images{device, {5, 2, 1, 1}};
  const auto probabilities = evaluate(softmax<gradus::axis::c>(nn::predict(net, images)));
  BOOST_TEST(probabilities(4, 2, 0, 0) == 1.0F / 3.0F, boost::test_tools::tolerance(1e-6F));  // of images of zeros
}

BOOST_AUTO_TEST_CASE(images_of_another_shape_are_refused) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float> net{device, {.channels = 2}};
  const nn::value scores = net.add("scores", nn::dense{.out_features = 3}, net.input());
  net.loss(nn::softmax_cross_entropy{}, scores);
  const gradus::image_tensor<float, gradus::nchw> images{device, {5, 3, 1, 1}};
  const auto message = [&] {
    try {
      (void)nn::predict(net, images);
    } catch (const gradus::error& failure) {
      return std::string{failure.what()};
    }
    return std::string{"no error"};
  };
  BOOST_TEST(message().find("predict") != std::string::npos, message());
  BOOST_TEST(message().find("[predict.cpp:") != std::string::npos, message());
  net.compile({.max_batch_size = 2});
  BOOST_TEST(message().find("predict: expected images of (5, 2, 1, 1), the network's input") != std::string::npos,
             message());
  BOOST_TEST(message().find("got (5, 3, 1, 1)") != std::string::npos, message());
}

BOOST_AUTO_TEST_SUITE_END()

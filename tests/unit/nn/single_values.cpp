// SPDX-License-Identifier: BSL-1.0
//
// Normalization of a single value, which is 0 whatever the value is: training refuses it, as PyTorch does.
#include <boost/test/unit_test.hpp>

#include <cstdint>      // std::int32_t
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/nn/layers/group_norm.hpp"
#include "gradus/nn/layers/layer_norm.hpp"

namespace {

namespace nn = gradus::nn;

/// What a step of `examples` images of height 1 says, or "" where it trains. Evaluation of each example works always.
template <class Norm>
std::string says_of_single_values(const Norm& norm, gradus::index_t examples, gradus::index_t width,
                                  gradus::index_t micro_batch_size = 0) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float, gradus::nhwc> net{device, {3, 1, width}};
  net.loss(nn::softmax_cross_entropy{},
           net.add("scores", nn::dense{.out_features = 2}, net.add("norm", norm, net.input())));
  net.compile({.max_batch_size = 4, .micro_batch_size = micro_batch_size});
  gradus::image_tensor<float, gradus::nhwc> images{device, {examples, 3, 1, width}};
  for (gradus::index_t i = 0; i < images.size(); ++i) {
    images.data()[i] = static_cast<float>(i % 5) - 2.0F;
  }
  const std::vector<std::int32_t> labels(static_cast<std::size_t>(examples), 1);
  BOOST_CHECK_NO_THROW(net.evaluate(images, labels));
  try {
    net.train_step(images, labels);
  } catch (const gradus::shape_error& error) {
    return error.what();
  }
  return {};
}

void refuses(const std::string& message, std::string_view text) {
  BOOST_TEST(message.find(text) != std::string::npos, "'" << message << "' has no '" << text << "'");
}

}  // namespace

BOOST_AUTO_TEST_SUITE(normalization_of_single_values)

BOOST_AUTO_TEST_CASE(batch_norm_trains_on_two_values_and_refuses_one) {
  const std::string message = says_of_single_values(nn::batch_norm{}, 1, 1);
  refuses(message, "batch_norm: expected more than 1 value per channel in training, got 1");
  refuses(message, ".drop_last");
  refuses(says_of_single_values(nn::batch_norm{}, 4, 1, 1), "more than 1 value per channel");
  refuses(says_of_single_values(nn::batch_norm{}, 3, 1, 2), "more than 1 value per channel");  // the last part is 1
  BOOST_TEST(says_of_single_values(nn::batch_norm{}, 4, 1, 2) == "");
  BOOST_TEST(says_of_single_values(nn::batch_norm{}, 2, 1) == "");
  BOOST_TEST(says_of_single_values(nn::batch_norm{}, 1, 2) == "");
}

BOOST_AUTO_TEST_CASE(frozen_batch_norm_uses_running_statistics) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float, gradus::nhwc> net{device, {3, 1, 1}};
  net.loss(nn::softmax_cross_entropy{},
           net.add("scores", nn::dense{.out_features = 2}, net.add("norm", nn::batch_norm{}, net.input())));
  net.freeze("norm", {.evaluates = true});
  net.compile({.max_batch_size = 1});
  const gradus::image_tensor<float, gradus::nhwc> images{device, {1, 3, 1, 1}};
  BOOST_CHECK_NO_THROW(net.train_step(images, std::vector<std::int32_t>{1}));
}

BOOST_AUTO_TEST_CASE(norms_of_examples_do_as_pytorch) {
  refuses(says_of_single_values(nn::instance_norm{}, 1, 1), "instance_norm: expected images of more than 1 pixel");
  refuses(says_of_single_values(nn::instance_norm{}, 4, 1), "instance_norm: expected images of more than 1 pixel");
  BOOST_TEST(says_of_single_values(nn::instance_norm{}, 1, 2) == "");
  refuses(says_of_single_values(nn::group_norm{.groups = 3}, 1, 1), "group_norm: expected more than 1 value per group");
  BOOST_TEST(says_of_single_values(nn::group_norm{.groups = 3}, 2, 1) == "");
  BOOST_TEST(says_of_single_values(nn::group_norm{.groups = 1}, 1, 1) == "");
  BOOST_TEST(says_of_single_values(nn::layer_norm{}, 1, 1) == "");
}

BOOST_AUTO_TEST_SUITE_END()

// SPDX-License-Identifier: BSL-1.0
//
// Networks of a thousand layers and more.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdint>
#include <vector>

#include <gradus/models/resnet.hpp>
#include <gradus/nn/network.hpp>
#include <gradus/tensor/tensor.hpp>

namespace models = gradus::models;
using network = gradus::nn::network<float, gradus::nhwc>;

BOOST_AUTO_TEST_SUITE(models_deep_networks)

BOOST_AUTO_TEST_CASE(a_thousand_layers_train) {
  gradus::cpu device{{.intra_op_threads = 2}};
  // The gradient has a norm of 2e5: in float, the rounding of the loss is larger than what a step changes.
  gradus::nn::network<double, gradus::nhwc> net{device, {3, 32, 32}};
  models::cifar_resnet(net, 1001, {.classes = 10, .version = models::resnet_version::v2});
  net.compile({.max_batch_size = 2, .seed = 3});
  gradus::image_tensor<double, gradus::nhwc> images{device, {2, 3, 32, 32}};
  for (gradus::index_t i = 0; i < images.size(); ++i) {
    images.data()[i] = static_cast<double>(i % 13) * 0.1;
  }
  const std::vector<std::int32_t> labels{1, 7};
  const double first = net.train_step(images, labels, {}).loss;
  BOOST_TEST(std::isfinite(first));
  double square = 0;
  for (const double each : net.gradients()) {
    square += each * each;
  }
  BOOST_TEST_REQUIRE((std::isfinite(square) && square > 0));
  const double rate = 0.001 * first / square;  // along the gradient the loss falls by a thousandth
  for (std::size_t i = 0; i < net.values().size(); ++i) {
    net.values()[i] -= rate * net.gradients()[i];
  }
  BOOST_TEST(net.train_step(images, labels, {}).loss < first);
}

BOOST_AUTO_TEST_CASE(five_thousand_layers_have_a_plan) {
  gradus::cpu device{{.intra_op_threads = 1}};
  network net{device, {3, 32, 32}};
  models::cifar_resnet(net, 5000, {.classes = 10});
  BOOST_TEST(net.layers() > 10000U);  // with normalization and activation
  const gradus::nn::memory_forecast whole = net.forecast({.max_batch_size = 128});
  BOOST_TEST(whole.plan.nodes.size() == net.layers());
  BOOST_TEST(whole.arena < whole.plan.unshared_bytes);
  const gradus::nn::memory_forecast less = net.forecast({.max_batch_size = 128, .recompute = true});
  BOOST_TEST(less.arena < whole.arena);
}

BOOST_AUTO_TEST_SUITE_END()

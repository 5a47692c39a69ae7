// SPDX-License-Identifier: BSL-1.0
//
// Networks compiled for inference on a GPU: the scores are those of network::forward, and sessions share the weights.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gradus/core/float16.hpp"
#include "gradus/core/random.hpp"
#include "gradus/kernels/cuda.cuh"
#include "gradus/nn/inference_session.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/loss.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/nn/predict.hpp"
#include "gradus/tensor/cuda.cuh"
#include "gradus/tensor/tensor.hpp"

namespace {

namespace nn = gradus::nn;

template <class Network>
void add_layers(Network& net) {
  nn::value x = net.add("conv1", nn::conv2d{.out_channels = 6, .kernel = {3, 3}, .bias = false}, net.input());
  x = net.add("norm1", nn::batch_norm{}, x);
  x = net.add("relu1", nn::relu{}, x);
  x = net.add("dropout", nn::dropout{}, x);
  nn::value y = net.add("conv2", nn::conv2d{.out_channels = 6}, x);
  y = net.add("norm2", nn::batch_norm{}, y);
  y = net.add("sum", nn::add{}, {x, y});
  y = net.add("relu2", nn::relu{}, y);
  y = net.add("features", nn::dense{.out_features = 8}, y);
  y = net.add("norm3", nn::batch_norm{}, y);
  net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 5}, y));
}

/// The largest difference of the scores, as a part of the largest score.
template <class Element, class Layout>
double difference(const gradus::image_tensor<Element, Layout>& a, const gradus::image_tensor<Element, Layout>& b) {
  using number = gradus::parameter_element_t<Element>;
  double most = 0;
  double size = 0;
  for (gradus::index_t i = 0; i < a.size(); ++i) {
    const auto left = static_cast<double>(static_cast<number>(a.data()[i]));
    most = std::max(most, std::abs(left - static_cast<double>(static_cast<number>(b.data()[i]))));
    size = std::max(size, std::abs(left));
  }
  return most / size;
}

template <class Element, class Layout>
void check_on_gpu(double allowed) {
  using number = gradus::parameter_element_t<Element>;
  gradus::cpu host;
  gradus::cuda device;
  gradus::image_tensor<Element, Layout> images{host, {4, 3, 6, 5}};
  const gradus::random_stream stream{5, "images"};
  for (gradus::index_t i = 0; i < images.size(); ++i) {
    images.data()[i] = static_cast<Element>(static_cast<number>(stream.normal(static_cast<std::uint64_t>(i))));
  }
  nn::network<Element, Layout, gradus::cuda> net{device, {3, 6, 5}};
  add_layers(net);
  net.compile({.max_batch_size = 4, .seed = 1});
  for (const auto& each : net.buffers()) {
    std::vector<number> values(static_cast<std::size_t>(each.elements.size()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<number>(0.5 + 0.25 * static_cast<double>(i % 5));
    }
    device.copy_from_host(each.elements.data(), values.data(), values.size() * sizeof(number));
  }
  const auto expected = nn::predict(net, images);
  net.compile_for_inference({.max_batch_size = 4, .fold_batch_norm = false});
  BOOST_CHECK_EQUAL(difference(nn::predict(net, images), expected), 0);
  net.compile_for_inference({.max_batch_size = 4});
  BOOST_CHECK(!net.plan().nodes[1].forward);
  BOOST_CHECK_SMALL(difference(nn::predict(net, images), expected), allowed);
  gradus::cuda other;
  nn::inference_session<Element, Layout, gradus::cuda> session{net, other};
  BOOST_CHECK_EQUAL(difference(nn::predict(session, images), nn::predict(net, images)), 0);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(inference_on_a_gpu)

BOOST_AUTO_TEST_CASE(scores_are_those_of_forward) {
  check_on_gpu<float, gradus::nchw>(1e-5);
  check_on_gpu<float, gradus::nhwc>(1e-5);
  check_on_gpu<gradus::float16, gradus::nhwc>(1e-2);
}

BOOST_AUTO_TEST_SUITE_END()

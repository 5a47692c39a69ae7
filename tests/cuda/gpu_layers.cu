// SPDX-License-Identifier: BSL-1.0
//
// Layers on a GPU against the same layers on the CPU in double precision: losses, gradients, running statistics.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gradus/core/float16.hpp"
#include "gradus/kernels/cuda.cuh"
#include "layer_outcomes.hpp"

namespace {

using gpu_layers::outcome;
using gradus::index_t;

double largest(const std::vector<double>& values) {
  double result = 0;
  for (const double value : values) {
    result = std::max(result, std::abs(value));
  }
  return result;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double result = a.size() == b.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    result = std::max(result, std::abs(a[i] - b[i]));
  }
  return result;
}

template <class Layout>
void agrees(const outcome& expected, bool last_batch_smaller) {
  gradus::cuda device;
  const outcome computed = gpu_layers::train<float, Layout>(device, last_batch_smaller);
  BOOST_CHECK_SMALL(computed.loss - expected.loss, 1e-4 * expected.loss);
  BOOST_CHECK_SMALL(computed.evaluated - expected.evaluated, 1e-4 * expected.evaluated);
  BOOST_CHECK_EQUAL(computed.correct, expected.correct);
  BOOST_REQUIRE_EQUAL(computed.gradients.size(), expected.gradients.size());
  for (std::size_t k = 0; k < expected.gradients.size(); ++k) {
    BOOST_TEST_CONTEXT("parameter " << k) {
      BOOST_CHECK_SMALL(distance(computed.gradients[k], expected.gradients[k]),
                        2e-4 * largest(expected.gradients[k]) + 1e-6);
    }
  }
  BOOST_CHECK_SMALL(distance(computed.statistics, expected.statistics), 1e-4 * largest(expected.statistics));
}

double euclidean_norm(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) {
    squares += value * value;
  }
  return std::sqrt(squares);
}

/// In float16 results are as far off as those of the CPU are, with room for sums in another order: a maximum and a ReLU
/// here and there differ.
template <class Layout>
void agrees_in_float16(const outcome& expected) {
  gradus::cuda device;
  const outcome computed = gpu_layers::train<gradus::float16, Layout>(device, false);
  BOOST_CHECK_SMALL(computed.loss - expected.loss, 1e-3 * expected.loss);
  BOOST_CHECK_SMALL(computed.evaluated - expected.evaluated, 1e-3 * expected.evaluated);
  BOOST_REQUIRE_EQUAL(computed.gradients.size(), expected.gradients.size());
  for (std::size_t k = 0; k < expected.gradients.size(); ++k) {
    std::vector<double> apart = computed.gradients[k];
    BOOST_REQUIRE_EQUAL(apart.size(), expected.gradients[k].size());
    for (std::size_t i = 0; i < apart.size(); ++i) {
      apart[i] -= expected.gradients[k][i];
    }
    BOOST_TEST_CONTEXT("parameter " << k) {
      BOOST_CHECK_SMALL(euclidean_norm(apart), 0.15 * euclidean_norm(expected.gradients[k]) + 1e-3);
    }
  }
  BOOST_CHECK_SMALL(distance(computed.statistics, expected.statistics), 1e-3 * largest(expected.statistics));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(layers_on_a_gpu)

BOOST_AUTO_TEST_CASE(nhwc_agrees_with_double_on_the_cpu) {
  agrees<gradus::nhwc>(gpu_layers::on_cpu_nhwc(false), false);
}
BOOST_AUTO_TEST_CASE(nchw_agrees_with_double_on_the_cpu) {
  agrees<gradus::nchw>(gpu_layers::on_cpu_nchw(false), false);
}
BOOST_AUTO_TEST_CASE(a_smaller_batch_than_planned_agrees) {
  agrees<gradus::nhwc>(gpu_layers::on_cpu_nhwc(true), true);
}

BOOST_AUTO_TEST_CASE(nhwc_in_float16_is_close_to_double_on_the_cpu) {
  agrees_in_float16<gradus::nhwc>(gpu_layers::on_cpu_nhwc(false));
}
BOOST_AUTO_TEST_CASE(nchw_in_float16_is_close_to_double_on_the_cpu) {
  agrees_in_float16<gradus::nchw>(gpu_layers::on_cpu_nchw(false));
}

// The scale that lies on the device is one more factor of the gradient of the scores, and of nothing else.
BOOST_AUTO_TEST_CASE(a_loss_scale_on_the_device_multiplies_gradients) {
  gradus::cuda device;
  gradus::tensor<float, 1, gradus::row_major, gradus::cuda> scores{device, {4}};
  gradus::tensor<float, 1, gradus::row_major, gradus::cuda> slopes{device, {4}};
  gradus::tensor<std::int32_t, 1, gradus::row_major, gradus::cuda> labels{device, {1}};
  gradus::tensor<double, 1, gradus::row_major, gradus::cuda> numbers{device, {4}};
  const float of_scores[4] = {1, -2, 3, 0.5};
  const std::int32_t label = 2;
  const double scale[4] = {64, 0, 0, 0};
  device.copy_from_host(scores.data(), of_scores, sizeof(of_scores));
  device.copy_from_host(labels.data(), &label, sizeof(label));
  device.copy_from_host(numbers.data(), scale, sizeof(scale));
  const auto run = [&](const gradus::loss_scale& used) {
    use_loss_scale(device, used);
    softmax_cross_entropy_loss(device, 1, 4, scores.view().data(), labels.view().data(), 0.5, slopes.data());
    std::vector<float> result(4);
    device.copy_to_host(result.data(), slopes.data(), 4 * sizeof(float));
    result.push_back(static_cast<float>(take_loss_sums(device).loss));
    return result;
  };
  const std::vector<float> plain = run({});
  const std::vector<float> scaled = run({.factor = 1, .numbers = numbers.data()});
  for (std::size_t i = 0; i < 4; ++i) {
    BOOST_CHECK_NE(plain[i], 0.0F);
    BOOST_CHECK_EQUAL(scaled[i], 64 * plain[i]);
  }
  BOOST_CHECK_EQUAL(scaled[4], plain[4]);
  BOOST_CHECK(run({}) == plain);
}

BOOST_AUTO_TEST_CASE(a_label_that_is_no_class_has_no_finite_loss) {
  gradus::cuda device;
  gradus::tensor<float, 1, gradus::row_major, gradus::cuda> scores{device, {4}};
  gradus::tensor<std::int32_t, 1, gradus::row_major, gradus::cuda> labels{device, {1}};
  const std::int32_t wrong = 4;
  device.copy_from_host(labels.data(), &wrong, sizeof(wrong));
  softmax_cross_entropy_loss(device, 1, 4, scores.view().data(), labels.view().data(), 1.0,
                             static_cast<float*>(nullptr));
  BOOST_CHECK(std::isnan(take_loss_sums(device).loss));
}

BOOST_AUTO_TEST_SUITE_END()

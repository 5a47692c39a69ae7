// SPDX-License-Identifier: BSL-1.0
//
// Layers on a GPU against the same layers on the CPU in double precision: losses, gradients, running statistics.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

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

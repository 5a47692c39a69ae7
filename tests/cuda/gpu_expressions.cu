// SPDX-License-Identifier: BSL-1.0
//
// Expressions and matrix products on a GPU against the CPU.
#include "gradus/tensor/cuda.cuh"

#include <boost/test/unit_test.hpp>

#include "expression_checks.hpp"
#include "gradus/tensor/device_expressions.hpp"

static_assert(gradus::explain_expressions<gradus::cuda, float>());
static_assert(gradus::has_expressions<gradus::cuda, double>);

struct devices {
  gradus::cpu host;
  gradus::cuda device;
};

BOOST_AUTO_TEST_SUITE(gpu_expressions)

BOOST_FIXTURE_TEST_CASE(elementwise, devices) {
  expression_checks::elementwise<float, gradus::nhwc>(host, device);
}

BOOST_FIXTURE_TEST_CASE(reductions, devices) {
  expression_checks::reductions<float, gradus::nchw>(host, device);
}

BOOST_FIXTURE_TEST_CASE(long_reductions, devices) {
  expression_checks::long_reductions(host, device);
}

BOOST_FIXTURE_TEST_CASE(assignments, devices) {
  expression_checks::assignments(host, device);
}

BOOST_FIXTURE_TEST_CASE(rearranging, devices) {
  expression_checks::rearranging<gradus::nhwc>(host, device);
}

BOOST_FIXTURE_TEST_CASE(matrix_products, devices) {
  using expression_checks::random_tensor;
  using expression_checks::same;
  const auto a = random_tensor<float, 2>(host, {37, 19}, "a");
  const auto b = random_tensor<float, 2>(host, {19, 23}, "b");
  const auto c = random_tensor<float, 2>(host, {23, 19}, "c");
  same(
      "as they are", host, device, 1e-5, [](const auto& x, const auto& y) { return gradus::evaluate(matmul(x, y)); }, a,
      b);
  same(
      "transposed", host, device, 1e-5,
      [](const auto& x, const auto& y, const auto& z) {
        return gradus::evaluate(matmul(transpose(y), matmul(transpose(x), matmul(x, transpose(z)))));
      },
      a, b, c);
}

BOOST_AUTO_TEST_SUITE_END()

// SPDX-License-Identifier: BSL-1.0
//
// Gradients of every node against central differences in double.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <functional>

#include "support.hpp"

using namespace tensor_tests;
using gradus::axis;
using gradus::index_t;

namespace {

/// The largest difference between a gradient and central differences of loss() by every element of x.
template <class Tensor, class Gradient>
double difference(Tensor& x, const Gradient& gradient, const std::function<double()>& loss) {
  double worst = 0;
  for (index_t i = 0; i < x.size(); ++i) {
    const double before = x.data()[i];
    const double step = 1e-5;
    x.data()[i] = before + step;
    const double above = loss();
    x.data()[i] = before - step;
    const double below = loss();
    x.data()[i] = before;
    worst = larger(worst, std::abs((above - below) / (2 * step) - gradient.data()[i]));
  }
  return worst;
}

/// The value of an expression, compiled once.
template <class Loss>
std::function<double()> value_of(const Loss& loss) {
  return [&loss] { return scalar_of(loss()); };
}

struct fixture {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::tensor<double, 2> x = random_tensor<double, 2>(device, {4, 5}, "x", 0.2, 1.5);
  gradus::tensor<double, 2> y = random_tensor<double, 2>(device, {4, 5}, "y", 0.3, 1.4);
  gradus::tensor<double, 1> v = random_tensor<double, 1>(device, {5}, "v", 0.5, 2);

  template <class Loss>
  void check(const Loss& loss, const char* what) {
    const auto [by_x, by_y, by_v] = gradients(loss(), x, y, v);
    const std::function<double()> value = value_of(loss);
    BOOST_TEST_CONTEXT(what) {
      BOOST_TEST(difference(x, by_x, value) < 1e-6);
      BOOST_TEST(difference(y, by_y, value) < 1e-6);
      BOOST_TEST(difference(v, by_v, value) < 1e-6);
    }
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(gradients_of_expressions, fixture)

BOOST_AUTO_TEST_CASE(arithmetic) {
  check([&] { return sum((x + y) * (x - 2 * y) / (y * y + 1) - (-x) / y + 3 / x); }, "arithmetic");
  check([&] { return mean(square(x * per_column(v) - y)) * 3 + sum(v * v); }, "per column and several terms");
}

BOOST_AUTO_TEST_CASE(functions) {
  check([&] { return sum(exp(x) * log(y) + sqrt(x * y)); }, "exp, log, sqrt");
  check([&] { return sum(tanh(x) * sigmoid(y) + abs(x - y) + pow(x, 2.5)); }, "tanh, sigmoid, abs, pow");
  check([&] { return sum(maximum(x, y) * minimum(x, 0.7) + clamp(y, 0.5, 1.0) * x); }, "maximum, minimum, clamp");
  check([&] { return sum(where(x > y && !(y > 1), x * y, x - y) * where(x < 1, x, 2)); }, "where");
  check([&] { return sum(gradus::cast<double>(gradus::cast<double>(x) * y)); }, "cast");
}

BOOST_AUTO_TEST_CASE(long_chains_are_cut) {
  check(
      [&] {
        auto a = tanh(x * y) + exp(-x);
        auto b = sigmoid(a * a + y) * a;
        return mean(square(b) * a + b / (1 + square(a)));
      },
      "a chain");
}

BOOST_AUTO_TEST_CASE(reductions_and_broadcasts) {
  check([&] { return sum(square(sum<0>(x * y) * v)); }, "sum of rows");
  check([&] { return sum(mean<1>(x) * sum<1>(x * y)) / sum(y); }, "mean of columns, rank 0 as an operand");
  check([&] { return sum(max<1>(x) * min<1>(y)) + max(x) * norm_l2(y) + norm_l1(x); }, "extremes and norms");
  check([&] { return sum(exp(x - per_row(max<1>(x))) / per_row(sum<1>(exp(x))) * y); }, "softmax");
  check([&] { return sum(square(x + along<0>(sum<1>(square(y)))) * along<1>(exp(v))); }, "along");
}

BOOST_AUTO_TEST_CASE(products) {
  check([&] { return sum(square(matmul(x, transpose(y)))); }, "x y^T");
  check([&] { return sum(square(matmul(transpose(x), y * x)) + 1); }, "x^T (y x)");
  check([&] { return sum(matmul(transpose(x), transpose(matmul(y, transpose(x) + 0)) * 0.5 + 0)); }, "nested");
  check([&] { return sum(matmul(transpose(x), transpose(transpose(y)))); }, "x^T (y^T)^T");
  check([&] { return mean(tanh(matmul(x, matmul(transpose(x), y)) + per_column(v))); }, "a layer");
}

BOOST_AUTO_TEST_CASE(images_and_layouts) {
  auto image = random_tensor<double, 4, gradus::nhwc>(device, {2, 3, 2, 3}, "image");
  auto scale = random_tensor<double, 1>(device, {3}, "scale", 0.5, 1.5);
  const auto loss = [&] {
    auto centred = image - along<axis::n, axis::c>(mean<axis::h, axis::w>(image));
    return sum(square(gradus::layout_cast<gradus::nchw>(centred * per_channel(scale) + image)) * 0.5);
  };
  const auto [by_image, by_scale] = gradients(loss(), image, scale);
  BOOST_TEST(difference(image, by_image, value_of(loss)) < 1e-6);
  BOOST_TEST(difference(scale, by_scale, value_of(loss)) < 1e-6);
}

BOOST_AUTO_TEST_CASE(equal_extremes_share_and_what_is_not_there_is_zero) {
  gradus::tensor<double, 1> equal{device, {4}};
  const auto [shared, none] = gradients(max(equal), equal, v);
  BOOST_TEST(shared(2) == 0.25);
  BOOST_TEST(sum(abs(none)).value() == 0.0);
  const auto both = value_and_gradients(sum(v * v), v);
  BOOST_TEST(both.value == sum(v * v).value());
  BOOST_TEST(std::get<0>(both.gradients)(3) == 2 * v(3));
}

BOOST_AUTO_TEST_SUITE_END()

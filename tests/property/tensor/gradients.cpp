// SPDX-License-Identifier: BSL-1.0
//
// Gradients of every node against central differences in double.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <functional>
#include <string>
#include <tuple>
#include <utility>

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

  /// Compares the gradients of a loss by the tensors that it reads.
  template <class Tensors, class Loss>
  void check(const char* what, const Tensors& tensors, const Loss& loss) {
    const auto found = std::apply([&](auto&... by) { return gradients(loss(), by...); }, tensors);
    const std::function<double()> value = value_of(loss);
    BOOST_TEST_CONTEXT(what) {
      [&]<std::size_t... K>(std::index_sequence<K...>) {
        const auto check_one = [&](auto& by, const auto& gradient) {
          BOOST_TEST(difference(by, gradient, value) < 1e-6);
        };
        (check_one(std::get<K>(tensors), std::get<K>(found)), ...);
      }
      (std::make_index_sequence<std::tuple_size_v<Tensors>>{});
    }
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(gradients_of_expressions, fixture)

BOOST_AUTO_TEST_CASE(arithmetic) {
  check("arithmetic", std::tie(x, y), [&] { return sum((x + y) * (x - 2 * y) / (y * y + 1) - (-x) / y + 3 / x); });
  check("per column and several terms", std::tie(x, y, v),
        [&] { return mean(square(x * per_column(v) - y)) * 3 + sum(v * v); });
}

BOOST_AUTO_TEST_CASE(functions) {
  check("exp, log, sqrt", std::tie(x, y), [&] { return sum(exp(x) * log(y) + sqrt(x * y)); });
  check("tanh, sigmoid, abs, pow", std::tie(x, y),
        [&] { return sum(tanh(x) * sigmoid(y) + abs(x - y) + pow(x, 2.5)); });
  check("maximum, minimum, clamp", std::tie(x, y),
        [&] { return sum(maximum(x, y) * minimum(x, 0.7) + clamp(y, 0.5, 1.0) * x); });
  check("where", std::tie(x, y), [&] { return sum(where(x > y && !(y > 1), x * y, x - y) * where(x < 1, x, 2)); });
  check("cast", std::tie(x, y), [&] { return sum(gradus::cast<double>(gradus::cast<double>(x) * y)); });
}

BOOST_AUTO_TEST_CASE(long_chains_are_cut) {
  check("a chain", std::tie(x, y), [&] {
    auto a = tanh(x * y) + exp(-x);
    auto b = sigmoid(a * a + y) * a;
    return mean(square(b) * a + b / (1 + square(a)));
  });
}

BOOST_AUTO_TEST_CASE(reductions_and_broadcasts) {
  check("sum of rows", std::tie(x, y, v), [&] { return sum(square(sum<0>(x * y) * v)); });
  check("mean of columns, rank 0 as an operand", std::tie(x, y),
        [&] { return sum(mean<1>(x) * sum<1>(x * y)) / sum(y); });
  check("extremes and norms", std::tie(x, y),
        [&] { return sum(max<1>(x) * min<1>(y)) + max(x) * norm_l2(y) + norm_l1(x); });
  check("softmax", std::tie(x, y), [&] { return sum(exp(x - per_row(max<1>(x))) / per_row(sum<1>(exp(x))) * y); });
  check("along", std::tie(x, y, v), [&] { return sum(square(x + along<0>(sum<1>(square(y)))) * along<1>(exp(v))); });
}

BOOST_AUTO_TEST_CASE(products) {
  check("x y^T", std::tie(x, y), [&] { return sum(square(matmul(x, transpose(y)))); });
  check("x^T (y x)", std::tie(x, y), [&] { return sum(square(matmul(transpose(x), y * x)) + 1); });
  check("nested", std::tie(x, y),
        [&] { return sum(matmul(transpose(x), transpose(matmul(y, transpose(x) + 0)) * 0.5 + 0)); });
  check("x^T (y^T)^T", std::tie(x, y), [&] { return sum(matmul(transpose(x), transpose(transpose(y)))); });
  check("a layer", std::tie(x, y, v), [&] { return mean(tanh(matmul(x, matmul(transpose(x), y)) + per_column(v))); });
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

BOOST_AUTO_TEST_CASE(a_tensor_that_the_loss_does_not_read_is_refused) {
  const auto message_of = [](const auto& action) {
    std::string message;
    try {
      action();
    } catch (const gradus::configuration_error& e) {
      message = e.message();
    }
    return message;
  };
  const gradus::tensor<double, 2> copy = x;
  const std::string refused =
      "gradients: expected tensors that the loss depends on, got a loss that has no derivative by tensor ";
  BOOST_TEST(message_of([&] { (void)gradients(sum(x * y), x, v); }).starts_with(refused + "2 of 2. Hint: "));
  BOOST_TEST(message_of([&] { (void)gradients(sum(x * y), copy, y); }).starts_with(refused + "1 of 2. Hint: "));
  BOOST_TEST(message_of([&] { (void)gradients(sum(where(y > 1, x, 0)), y); }).starts_with(refused + "1 of 1. Hint: "));
  BOOST_TEST(message_of([&] { (void)value_and_gradients(sum(x), y); }).starts_with(refused + "1 of 1. Hint: "));
  BOOST_TEST(message_of([&] { (void)gradients(sum(x * 0), x); }) == "");
}

BOOST_AUTO_TEST_CASE(equal_extremes_share) {
  gradus::tensor<double, 1> equal{device, {4}};
  const auto [shared] = gradients(max(equal), equal);
  BOOST_TEST(shared(2) == 0.25);
  const auto both = value_and_gradients(sum(v * v), v);
  BOOST_TEST(both.value == sum(v * v).value());
  BOOST_TEST(std::get<0>(both.gradients)(3) == 2 * v(3));
}

BOOST_AUTO_TEST_SUITE_END()

// SPDX-License-Identifier: BSL-1.0
//
// Element-wise functions of per_row(v), per_column(v), per_channel(v), along<axes...>(v) without a tensor beside them.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <string>

#include "support.hpp"

using namespace tensor_tests;
using gradus::axis;
using gradus::index_t;

namespace {

struct fixture {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::tensor<double, 1> r = random_tensor<double, 1>(device, {7}, "r", 0.2, 1.5);
  gradus::tensor<double, 1> k = random_tensor<double, 1>(device, {13}, "k", 0.3, 1.4);
  gradus::tensor<double, 2> x = random_tensor<double, 2>(device, {7, 13}, "x");

  /// The largest difference between a matrix and expected(r(i), k(j), x(i, j)).
  template <class Matrix, class Expected>
  double difference(const Matrix& computed, const Expected& expected) {
    const gradus::tensor<double, 2> values = computed;
    double worst = values.extents() == x.extents() ? 0 : 1;
    for (index_t i = 0; i < 7; ++i) {
      for (index_t j = 0; j < 13; ++j) {
        worst = larger(worst, std::abs(values(i, j) - expected(r(i), k(j), x(i, j))));
      }
    }
    return worst;
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(values_along_axes, fixture)

BOOST_AUTO_TEST_CASE(rows_and_columns_make_a_matrix) {
  BOOST_TEST(difference(per_row(r) * per_column(k), [](double a, double b, double) { return a * b; }) < 1e-15);
  BOOST_TEST(difference(per_column(k) - per_row(r), [](double a, double b, double) { return b - a; }) < 1e-15);
  BOOST_TEST(difference(per_row(r) / per_column(k) + x, [](double a, double b, double c) { return a / b + c; }) <
             1e-14);
  BOOST_TEST(difference(where(per_row(r) > per_column(k), x, per_row(r) * per_column(k)),
                        [](double a, double b, double c) { return a > b ? c : a * b; }) < 1e-15);
  BOOST_TEST(difference(maximum(per_row(r), per_column(k)), [](double a, double b, double) { return a < b ? b : a; }) ==
             0);
  BOOST_TEST(difference(clamp(per_row(r), per_column(k), 1), [](double a, double b, double) {
               return 1 < b || 1 < a ? 1 : a < b ? b : a;
             }) == 0);
}

BOOST_AUTO_TEST_CASE(numbers_and_functions_keep_the_axes) {
  const gradus::tensor<double, 0> total = sum(k);
  const double s = total.value();
  BOOST_TEST(difference(x * (per_row(r) * 2.0), [](double a, double, double c) { return c * a * 2; }) < 1e-15);
  BOOST_TEST(difference(x + 3 / per_column(k), [](double, double b, double c) { return c + 3 / b; }) < 1e-14);
  BOOST_TEST(difference(x * -exp(per_row(r)), [](double a, double, double c) { return -c * std::exp(a); }) < 1e-14);
  BOOST_TEST(difference(x * (per_row(r) + per_row(sqrt(r))),
                        [](double a, double, double c) { return c * (a + std::sqrt(a)); }) < 1e-14);
  BOOST_TEST(difference(x * (per_column(k) / total), [s](double, double b, double c) { return c * b / s; }) < 1e-14);
  BOOST_TEST(difference(x * where(per_row(r) > 1, 0.5, per_row(r)),
                        [](double a, double, double c) { return c * (a > 1 ? 0.5 : a); }) < 1e-15);
  BOOST_TEST(difference(x * pow(per_row(r), 2), [](double a, double, double c) { return c * a * a; }) < 1e-14);
}

BOOST_AUTO_TEST_CASE(images_of_either_layout) {
  const auto check = [&]<class Layout>(Layout) {
    const auto image = random_tensor<double, 4, Layout>(device, {2, 3, 4, 5}, "image");
    const auto scale = random_tensor<double, 1>(device, {3}, "scale");
    const auto rows = random_tensor<double, 2>(device, {2, 4}, "rows");
    const gradus::tensor<double, 4, Layout> y =
        image + (per_channel(scale) * 2 + 1) * along<axis::n, axis::h>(rows) * along<axis::w>(sum<0, 1, 2>(image));
    const gradus::tensor<double, 1> columns = sum<0, 1, 2>(image);
    double worst = 0;
    for_each_pixel(image.extents(), [&](index_t n, index_t c, index_t h, index_t w) {
      const double expected = image(n, c, h, w) + (scale(c) * 2 + 1) * rows(n, h) * columns(w);
      worst = larger(worst, std::abs(y(n, c, h, w) - expected));
    });
    BOOST_TEST(worst < 1e-14);
  };
  check(gradus::nchw{});
  check(gradus::nhwc{});
}

BOOST_AUTO_TEST_CASE(gradients_pass_through_them) {
  const auto loss = [&] { return sum(square(per_row(r) * per_column(k * 2) - x) * (per_row(exp(r)) * 0.5)); };
  const auto [by_r, by_k] = gradients(loss(), r, k);
  const auto check = [&](gradus::tensor<double, 1>& by, const gradus::tensor<double, 1>& gradient) {
    for (index_t i = 0; i < by.size(); ++i) {
      const double before = by(i);
      by(i) = before + 1e-5;
      const double above = scalar_of(loss());
      by(i) = before - 1e-5;
      const double below = scalar_of(loss());
      by(i) = before;
      BOOST_TEST(std::abs((above - below) / 2e-5 - gradient(i)) < 1e-6);
    }
  };
  check(r, by_r);
  check(k, by_k);
}

BOOST_AUTO_TEST_CASE(other_extents_are_refused) {
  std::string message;
  try {
    const auto wrong = per_row(r) + per_row(k);
  } catch (const gradus::shape_error& e) {
    message = e.message();
  }
  BOOST_TEST(message == "operator+: expected operands of one shape, got (13) and (7).");
}

BOOST_AUTO_TEST_SUITE_END()

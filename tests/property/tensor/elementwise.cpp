// SPDX-License-Identifier: BSL-1.0
//
// Element-wise expressions against plain loops, over shapes, layouts and element types.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include "support.hpp"

using namespace tensor_tests;
using gradus::axis;
using gradus::index_t;

BOOST_AUTO_TEST_SUITE(elementwise)

template <class Element, class Layout>
struct kind {
  using element = Element;
  using layout = Layout;
};
using kinds = std::tuple<kind<float, gradus::nchw>, kind<float, gradus::nhwc>, kind<double, gradus::nhwc>>;

BOOST_AUTO_TEST_CASE_TEMPLATE(values_are_those_of_plain_loops, Kind, kinds) {
  using element = typename Kind::element;
  using layout = typename Kind::layout;
  gradus::cpu device{{.intra_op_threads = 2}};
  for (const auto& shape : image_shapes()) {
    const auto a = random_tensor<element, 4, layout>(device, shape, "a");
    const auto b = random_tensor<element, 4, layout>(device, shape, "b", 0.5, 2);
    const auto v = random_tensor<element, 1>(device, {shape.c}, "v");
    gradus::tensor<element, 4, layout> fused = a * 2 - exp(a) / sqrt(b) + per_channel(v) * square(a);
    gradus::tensor<element, 4, layout> chosen = where(a > 0 && !(b <= 1), maximum(a, b), clamp(a, -0.25, v(0)));
    gradus::tensor<element, 4, layout> curves = tanh(a) + sigmoid(a) - log(b) * abs(a) + pow(b, 1.5) + minimum(a, -b);
    double worst = 0;
    for_each_pixel(shape, [&](auto... at) {
      const double x = a(at...);
      const double y = b(at...);
      const double z = v(std::get<1>(std::tuple{at...}));
      const double low = std::min(std::max(x, -0.25), static_cast<double>(v(0)));
      for (const double off :
           {std::abs(fused(at...) - (x * 2 - std::exp(x) / std::sqrt(y) + z * x * x)),
            std::abs(chosen(at...) - (x > 0 && y > 1 ? std::max(x, y) : low)),
            std::abs(curves(at...) - (std::tanh(x) + 1 / (1 + std::exp(-x)) - std::log(y) * std::abs(x) +
                                      std::pow(y, 1.5) + std::min(x, -y)))}) {
        worst = larger(worst, off);
      }
    });
    BOOST_TEST_CONTEXT(shape) {
      BOOST_TEST(worst < 16 * std::numeric_limits<element>::epsilon());
    }
  }
}

BOOST_AUTO_TEST_CASE(every_number_of_threads_gives_the_same_bits) {
  gradus::cpu one{{.intra_op_threads = 1}};
  gradus::cpu three{{.intra_op_threads = 3}};
  const auto run = [](gradus::cpu& device) {
    const gradus::image_extents shape{3, 5, 83, 67};
    const auto a = random_tensor<float, 4, gradus::nhwc>(device, shape, "a");
    const auto v = random_tensor<float, 1>(device, {5}, "v");
    return evaluate(exp(a) * per_channel(v) + tanh(a));
  };
  const auto left = run(one);
  const auto right = run(three);
  BOOST_TEST(std::memcmp(left.data(), right.data(), static_cast<std::size_t>(left.size()) * sizeof(float)) == 0);
}

BOOST_AUTO_TEST_CASE(matrices_take_rows_columns_and_numbers) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const auto x = random_tensor<double, 2>(device, {5, 7}, "x");
  const auto rows = random_tensor<double, 1>(device, {5}, "rows");
  const auto columns = random_tensor<double, 1>(device, {7}, "columns");
  const gradus::tensor<bool, 2> agree = (x > 0) == (x < 0.5);
  const gradus::tensor<double, 2> counts = gradus::cast<double>(x > 0);
  const gradus::tensor<double, 2> y = (x + per_row(rows)) * per_column(columns) / sum(rows) - along<1>(exp(columns));
  const double total = sum(rows).value();
  for (index_t i = 0; i < 5; ++i) {
    for (index_t j = 0; j < 7; ++j) {
      BOOST_TEST(agree(i, j) == ((x(i, j) > 0) == (x(i, j) < 0.5)));
      BOOST_TEST(counts(i, j) == (x(i, j) > 0 ? 1.0 : 0.0));
      const double expected = (x(i, j) + rows(i)) * columns(j) / total - std::exp(columns(j));
      BOOST_TEST(y(i, j) == expected, boost::test_tools::tolerance(1e-12));
    }
  }
}

BOOST_AUTO_TEST_CASE(values_along_two_axes_of_images) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const auto x = random_tensor<float, 4, gradus::nhwc>(device, {2, 3, 4, 5}, "x");
  const auto v = random_tensor<float, 2>(device, {2, 3}, "v");
  const auto u = random_tensor<float, 2>(device, {3, 5}, "u");
  const gradus::tensor<float, 4, gradus::nhwc> y = x * along<axis::n, axis::c>(v) + along<axis::c, axis::w>(u);
  for_each_pixel({2, 3, 4, 5}, [&](index_t n, index_t c, index_t h, index_t w) {
    BOOST_TEST(y(n, c, h, w) == x(n, c, h, w) * v(n, c) + u(c, w), boost::test_tools::tolerance(1e-5F));
  });
}

BOOST_AUTO_TEST_SUITE_END()

// SPDX-License-Identifier: BSL-1.0
//
// Reductions and matrix operations against plain loops.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>
#include <tuple>

#include "support.hpp"

using namespace tensor_tests;
using gradus::axis;
using gradus::index_t;

BOOST_AUTO_TEST_SUITE(reductions)

using layouts = std::tuple<gradus::nchw, gradus::nhwc>;

BOOST_AUTO_TEST_CASE_TEMPLATE(over_axes_of_images, Layout, layouts) {
  gradus::cpu device{{.intra_op_threads = 2}};
  for (const auto& shape : image_shapes()) {
    const auto x = random_tensor<float, 4, Layout>(device, shape, "x");
    const gradus::tensor<float, 2> planes = sum<axis::h, axis::w>(x * x);
    const gradus::tensor<float, 1> channels = sum<axis::n, axis::h, axis::w>(x);
    const gradus::tensor<float, 3> pixels = sum<1>(x);
    const auto v = random_tensor<float, 1>(device, {shape.c}, "v");
    const double shifted = sum(x + per_channel(v)).value();
    gradus::tensor<double, 2> planes_expected{device, {shape.n, shape.c}};
    gradus::tensor<double, 1> channels_expected{device, {shape.c}};
    gradus::tensor<double, 3> pixels_expected{device, {shape.n, shape.h, shape.w}};
    double shifted_expected = 0;
    for_each_pixel(shape, [&](index_t n, index_t c, index_t h, index_t w) {
      const double value = x(n, c, h, w);
      planes_expected(n, c) += value * value;
      channels_expected(c) += value;
      pixels_expected(n, h, w) += value;
      shifted_expected += value + static_cast<double>(v(c));
    });
    BOOST_TEST_CONTEXT(shape) {
      BOOST_TEST(std::abs(shifted - shifted_expected) < 1e-3);
      const auto worst = [](const auto& values, const auto& expected) {
        double result = 0;
        for (index_t i = 0; i < values.size(); ++i) {
          result = larger(result, std::abs(static_cast<double>(values.data()[i]) - expected.data()[i]));
        }
        return result;
      };
      BOOST_TEST(worst(planes, planes_expected) < 2e-4);
      BOOST_TEST(worst(channels, channels_expected) < 2e-4);
      BOOST_TEST(worst(pixels, pixels_expected) < 1e-5);
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(extremes_and_their_indices, Layout, layouts) {
  gradus::cpu device{{.intra_op_threads = 1}};
  for (const auto& shape : image_shapes()) {
    if (shape.size() == 0) {
      continue;
    }
    auto x = random_tensor<float, 4, Layout>(device, shape, "x");
    x = cast<float>(cast<std::int32_t>(x * 20));  // whole numbers: many equals
    const gradus::tensor<std::int64_t, 2> indices = argmax<axis::h, axis::w>(x);
    const gradus::tensor<float, 2> largest = max<axis::h, axis::w>(x);
    const gradus::tensor<float, 2> smallest = min<2, 3>(x);
    for (index_t n = 0; n < shape.n; ++n) {
      for (index_t c = 0; c < shape.c; ++c) {
        float best = -1e9F;
        float least = 1e9F;
        std::int64_t index = -1;
        for (index_t i = 0; i < shape.h * shape.w; ++i) {
          const float value = x(n, c, i / shape.w, i % shape.w);
          if (value > best) {
            best = value;
            index = i;
          }
          least = std::min(least, value);
        }
        BOOST_TEST(largest(n, c) == best);
        BOOST_TEST(smallest(n, c) == least);
        BOOST_TEST(indices(n, c) == index);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(no_results, Layout, layouts) {
  gradus::cpu device{{.intra_op_threads = 2}};
  const gradus::tensor<float, 2> rows{device, {3, 0}};
  BOOST_TEST((sum<0>(rows).extents() == gradus::extents<1>{0}));
  BOOST_TEST((max<0>(rows).extents() == gradus::extents<1>{0}));
  for (const auto& shape : {gradus::image_extents{0, 3, 2, 5}, {2, 3, 2, 0}, {2, 3, 0, 5}}) {
    const gradus::image_tensor<float, Layout> x{device, shape};
    BOOST_TEST((max<axis::c>(x).extents() == gradus::extents<3>{shape.n, shape.h, shape.w}));
  }
}

BOOST_AUTO_TEST_CASE(float_is_added_in_double_and_the_bits_do_not_depend_on_threads) {
  gradus::cpu one{{.intra_op_threads = 1}};
  gradus::cpu three{{.intra_op_threads = 3}};
  const index_t count = 300'001;
  gradus::tensor<float, 1> many{one, {count}};
  many += 0.1F;
  BOOST_TEST(sum(many).value() == static_cast<float>(0.1F * static_cast<double>(count)));
  const auto bits = [&](gradus::cpu& device) {
    const auto x = random_tensor<double, 2>(device, {517, 301}, "x");
    gradus::tensor<double, 1> result = sum<0>(x) * sum(exp(x));
    return result;
  };
  const auto left = bits(one);
  const auto right = bits(three);
  BOOST_TEST(std::memcmp(left.data(), right.data(), 301 * sizeof(double)) == 0);
}

BOOST_AUTO_TEST_CASE(whole_numbers_norms_and_not_a_number) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::tensor<std::int32_t, 1> whole{device, {5}};
  whole += 3;
  BOOST_TEST(sum(whole).value() == 15);
  gradus::tensor<double, 1> x{device, {2}};
  x(0) = -3;
  x(1) = 4;
  BOOST_TEST(norm_l1(x).value() == 7.0);
  BOOST_TEST(scalar_of(norm_l2(x)) == 5.0);
  x(1) = std::nan("");
  BOOST_TEST(std::isnan(max(x).value()));
  BOOST_TEST(std::isnan(min(x).value()));
  BOOST_TEST(argmax(x).value() == 1);
  x = -x / 0.0;
  x(0) = x(1) = -HUGE_VAL;
  BOOST_TEST(argmax(x).value() == 0);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(products_of_every_orientation, Element, decltype(std::tuple<float, double>{})) {
  gradus::cpu device{{.intra_op_threads = 3}};
  for (const auto& [m, k, n] : {std::tuple{1, 1, 1}, {3, 5, 7}, {10, 10, 1}, {1, 33, 4}, {200, 90, 130}, {3, 0, 2}}) {
    const auto a = random_tensor<Element, 2>(device, {m, k}, "a");
    const auto b = random_tensor<Element, 2>(device, {k, n}, "b");
    const gradus::tensor<Element, 2> at = transpose(a);
    const gradus::tensor<Element, 2> bt = transpose(b);
    const gradus::tensor<Element, 2> plain = matmul(a, b);
    const gradus::tensor<Element, 2> left = matmul(transpose(at), b);
    const gradus::tensor<Element, 2> right = matmul(a, transpose(bt));
    const gradus::tensor<Element, 2> both = matmul(transpose(at), transpose(bt)) + 0 * transpose(matmul(bt, at));
    double worst = 0;
    for (index_t i = 0; i < m; ++i) {
      for (index_t j = 0; j < n; ++j) {
        double expected = 0;
        for (index_t l = 0; l < k; ++l) {
          expected += static_cast<double>(a(i, l)) * static_cast<double>(b(l, j));
        }
        for (const auto* product : {&plain, &left, &right, &both}) {
          worst = larger(worst, std::abs(static_cast<double>((*product)(i, j)) - expected));
        }
      }
    }
    BOOST_TEST(worst < 40 * static_cast<double>(std::numeric_limits<Element>::epsilon()));
  }
}

BOOST_AUTO_TEST_CASE(another_layout_keeps_coordinates) {
  gradus::cpu device{{.intra_op_threads = 2}};
  for (const auto& shape : image_shapes()) {
    const auto x = random_tensor<float, 4, gradus::nchw>(device, shape, "x");
    const gradus::image_tensor<float, gradus::nhwc> y = gradus::layout_cast<gradus::nhwc>(x);
    const gradus::image_tensor<float, gradus::nchw> z = gradus::layout_cast<gradus::nchw>(y);
    bool same = true;
    for_each_pixel(shape, [&](auto... at) { same = same && x(at...) == y(at...) && x(at...) == z(at...); });
    BOOST_TEST(same);
  }
}

BOOST_AUTO_TEST_SUITE_END()

// SPDX-License-Identifier: BSL-1.0
//
// relu, softmax, log_softmax, argmax and argmin along an axis against their definitions, over random shapes.
#include <array>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>

#include "gradus/tensor/activations.hpp"
#include "gradus/tensor/allclose.hpp"
#include "gradus/tensor/expressions.hpp"
#include "gradus/tensor/factories.hpp"
#include "random_shapes.hpp"
#include "support.hpp"

using namespace tensor_tests;
using gradus::axis;
using gradus::extents;
using gradus::index_t;

BOOST_AUTO_TEST_SUITE(activations)

using layouts = std::tuple<gradus::nchw, gradus::nhwc>;

BOOST_AUTO_TEST_CASE_TEMPLATE(softmax_of_every_axis, Layout, layouts) {
  gradus::cpu device{{.intra_op_threads = 2}};
  draws draw{11};
  const auto check = [&]<int Axis>(std::integral_constant<int, Axis>) {
    for (int round = 0; round < 25; ++round) {
      const auto shape = draw.shape<4>();
      if (shape[Axis] == 0) {
        continue;
      }
      auto x = random_tensor<double, 4, Layout>(device, shape, "x", -20, 20);
      x += round % 3 == 0 ? 1e4 : 0;  // exp(x) is infinite
      const auto probabilities = evaluate(gradus::softmax<Axis>(x));
      const auto logarithms = evaluate(gradus::log_softmax<Axis>(x));
      double worst = 0;
      for_each_coordinates(shape, [&](auto at) {
        long double sum = 0;
        const double here = element_at(x, at);
        auto other = at;
        for (other[Axis] = 0; other[Axis] < shape[Axis]; ++other[Axis]) {
          sum += std::exp(static_cast<long double>(element_at(x, other)) - here);
        }
        worst = larger(worst, std::abs(element_at(probabilities, at) - static_cast<double>(1 / sum)));
        worst = larger(worst, std::abs(element_at(logarithms, at) + static_cast<double>(std::log(sum))) / 40);
      });
      BOOST_TEST(worst < 1e-14, shape << " axis " << Axis << ": " << worst);
    }
  };
  check(std::integral_constant<int, 0>{});
  check(std::integral_constant<int, 1>{});
  check(std::integral_constant<int, 3>{});
}

BOOST_AUTO_TEST_CASE(softmax_at_the_borders) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto x = gradus::from_list<float, 2>(
      device, {{-inf, 0, 0}, {-inf, -inf, -inf}, {inf, 0, 0}, {nan, 0, 0}, {3e38F, -3e38F, 3e38F}});
  const auto expected = gradus::from_list<float, 2>(
      device, {{0, 0.5F, 0.5F}, {nan, nan, nan}, {nan, 0, 0}, {nan, nan, nan}, {0.5F, 0, 0.5F}});
  auto y = evaluate(softmax<1>(x));
  BOOST_TEST((std::isnan(y(2, 0)) && std::isnan(y(1, 2)) && std::isnan(y(3, 1))));
  y(2, 1) = y(2, 2) = 0;
  BOOST_TEST(gradus::allclose(y, expected, {.equal_nan = true}));
  const auto logs = evaluate(log_softmax<1>(gradus::from_list<float, 2>(device, {{0, -200, -inf}})));
  BOOST_TEST((logs(0, 0) == 0.0F && logs(0, 1) == -200.0F && logs(0, 2) == -inf));
  const auto vector = gradus::from_list<double, 1>(device, {1, 1, 1, 1});
  BOOST_TEST(gradus::max_difference(softmax<0>(vector), gradus::full<double>(device, {4}, 0.25)) == 0);
  BOOST_TEST((evaluate(softmax<1>(gradus::zeros<float>(device, {0, 3}))).extents() == extents<2>{0, 3}));
  const auto empty = gradus::zeros<float>(device, {3, 0});
  const auto says = [](const gradus::shape_error& e) {
    const std::string text{e.what()};
    return text.find("softmax: expected at least one entry along the axis, got (3, 0). [activations.cpp:") !=
           std::string::npos;
  };
  BOOST_CHECK_EXCEPTION((void)softmax<1>(empty), gradus::shape_error, says);
  BOOST_CHECK_EXCEPTION((void)log_softmax<1>(empty), gradus::shape_error, says);
}

BOOST_AUTO_TEST_CASE(relu_of_all_numbers) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const double nan = std::nan("");
  for (const index_t size : {1, 3, 4, 9, 33}) {
    gradus::tensor<double, 1> x{device, {size}};
    for (index_t i = 0; i < size; ++i) {
      x(i) = std::array{-2.0, 3.0, 0.0, nan, -HUGE_VAL}[static_cast<std::size_t>(i % 5)];
    }
    const auto y = evaluate(relu(x));
    const auto [gradient] = gradients(sum(gradus::where(x == x, 3 * relu(x), 0)), x);
    for (index_t i = 0; i < size; ++i) {
      BOOST_TEST((std::isnan(x(i)) ? std::isnan(y(i)) : y(i) == (x(i) > 0 ? x(i) : 0)));
      BOOST_TEST(gradient(i) == (x(i) > 0 ? 3 : 0));
    }
  }
  BOOST_TEST(evaluate(relu(gradus::from_list<std::int32_t, 1>(device, {-3, 2})))(0) == 0);
}

BOOST_AUTO_TEST_CASE(derivatives_of_softmax) {
  using Layout = gradus::nhwc;
  gradus::cpu device{{.intra_op_threads = 1}};
  const extents<4> shape{2, 3, 4, 2};
  const auto x = random_tensor<double, 4, Layout>(device, shape, "x", -2, 2);
  const auto w = random_tensor<double, 4, Layout>(device, shape, "w");
  const auto [of_softmax] = gradients(sum(w * gradus::softmax<axis::c>(x)), x);
  const auto [of_logarithm] = gradients(sum(w * gradus::log_softmax<axis::h>(x)), x);
  for (index_t i = 0; i < x.size(); ++i) {
    const double step = 1e-5;
    auto up = x;
    auto down = x;
    up.data()[i] += step;
    down.data()[i] -= step;
    const auto slope = [&](const auto& f) { return (f(up) - f(down)) / (2 * step); };
    BOOST_TEST(std::abs(of_softmax.data()[i] -
                        slope([&](const auto& a) { return scalar_of(sum(w * gradus::softmax<axis::c>(a))); })) < 1e-9);
    BOOST_TEST(std::abs(of_logarithm.data()[i] - slope([&](const auto& a) {
                          return scalar_of(sum(w * gradus::log_softmax<axis::h>(a)));
                        })) < 1e-9);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(positions_of_extremes, Layout, layouts) {
  gradus::cpu device{{.intra_op_threads = 2}};
  draws draw{12};
  const auto check = [&]<class Element, int Axis>(Element, std::integral_constant<int, Axis>) {
    for (int round = 0; round < 25; ++round) {
      const auto shape = draw.shape<4>();
      if (shape[Axis] == 0) {
        continue;
      }
      auto x = random_tensor<double, 4, Layout>(device, shape, "x", 0, 5);
      const auto whole = evaluate(cast<Element>(cast<std::uint8_t>(x)));  // many equals
      const auto largest = evaluate(argmax<Axis>(whole));
      const auto smallest = evaluate(argmin<Axis>(whole));
      int wrong = 0;
      for_each_coordinates(largest.extents(), [&](const auto& kept) {
        std::array<index_t, 4> at{};
        for (std::size_t i = 0, from = 0; i < 4; ++i) {
          at[i] = static_cast<int>(i) == Axis ? 0 : kept[from++];
        }
        auto best = at;
        auto least = at;
        for (; at[Axis] < shape[Axis]; ++at[Axis]) {
          best = element_at(whole, at) > element_at(whole, best) ? at : best;
          least = element_at(whole, at) < element_at(whole, least) ? at : least;
        }
        wrong += element_at(largest, kept) == best[Axis] && element_at(smallest, kept) == least[Axis] ? 0 : 1;
      });
      BOOST_TEST(wrong == 0, shape << " axis " << Axis);
    }
  };
  check(float{}, std::integral_constant<int, 1>{});
  check(std::uint8_t{}, std::integral_constant<int, 0>{});
  check(std::int32_t{}, std::integral_constant<int, 3>{});
}

BOOST_AUTO_TEST_CASE(the_first_nan_is_the_position_of_both_extremes) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const double nan = std::nan("");
  const auto x = gradus::from_list<double, 1>(device, {3, nan, -5, nan, 9});
  BOOST_TEST(argmin(x).value() == 1);
  BOOST_TEST(argmax(x).value() == 1);
  BOOST_TEST(argmin(gradus::full<double>(device, {3}, HUGE_VAL)).value() == 0);
  BOOST_CHECK_THROW((void)argmin(gradus::zeros<float>(device, {0})), gradus::shape_error);
}

BOOST_AUTO_TEST_SUITE_END()

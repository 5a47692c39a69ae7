// SPDX-License-Identifier: BSL-1.0
//
// allclose and max_difference against numpy.allclose's formula, over random shapes.
#include <array>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>

#include "far_device.hpp"
#include "gradus/tensor/allclose.hpp"
#include "gradus/tensor/copy.hpp"
#include "gradus/tensor/expressions.hpp"
#include "gradus/tensor/factories.hpp"
#include "random_shapes.hpp"
#include "support.hpp"

using namespace tensor_tests;
using gradus::allclose;
using gradus::index_t;
using gradus::max_difference;

BOOST_AUTO_TEST_SUITE(closeness)

BOOST_AUTO_TEST_CASE(the_formula) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const auto one = [&](double value) { return gradus::full<double>(device, {1}, value); };
  BOOST_TEST(allclose(one(1 + 0.99e-5), one(1)));
  BOOST_TEST(!allclose(one(1 + 1.02e-5), one(1)));
  BOOST_TEST(allclose(one(0.9e-8), one(0)));
  BOOST_TEST(!allclose(one(1.1e-8), one(0)));
  // b is the reference.
  BOOST_TEST(allclose(one(0), one(10), {.relative = 1, .absolute = 0}));
  BOOST_TEST(!allclose(one(10), one(0), {.relative = 1, .absolute = 0}));
  BOOST_TEST(allclose(one(10), one(10.5), {.relative = 0, .absolute = 0.5}));
  BOOST_TEST(!allclose(one(10), one(10.5), {.relative = 0, .absolute = 0.49}));

  const double inf = HUGE_VAL;
  const double nan = std::nan("");
  const gradus::tolerance wide{.relative = 1, .absolute = inf};
  const gradus::tolerance with_nan{.equal_nan = true};
  BOOST_TEST(allclose(one(inf), one(inf)));
  BOOST_TEST(allclose(one(-inf), one(-inf)));
  BOOST_TEST(!allclose(one(inf), one(-inf), wide));
  BOOST_TEST(!allclose(one(1), one(inf), wide));
  BOOST_TEST(!allclose(one(inf), one(1), wide));
  BOOST_TEST(!allclose(one(nan), one(nan)));
  BOOST_TEST(allclose(one(nan), one(nan), with_nan));
  BOOST_TEST(!allclose(one(nan), one(1), with_nan));
  BOOST_TEST(!allclose(one(1), one(nan), with_nan));
  BOOST_TEST(!allclose(one(nan), one(inf), with_nan));

  BOOST_TEST(max_difference(one(inf), one(inf)) == 0);
  BOOST_TEST(max_difference(one(inf), one(1)) == inf);
  BOOST_TEST(std::isnan(max_difference(one(nan), one(nan))));
  const auto last_is_nan = gradus::from_list<double, 1>(device, {nan, 1});
  BOOST_TEST(std::isnan(max_difference(last_is_nan, gradus::zeros<double>(device, {2}))));
}

BOOST_AUTO_TEST_CASE(all_layouts_and_shapes) {
  gradus::cpu device{{.intra_op_threads = 1}};
  archetypes::far_device far;
  draws draw{21};
  for (int round = 0; round < 100; ++round) {
    const auto shape = draw.shape<4>();
    const auto a = random_tensor<float, 4, gradus::nchw>(device, shape, "x");
    auto b = random_tensor<float, 4, gradus::nhwc>(device, shape, "x");
    BOOST_TEST(allclose(a, b, {.relative = 0, .absolute = 0}));
    BOOST_TEST(max_difference(a, b) == 0);
    if (shape.size() == 0) {
      continue;
    }
    const index_t changed = draw.below(shape.size());
    b.data()[changed] += 0.5F;
    BOOST_TEST(!allclose(a, b), shape);
    BOOST_TEST(std::abs(max_difference(a, b) - 0.5) < 1e-6);
    BOOST_TEST(std::abs(max_difference(gradus::to(far, a), b.view()) - 0.5) < 1e-6);
    BOOST_TEST(allclose(a * 2, a + a));
    BOOST_TEST(max_difference(gradus::cast<double>(b), b) == 0);
  }
  BOOST_TEST(far.blocks() == 0);
}

BOOST_AUTO_TEST_CASE(whole_numbers_are_subtracted_exactly) {
  gradus::cpu device{{.intra_op_threads = 1}};
  constexpr std::int64_t large = std::int64_t{1} << 60;
  const auto a = gradus::from_list<std::int64_t, 1>(device, {large});
  const auto b = gradus::from_list<std::int64_t, 1>(device, {large + 1});
  BOOST_TEST(max_difference(a, b) == 1);
  const auto least = gradus::from_list<std::int64_t, 1>(device, {std::numeric_limits<std::int64_t>::min()});
  BOOST_TEST(max_difference(least, a) == 0x1.2p63);
  const auto bytes = gradus::from_list<std::uint8_t, 1>(device, {3});
  BOOST_TEST(max_difference(bytes, gradus::from_list<std::uint8_t, 1>(device, {250})) == 247);
}

BOOST_AUTO_TEST_CASE(mistakes) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const auto a = gradus::zeros<float>(device, {2, 3});
  const auto b = gradus::zeros<float>(device, {3, 2});
  const auto says = [](const std::string& what) {
    return [what](const gradus::error& e) {
      const std::string text{e.what()};
      return text.starts_with(what) && text.find("[allclose.cpp:") != std::string::npos;
    };
  };
  BOOST_CHECK_EXCEPTION((void)allclose(a, b), gradus::shape_error,
                        says("allclose: expected tensors of one shape, got (2, 3) and (3, 2)."));
  BOOST_CHECK_EXCEPTION((void)max_difference(a, b), gradus::shape_error, says("max_difference: expected tensors"));
  BOOST_CHECK_EXCEPTION((void)allclose(a, a, {.relative = -1}), gradus::configuration_error,
                        says("allclose: expected tolerances of at least 0"));
  BOOST_CHECK_EXCEPTION((void)allclose(a, a, {.absolute = std::nan("")}), gradus::configuration_error,
                        says("allclose: expected tolerances of at least 0"));
}

BOOST_AUTO_TEST_SUITE_END()

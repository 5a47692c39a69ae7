// SPDX-License-Identifier: BSL-1.0
//
// Group, layer and instance normalization against their formulas in double precision, in all element types.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/kernels/cpu/group_norm.hpp"
#include "gradus/simd/isa.hpp"
#include "instruction_sets.hpp"
#include "support.hpp"

namespace {

using namespace pointwise;
using gradus::kernels::activation;
using gradus::kernels::group_norm_parameters;
using gradus::kernels::normalized_set;

struct set_norm_case {
  image_extents shape;
  group_norm_parameters parameters;
  activation act = activation::relu;  // with `extra`
};

/// Borders of packets, strips of 2048, pieces of 32768 elements and blocks of examples, in all orders of memory.
std::vector<set_norm_case> set_norm_cases() {
  std::vector<set_norm_case> cases;
  const auto add = [&](const image_extents& shape, index_t groups) {
    cases.push_back({shape, {normalized_set::group, groups, 1e-3}});
  };
  add({1, 1, 1, 1}, 1);
  add({0, 4, 2, 2}, 2);
  add({2, 3, 5, 7}, 1);
  add({2, 3, 5, 7}, 3);
  add({3, 12, 3, 3}, 4);
  add({1, 34, 33, 31}, 2);
  add({7, 6, 1, 1}, 2);
  add({2, 4, 96, 95}, 2);
  add({40, 40, 1, 1}, 5);
  for (const image_extents& shape :
       {image_extents{1, 1, 1, 1}, image_extents{0, 3, 2, 2}, image_extents{2, 3, 5, 7}, image_extents{37, 5, 1, 1},
        image_extents{3, 70, 9, 8}, image_extents{2, 17, 47, 50}, image_extents{1, 2100, 2, 3},
        image_extents{1, 5, 111, 101}}) {
    cases.push_back({shape, {normalized_set::image, 1, 1e-3}});
    cases.push_back({shape, {normalized_set::pixel, 1, 1e-3}});
  }
  return cases;
}

/// What the passes read, with numbers that all element types store exactly.
struct set_norm_inputs {
  set_norm_inputs(const set_norm_case& tested, double mean)
      : x{tested.shape, "x", 1, mean},
        dy{tested.shape, "dy"},
        residual{tested.shape, "residual"},
        relu{tested.shape, "relu"},
        gamma{affine_shape(tested), "gamma", 0.5, 1},
        beta{affine_shape(tested), "beta", 0.5, 0} {}

  static image_extents affine_shape(const set_norm_case& tested) {
    return tested.parameters.over == normalized_set::image
               ? image_extents{1, tested.shape.c, tested.shape.h, tested.shape.w}
               : image_extents{1, tested.shape.c, 1, 1};
  }
  void round_to_sixteen_bits() {
    for (plain_images* const each : {&x, &dy, &residual, &relu, &gamma, &beta}) {
      for (double& value : each->values) {
        value = static_cast<double>(gradus::float16{gradus::bfloat16{static_cast<float>(value)}});
      }
    }
  }

  plain_images x, dy, residual, relu, gamma, beta;
};

struct set_norm_results {
  std::vector<double> y, dx, dgamma, dbeta;

  bool operator==(const set_norm_results& other) const {
    return same_bits(y, other.y) && same_bits(dx, other.dx) && same_bits(dgamma, other.dgamma) &&
           same_bits(dbeta, other.dbeta);
  }
};

/// With `extra`: a residual and an activation forward, a gradient that is added to and masked backward.
set_norm_results expected_set_norm(const set_norm_case& tested, const set_norm_inputs& in, bool affine, bool extra) {
  const auto [over, groups, added] = tested.parameters;
  const image_extents shape = tested.shape;
  const auto set_of = [&](index_t n, index_t c, index_t h, index_t w) {
    const index_t width = std::max(index_t{1}, shape.c / groups);
    return over == normalized_set::group   ? n * groups + c / width
           : over == normalized_set::image ? n
                                           : (n * shape.h + h) * shape.w + w;
  };
  const auto affine_at = [&](const plain_images& from, index_t c, index_t h, index_t w) {
    return over == normalized_set::image ? from(0, c, h, w) : from(0, c, 0, 0);
  };
  struct sums {
    double count = 0, mean = 0, variance = 0, gradient = 0, product = 0;
  };
  std::map<index_t, sums> sets;
  for_each_coordinate(shape, [&](index_t n, index_t c, index_t h, index_t w) {
    sums& set = sets[set_of(n, c, h, w)];
    set.count += 1;
    set.mean += in.x(n, c, h, w);
  });
  for (auto& [number, set] : sets) {
    set.mean /= set.count;
  }
  for_each_coordinate(shape, [&](index_t n, index_t c, index_t h, index_t w) {
    sums& set = sets[set_of(n, c, h, w)];
    set.variance += std::pow(in.x(n, c, h, w) - set.mean, 2) / set.count;
  });
  plain_images y{shape}, dx{shape}, dgamma{in.gamma.shape}, dbeta{in.gamma.shape};
  const auto normal = [&](index_t n, index_t c, index_t h, index_t w) {
    const sums& set = sets[set_of(n, c, h, w)];
    return (in.x(n, c, h, w) - set.mean) / std::sqrt(set.variance + added);
  };
  const auto scaled = [&](index_t n, index_t c, index_t h, index_t w) {
    return in.dy(n, c, h, w) * (affine ? affine_at(in.gamma, c, h, w) : 1.0);
  };
  for_each_coordinate(shape, [&](index_t n, index_t c, index_t h, index_t w) {
    double value = normal(n, c, h, w);
    value = affine ? value * affine_at(in.gamma, c, h, w) + affine_at(in.beta, c, h, w) : value;
    value += extra ? in.residual(n, c, h, w) : 0.0;
    y(n, c, h, w) = extra ? std::min(value < 0 ? tested.act.slope * value : value, tested.act.cap) : value;
    sums& set = sets[set_of(n, c, h, w)];
    set.gradient += scaled(n, c, h, w) / set.count;
    set.product += scaled(n, c, h, w) * normal(n, c, h, w) / set.count;
    const bool whole = over == normalized_set::image;
    dgamma(0, c, whole ? h : 0, whole ? w : 0) += in.dy(n, c, h, w) * normal(n, c, h, w);
    dbeta(0, c, whole ? h : 0, whole ? w : 0) += in.dy(n, c, h, w);
  });
  for_each_coordinate(shape, [&](index_t n, index_t c, index_t h, index_t w) {
    const sums& set = sets[set_of(n, c, h, w)];
    double value =
        (scaled(n, c, h, w) - set.gradient - normal(n, c, h, w) * set.product) / std::sqrt(set.variance + added);
    value += extra ? in.residual(n, c, h, w) : 0.0;
    const double output = in.relu(n, c, h, w);
    const double slope = output > 0 ? (output < tested.act.cap ? 1.0 : 0.0) : tested.act.slope;
    dx(n, c, h, w) = extra ? slope * value : value;
  });
  return {y.values, dx.values, dgamma.values, dbeta.values};
}

template <class Element, class Layout>
set_norm_results run_set_norm(int threads, const set_norm_case& tested, const set_norm_inputs& in, bool affine,
                              bool extra) {
  using real = gradus::parameter_element_t<Element>;
  cpu device{{.intra_op_threads = threads}};
  const image_extents shape = tested.shape;
  const auto x = stored<Element, Layout>(in.x);
  const auto residual = stored<Element, Layout>(in.residual);
  const auto relu = stored<Element, Layout>(in.relu);
  const auto gamma = stored<real, Layout>(in.gamma);
  const auto beta = stored<real, Layout>(in.beta);
  auto dx = stored<Element, Layout>(in.dy);
  const auto dy = dx;
  if (extra) {
    dx = residual;  // what is added to; else dx is the memory of dy
  }
  std::vector<Element> y(x.size());
  std::vector<real> dgamma(gamma.size(), real{7});
  std::vector<real> dbeta(gamma.size(), real{7});
  const auto bytes = gradus::kernels::group_norm_memory_for<Element, Layout>(device, shape, tested.parameters);
  std::vector<std::byte> state(bytes.state, std::byte{0xff});
  std::vector<std::byte> workspace(bytes.workspace, std::byte{0xff});
  using input = image_view<const Element, Layout>;
  using output = image_view<Element, Layout>;
  const gradus::kernels::batch_norm_affine<real> scale{affine ? gamma.data() : nullptr, affine ? beta.data() : nullptr};
  group_norm_forward(device, input{device, x.data(), shape}, output{device, y.data(), shape}, tested.parameters, scale,
                     {.residual = extra ? residual.data() : nullptr, .act = extra ? tested.act : activation::identity},
                     state, workspace);
  std::fill(workspace.begin(), workspace.end(), std::byte{0xff});
  group_norm_backward(
      device, input{device, x.data(), shape}, input{device, extra ? dy.data() : dx.data(), shape},
      output{device, dx.data(), shape}, tested.parameters, scale, {.gamma = dgamma.data(), .beta = dbeta.data()},
      {.accumulate = extra, .relu_output = extra ? relu.data() : nullptr, .mask = tested.act}, state, workspace);
  return {plain<Layout>(shape, y).values, plain<Layout>(shape, dx).values, plain<Layout>(in.gamma.shape, dgamma).values,
          plain<Layout>(in.gamma.shape, dbeta).values};
}

/// Sums over many elements, whose terms are rounded, have a relative error of the largest sum.
double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = a.size() == b.size() ? 0.0 : INFINITY;
  double largest = 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    worst = std::max(worst, std::isnan(a[i]) ? INFINITY : std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return worst / largest;
}

using set_norm_kinds =
    std::tuple<test_case<float, nchw>, test_case<float, nhwc>, test_case<double, nchw>, test_case<double, nhwc>,
               test_case<gradus::bfloat16, nchw>, test_case<gradus::bfloat16, nhwc>, test_case<gradus::float16, nchw>,
               test_case<gradus::float16, nhwc>>;

}  // namespace

BOOST_AUTO_TEST_SUITE(group_norm)

BOOST_AUTO_TEST_CASE_TEMPLATE(sets_are_normalized_as_the_formulas_say, Case, set_norm_kinds) {
  using element = typename Case::element;
  using layout = typename Case::layout;
  // Twice: y and dx of 16 bits are rounded to 8 (float16: 11) bits, after terms that are twice as large.
  const double allowed = sizeof(element) == 8                        ? 1e-12
                         : sizeof(element) == 4                      ? 2e-5
                         : std::is_same_v<element, gradus::bfloat16> ? 1.0 / 128
                                                                     : 1.0 / 1024;
  const double of_sums = sizeof(element) == 8 ? 1e-12 : 2e-5;
  const std::array activations{activation::relu, activation::leaky_relu(0.125), activation{.slope = 0, .cap = 0.5}};
  std::size_t number = 0;
  for (set_norm_case tested : set_norm_cases()) {
    tested.act = activations[number++ % activations.size()];
    set_norm_inputs in{tested, 3};
    if (sizeof(element) == 2) {
      in.round_to_sixteen_bits();
    }
    for (const auto& [affine, extra] : {std::pair{true, false}, {false, true}, {true, true}}) {
      BOOST_TEST_CONTEXT("shape " << tested.shape << " set " << static_cast<int>(tested.parameters.over) << " groups "
                                  << tested.parameters.groups << " affine " << affine << " extra " << extra) {
        const auto got = run_set_norm<element, layout>(1, tested, in, affine, extra);
        if (affine && extra) {
          for_each_instruction_set([&](gradus::kernels::instruction_set) {
            BOOST_TEST((run_set_norm<element, layout>(3, tested, in, true, true) == got));
          });
        } else {
          BOOST_TEST((run_set_norm<element, layout>(3, tested, in, affine, extra) == got));
        }
        const auto expected = expected_set_norm(tested, in, affine, extra);
        BOOST_TEST(difference(got.y, expected.y) <= allowed);
        BOOST_TEST(difference(got.dx, expected.dx) <= allowed);
        BOOST_TEST(largest_difference(got.dgamma, expected.dgamma) <= of_sums);
        BOOST_TEST(largest_difference(got.dbeta, expected.dbeta) <= of_sums);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(set_statistics_keep_their_digits_far_from_zero, Case, float_and_double_cases) {
  using element = typename Case::element;
  using layout = typename Case::layout;
  // A deviation of 1 at a mean of 10000: rounding the mean makes an error of 5e-4.
  for (const normalized_set over : {normalized_set::group, normalized_set::image, normalized_set::pixel}) {
    const set_norm_case tested{{2, 64, 17, 16}, {over, over == normalized_set::group ? 4 : 1, 1e-3}};
    const set_norm_inputs in{tested, 10000};
    const auto got = run_set_norm<element, layout>(1, tested, in, true, false);
    const auto expected = expected_set_norm(tested, in, true, false);
    BOOST_TEST(difference(got.y, expected.y) <= tolerance<element>(2e-5));
    BOOST_TEST(difference(got.dx, expected.dx) <= tolerance<element>(2e-5));
    BOOST_TEST(largest_difference(got.dgamma, expected.dgamma) <= tolerance<element>(2e-5));
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(equal_elements_become_zero_exactly, Case, float_and_double_cases) {
  using element = typename Case::element;
  using layout = typename Case::layout;
  for (const normalized_set over : {normalized_set::group, normalized_set::image, normalized_set::pixel}) {
    const set_norm_case tested{{2, 6, 5, 3}, {over, over == normalized_set::group ? 2 : 1, 1e-5}};
    const set_norm_inputs in{tested, 0.1};
    set_norm_inputs equal = in;
    equal.x.values.assign(in.x.values.size(), static_cast<double>(0.1F));
    const auto got = run_set_norm<element, layout>(1, tested, equal, false, false);
    BOOST_TEST((got.y == std::vector<double>(got.y.size(), 0.0)));
    BOOST_TEST((got.dgamma == std::vector<double>(got.dgamma.size(), 0.0)));
  }
}

BOOST_AUTO_TEST_CASE(a_nan_stays_in_its_set) {
  const set_norm_case tested{{2, 4, 3, 3}, {normalized_set::group, 2, 1e-3}};
  set_norm_inputs in{tested, 0};
  in.x(1, 1, 2, 0) = std::nan("");
  const auto got = run_set_norm<float, nhwc>(1, tested, in, true, true);
  plain_images y{tested.shape};
  y.values = got.y;
  for_each_coordinate(tested.shape, [&](index_t n, index_t c, index_t h, index_t w) {
    BOOST_TEST(std::isnan(y(n, c, h, w)) == (n == 1 && c < 2));
  });
}

BOOST_AUTO_TEST_CASE(short_memory_is_refused) {
  cpu device{{.intra_op_threads = 1}};
  std::vector<float> x(12), y(12);
  std::vector<std::byte> enough(4096), little(8);
  const image_extents shape{1, 3, 2, 2};
  const auto run = [&](std::span<std::byte> state, std::span<std::byte> workspace) {
    group_norm_forward(device, image_view<const float, nchw>{device, x.data(), shape},
                       image_view<float, nchw>{device, y.data(), shape}, {}, {}, {}, state, workspace);
  };
  run(enough, enough);
  BOOST_CHECK_THROW(run(little, enough), gradus::shape_error);
  BOOST_CHECK_THROW(run(enough, little), gradus::shape_error);
}

BOOST_AUTO_TEST_SUITE_END()

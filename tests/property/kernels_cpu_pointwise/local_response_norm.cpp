// SPDX-License-Identifier: BSL-1.0
//
// Local response normalization against its formulas in double precision and finite differences.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <vector>

#include "gradus/kernels/cpu/local_response_norm.hpp"
#include "gradus/simd/isa.hpp"
#include "instruction_sets.hpp"
#include "support.hpp"

namespace {

using namespace pointwise;
using gradus::kernels::local_response_norm_parameters;

const std::vector<image_extents> response_shapes{{1, 1, 1, 1},  {0, 3, 2, 2},  {2, 3, 5, 7},  {1, 7, 1, 1},
                                                 {3, 17, 3, 3}, {1, 64, 4, 5}, {2, 33, 1, 19}};
const std::vector<local_response_norm_parameters> parameters{{},
                                                             {.radius = 0, .alpha = 0.5, .beta = 1, .k = 1},
                                                             {.radius = 5, .alpha = 0.1, .beta = 0.5, .k = 1.5},
                                                             {.radius = 40, .alpha = 0.1, .beta = 0.75, .k = 1}};

plain_images reference(const plain_images& x, const local_response_norm_parameters& p) {
  plain_images y{x.shape};
  for_each_coordinate(x.shape, [&](index_t n, index_t c, index_t h, index_t w) {
    double sum = 0;
    for (index_t j = std::max(index_t{0}, c - p.radius); j <= std::min(x.shape.c - 1, c + p.radius); ++j) {
      sum += x(n, j, h, w) * x(n, j, h, w);
    }
    y(n, c, h, w) = x(n, c, h, w) * std::pow(p.k + p.alpha * sum, -p.beta);
  });
  return y;
}

template <class Element, class Layout>
std::vector<Element> forward(int threads, const plain_images& x, const local_response_norm_parameters& p) {
  cpu device{{.intra_op_threads = threads}};
  const auto input = stored<Element, Layout>(x);
  std::vector<Element> y(input.size());
  local_response_norm_forward(device, image_view<const Element, Layout>{device, input.data(), x.shape},
                              image_view<Element, Layout>{device, y.data(), x.shape}, p);
  return y;
}

template <class Element, class Layout>
std::vector<Element> backward(int threads, const plain_images& x, const plain_images& dy, const plain_images* before,
                              const plain_images* relu, const local_response_norm_parameters& p) {
  cpu device{{.intra_op_threads = threads}};
  const auto input = stored<Element, Layout>(x);
  const auto slope = stored<Element, Layout>(dy);
  auto dx = before == nullptr ? std::vector<Element>(input.size(), Element{99}) : stored<Element, Layout>(*before);
  const auto mask = relu == nullptr ? std::vector<Element>{} : stored<Element, Layout>(*relu);
  local_response_norm_backward(
      device, image_view<const Element, Layout>{device, input.data(), x.shape},
      image_view<const Element, Layout>{device, slope.data(), x.shape},
      image_view<Element, Layout>{device, dx.data(), x.shape}, p,
      {.accumulate = before != nullptr, .relu_output = relu == nullptr ? nullptr : mask.data()});
  return dx;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(local_response_norm)

BOOST_AUTO_TEST_CASE_TEMPLATE(forward_is_its_definition, Case, float_and_double_cases) {
  using element = typename Case::element;
  using layout = typename Case::layout;
  for (const image_extents& shape : response_shapes) {
    for (const auto& p : parameters) {
      BOOST_TEST_CONTEXT("shape " << shape << " radius " << p.radius) {
        const plain_images x{shape, "x", 3};
        const auto y = forward<element, layout>(1, x, p);
        for_each_instruction_set(
            [&](gradus::kernels::instruction_set) { BOOST_TEST(same_bits(forward<element, layout>(3, x, p), y)); });
        BOOST_TEST(difference(plain<layout>(shape, y).values, reference(x, p).values) <= tolerance<element>(2e-6));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(backward_agrees_with_finite_differences, Case, double_cases) {
  using layout = typename Case::layout;
  for (const image_extents& shape : {image_extents{2, 3, 2, 3}, image_extents{1, 13, 1, 2}}) {
    for (const auto& p : parameters) {
      BOOST_TEST_CONTEXT("shape " << shape << " radius " << p.radius) {
        plain_images x{shape, "x"};
        const plain_images dy{shape, "dy"};
        const auto dx = plain<layout>(shape, backward<double, layout>(1, x, dy, nullptr, nullptr, p));
        const auto slopes = finite_differences(x.values, [&] { return dot(reference(x, p).values, dy.values); });
        BOOST_TEST(difference(dx.values, slopes) <= 1e-7);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(backward_is_the_same_for_all_types_layouts_and_threads, Case, float_and_double_cases) {
  using element = typename Case::element;
  using layout = typename Case::layout;
  for (const image_extents& shape : response_shapes) {
    for (const auto& p : parameters) {
      BOOST_TEST_CONTEXT("shape " << shape << " radius " << p.radius) {
        const plain_images x{shape, "x", 2};
        const plain_images dy{shape, "dy"};
        const plain_images before{shape, "before"};
        const plain_images relu{shape, "relu"};
        auto expected = plain<nchw>(shape, backward<double, nchw>(1, x, dy, nullptr, nullptr, p));
        for (std::size_t i = 0; i < expected.values.size(); ++i) {
          expected.values[i] = relu.values[i] > 0 ? expected.values[i] + before.values[i] : 0.0;
        }
        const auto dx = backward<element, layout>(1, x, dy, &before, &relu, p);
        for_each_instruction_set([&](gradus::kernels::instruction_set) {
          BOOST_TEST(same_bits(backward<element, layout>(3, x, dy, &before, &relu, p), dx));
        });
        BOOST_TEST(difference(plain<layout>(shape, dx).values, expected.values) <= tolerance<element>(4e-6));
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

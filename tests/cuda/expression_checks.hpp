// SPDX-License-Identifier: BSL-1.0
//
// Expressions on a device that uses Thrust against the same expressions on the CPU.
#pragma once

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <tuple>

#include "../property/tensor/support.hpp"
#include "gradus/tensor/activations.hpp"
#include "gradus/tensor/concat.hpp"
#include "gradus/tensor/copy.hpp"
#include "gradus/tensor/permute.hpp"
#include "gradus/tensor/reshape.hpp"
#include "gradus/tensor/slice.hpp"

namespace expression_checks {

using gradus::axis;
using gradus::index_t;
using tensor_tests::random_tensor;

/// The largest difference of two results, relative to values above 1; infinity when shapes differ.
template <class Device, class Left, class Right>
double difference(gradus::cpu& host, const Left& expected, const Right& computed) {
  const auto wanted = gradus::evaluate(expected);
  const auto values = gradus::to(host, computed);
  if (wanted.extents() != values.extents()) {
    return std::numeric_limits<double>::infinity();
  }
  double worst = 0;
  for (index_t i = 0; i < wanted.size(); ++i) {
    const auto a = static_cast<double>(wanted.data()[i]);
    const auto b = static_cast<double>(values.data()[i]);
    if (a != b && !(a != a && b != b)) {
      worst = tensor_tests::larger(std::abs(a - b) / std::max(1.0, std::abs(a)), worst);
    }
  }
  return worst;
}

/// Checks that a function of tensors gives the same on both devices.
template <class Device, class Function, class... Tensors>
void same(std::string_view what, gradus::cpu& host, Device& device, double tolerance, const Function& function,
          const Tensors&... tensors) {
  BOOST_TEST_INFO(what);
  const double off = difference<Device>(host, function(tensors...), function(gradus::to(device, tensors)...));
  BOOST_TEST(off <= tolerance);
}

/// All element-wise operations, and values along axes.
template <class Element, class Layout, class Device>
void elementwise(gradus::cpu& host, Device& device) {
  const double close = 16 * static_cast<double>(std::numeric_limits<Element>::epsilon());
  for (const auto& shape : tensor_tests::image_shapes()) {
    BOOST_TEST_CONTEXT(shape) {
      const auto a = random_tensor<Element, 4, Layout>(host, shape, "a");
      const auto b = random_tensor<Element, 4, Layout>(host, shape, "b", 0.5, 2);
      const auto v = random_tensor<Element, 1>(host, {shape.c}, "v");
      const auto u = random_tensor<Element, 2>(host, {shape.n, shape.c}, "u");
      const auto one = random_tensor<Element, 0>(host, {}, "one");
      same(
          "operations", host, device, close,
          [](const auto& x, const auto& y, const auto& z, const auto& one_value) {
            const auto chosen = where((x > 0 && !(y <= 1)) || x == y, maximum(x, y), clamp(x, -0.25, one_value));
            return gradus::evaluate(x * 2 - exp(x) / sqrt(y) + per_channel(z) * square(chosen) + tanh(x) + sigmoid(x) -
                                    log(y) * abs(x) + pow(y, 1.5) + minimum(x, -y));
          },
          a, b, v, one);
      same(
          "along axes", host, device, close,
          [](const auto& x, const auto& y) { return gradus::evaluate(x < along<axis::n, axis::c>(y)); }, a, u);
    }
  }
}

/// Reductions over some axes; sums of the two devices differ by their order.
template <class Element, class Layout, class Device>
void reductions(gradus::cpu& host, Device& device) {
  const double close = std::max(1e-13, 4 * static_cast<double>(std::numeric_limits<Element>::epsilon()));
  for (const auto& shape : tensor_tests::image_shapes()) {
    BOOST_TEST_CONTEXT(shape) {
      const auto a = random_tensor<Element, 4, Layout>(host, shape, "a");
      const auto v = random_tensor<Element, 1>(host, {shape.c}, "v");
      same(
          "sum over n, h, w", host, device, close,
          [](const auto& x, const auto& z) {
            return gradus::evaluate(sum<axis::n, axis::h, axis::w>(x * x + per_channel(z)));
          },
          a, v);
      if (shape.size() == 0) {
        continue;
      }
      same(
          "argmax over n, c", host, device, 0,
          [](const auto& x) { return gradus::evaluate(gradus::argmax<axis::n, axis::c>(x)); }, a);
    }
  }
}

/// A reduction in several steps, and the same bits again.
template <class Device>
void long_reductions(gradus::cpu& host, Device& device) {
  const auto x = random_tensor<float, 1>(host, {300'001}, "x");
  const auto total = [](const auto& values) { return gradus::evaluate(sum(values)); };
  same("sum", host, device, 1e-6, total, x);
  const auto on_device = gradus::to(device, x);
  BOOST_TEST(scalar_of(total(on_device)) == scalar_of(total(on_device)));
}

/// The first of equals, NaN before everything, and a norm.
template <class Device>
void ties(gradus::cpu& host, Device& device) {
  gradus::tensor<float, 2> x{host, {3, 5'000}};
  x(0, 4'000) = x(0, 17) = 1;
  x(1, 30) = std::numeric_limits<float>::quiet_NaN();
  const auto on_device = gradus::to(device, x);
  const auto largest = gradus::to(host, gradus::max<1>(on_device));
  BOOST_TEST(largest(0) == 1);
  BOOST_TEST(largest(1) != largest(1));
  const auto indices = gradus::to(host, gradus::argmax<1>(on_device));
  BOOST_TEST(indices(0) == 17);
  BOOST_TEST(indices(1) == 30);
  BOOST_TEST(indices(2) == 0);
  const auto norms = gradus::to(host, norm_l2<1>(on_device));
  BOOST_TEST(norms(0) == std::sqrt(2.0F), boost::test_tools::tolerance(1e-6F));
  const auto means = gradus::to(host, gradus::mean<1>(on_device));
  BOOST_TEST(means(0) == 2.0F / 5'000, boost::test_tools::tolerance(1e-6F));
}

/// Assignment to memory that is read, to parts that do not begin on a pack, of numbers; other orders; other elements.
template <class Device>
void assignments(gradus::cpu& host, Device& device) {
  const auto x = random_tensor<float, 2>(host, {37, 13}, "x");
  same(
      "in place, numbers and parts", host, device, 1e-6,
      [](const auto& values) {
        auto y = gradus::evaluate(values * 1);
        y += y * y;
        y.view().slice(1, 20) *= 3;
        y.view().slice(30, 7).assign(0.5);
        return y;
      },
      x);
  same(
      "transposition", host, device, 0, [](const auto& values) { return gradus::evaluate(transpose(values) * 1); }, x);
  same(
      "other elements", host, device, 0,
      [](const auto& values) {
        return gradus::evaluate(gradus::cast<std::uint8_t>(gradus::cast<std::int32_t>(values * 100) + 100));
      },
      x);
  const auto images = random_tensor<float, 4, gradus::nchw>(host, gradus::image_extents{2, 3, 5, 7}, "images");
  same(
      "other layout", host, device, 0,
      [](const auto& values) { return gradus::evaluate(gradus::layout_cast<gradus::nhwc>(values)); }, images);
}

template <class Device>
void gradients(gradus::cpu& host, Device& device) {
  const auto x = random_tensor<float, 2>(host, {37, 13}, "x");
  const auto w = random_tensor<float, 1>(host, {13}, "w");
  same(
      "gradients", host, device, 1e-5,
      [](const auto& values, const auto& weights) {
        const auto found = gradus::gradients(mean(square(values * per_column(weights))) + sum(exp(weights)), weights);
        return std::get<0>(found);
      },
      x, w);
}

/// Axes, parts, several tensors, softmax, and the derivatives of all of them.
template <class Layout, class Device>
void rearranging(gradus::cpu& host, Device& device) {
  for (const auto& shape : tensor_tests::image_shapes()) {
    BOOST_TEST_CONTEXT(shape) {
      const auto a = random_tensor<float, 4, Layout>(host, shape, "a");
      const auto b = random_tensor<float, 4, Layout>(host, shape, "b");
      same(
          "permute", host, device, 0, [](const auto& x) { return permute<3, 1, 0, 2>(x); }, a);
      same(
          "reshape", host, device, 0, [](const auto& x) { return reshape(x, {x.size()}); }, a);
      same(
          "slice", host, device, 0, [](const auto& x) { return slice<2>(x, {.begin = 1, .step = 2}); }, a);
      same(
          "slice of the slowest", host, device, 0, [](const auto& x) { return slice<0>(x, {.end = 0}); }, a);
      same(
          "concat", host, device, 0, [](const auto& x, const auto& y) { return concat<1>(x, y, x); }, a, b);
      same(
          "concat of the slowest", host, device, 0, [](const auto& x, const auto& y) { return concat<0>(x, y); }, a, b);
      same(
          "stack", host, device, 0, [](const auto& x, const auto& y) { return stack<2>(x, y); }, a, b);
      same(
          "softmax", host, device, 1e-6, [](const auto& x) { return gradus::softmax<axis::c>(relu(x) * 3); }, a);
      same(
          "log_softmax", host, device, 1e-6, [](const auto& x) { return gradus::log_softmax<axis::h>(x); }, a);
      same(
          "argmin", host, device, 0, [](const auto& x) { return argmin<axis::c>(x); }, a);
      same(
          "derivative", host, device, 1e-5,
          [](const auto& x, const auto& y) {
            const auto parts = concat<3>(slice<3>(x, {.begin = 1, .step = 3}), y, x);
            const auto loss = sum(square(permute<1, 0, 2, 3>(parts))) +
                              sum(square(reshape(gradus::log_softmax<axis::c>(slice<1>(x, {.end = 1})), {-1})));
            return std::get<0>(gradus::gradients(loss, x));
          },
          a, b);
    }
  }
}

}  // namespace expression_checks

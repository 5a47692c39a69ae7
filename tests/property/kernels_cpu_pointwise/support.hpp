// SPDX-License-Identifier: BSL-1.0
//
// Random images, comparisons and finite differences for the tests of the kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <vector>

#include "gradus/core/extents.hpp"
#include "gradus/core/random.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/tensor/tensor_view.hpp"
#include "image_coordinates.hpp"

namespace pointwise {

using gradus::cpu;
using gradus::image_extents;
using gradus::image_view;
using gradus::index_t;
using gradus::nchw;
using gradus::nhwc;
using gradus_test::for_each_coordinate;

template <class Element, class Layout>
struct test_case {
  using element = Element;
  using layout = Layout;
};
using float_and_double_cases =
    std::tuple<test_case<float, nchw>, test_case<float, nhwc>, test_case<double, nchw>, test_case<double, nhwc>>;
using double_cases = std::tuple<test_case<double, nchw>, test_case<double, nhwc>>;

[[nodiscard]] inline std::size_t elements_of(const image_extents& shape) {
  return static_cast<std::size_t>(shape.size());
}

/// Images in the order n, c, h, w, in double precision: what the references compute with.
struct plain_images {
  explicit plain_images(const image_extents& extents) : shape{extents}, values(elements_of(extents)) {}
  plain_images(const image_extents& extents, std::string_view name, double scale = 1, double offset = 0)
      : plain_images{extents} {
    const gradus::random_stream stream{11, name};
    for (std::size_t i = 0; i < values.size(); ++i) {
      // Floats, so that both precisions see the same numbers.
      values[i] = static_cast<double>(static_cast<float>(offset + scale * stream.normal(i)));
    }
  }
  double& operator()(index_t n, index_t c, index_t h, index_t w) {
    return values[static_cast<std::size_t>(((n * shape.c + c) * shape.h + h) * shape.w + w)];
  }
  double operator()(index_t n, index_t c, index_t h, index_t w) const {
    return const_cast<plain_images&>(*this)(n, c, h, w);
  }

  image_extents shape;
  std::vector<double> values;
};

template <class Element, class Layout>
[[nodiscard]] std::vector<Element> stored(const plain_images& images) {
  const gradus::dense_mapping<Layout> at{images.shape};
  std::vector<Element> memory(images.values.size());
  for_each_coordinate(images.shape, [&](index_t n, index_t c, index_t h, index_t w) {
    memory[static_cast<std::size_t>(at(n, c, h, w))] =
        static_cast<Element>(static_cast<gradus::parameter_element_t<Element>>(images(n, c, h, w)));
  });
  return memory;
}

template <class Layout, class Element>
[[nodiscard]] plain_images plain(const image_extents& shape, const std::vector<Element>& memory) {
  const gradus::dense_mapping<Layout> at{shape};
  plain_images images{shape};
  for_each_coordinate(shape, [&](index_t n, index_t c, index_t h, index_t w) {
    images(n, c, h, w) = static_cast<double>(memory[static_cast<std::size_t>(at(n, c, h, w))]);
  });
  return images;
}

/// The largest |a - b| / (1 + |b|); infinite where only one is not a number.
[[nodiscard]] inline double difference(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = a.size() == b.size() ? 0.0 : INFINITY;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (std::isnan(a[i]) != std::isnan(b[i])) {
      return INFINITY;
    }
    if (!std::isnan(a[i]) && a[i] != b[i]) {
      worst = std::max(worst, std::abs(a[i] - b[i]) / (1 + std::abs(b[i])));
    }
  }
  return worst;
}

template <class Element>
[[nodiscard]] std::vector<Element> converted(const std::vector<double>& values) {
  std::vector<Element> result(values.size());
  std::transform(values.begin(), values.end(), result.begin(), [](double v) { return static_cast<Element>(v); });
  return result;
}

template <class Element>
[[nodiscard]] std::vector<double> doubles(const std::vector<Element>& values) {
  return {values.begin(), values.end()};
}

/// The same bits, also where they are not a number.
template <class Element>
[[nodiscard]] bool same_bits(const std::vector<Element>& a, const std::vector<Element>& b) {
  return a.size() == b.size() && std::equal(reinterpret_cast<const unsigned char*>(a.data()),
                                            reinterpret_cast<const unsigned char*>(a.data() + a.size()),
                                            reinterpret_cast<const unsigned char*>(b.data()));
}

template <class Element>
[[nodiscard]] constexpr double tolerance(double in_float) {
  return sizeof(Element) == 4 ? in_float : in_float * 1e-8;
}

/// Central differences of loss() with respect to every one of `values`, in double precision.
template <class Loss>
[[nodiscard]] std::vector<double> finite_differences(std::vector<double>& values, const Loss& loss) {
  std::vector<double> slopes(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    const double step = 1e-5;
    values[i] = value + step;
    const double above = loss();
    values[i] = value - step;
    slopes[i] = (above - loss()) / (2 * step);
    values[i] = value;
  }
  return slopes;
}

[[nodiscard]] inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

}  // namespace pointwise

// SPDX-License-Identifier: BSL-1.0
//
// Tensors of random numbers and loops over coordinates.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "gradus/core/random.hpp"
#include "gradus/tensor/expressions.hpp"

namespace tensor_tests {

/// Numbers of (low, high), the same for every layout.
template <class Element, int Rank, class Layout = gradus::row_major>
gradus::tensor<Element, Rank, Layout> random_tensor(gradus::cpu& device, const gradus::extents<Rank>& shape,
                                                    std::string_view name, double low = -1, double high = 1) {
  const gradus::random_stream stream{5, name};
  gradus::tensor<Element, Rank, Layout> result{device, shape};
  const auto strides = gradus::dense_strides<Layout, Rank>(shape);
  for (gradus::index_t i = 0; i < shape.size(); ++i) {
    gradus::index_t rest = i;
    gradus::index_t offset = 0;
    for (int axis = Rank - 1; axis >= 0; --axis) {
      offset += rest % shape[axis] * strides[static_cast<std::size_t>(axis)];
      rest /= shape[axis];
    }
    result.data()[offset] = static_cast<Element>(low + (high - low) * stream.uniform(static_cast<std::uint64_t>(i)));
  }
  return result;
}

/// The larger of two differences; one that is not a number stays.
inline double larger(double a, double b) {
  return a != a || b <= a ? a : b;
}

/// Calls visit(n, c, h, w) for every coordinate.
template <class Visitor>
void for_each_pixel(const gradus::image_extents& shape, const Visitor& visit) {
  for (gradus::index_t n = 0; n < shape.n; ++n) {
    for (gradus::index_t c = 0; c < shape.c; ++c) {
      for (gradus::index_t h = 0; h < shape.h; ++h) {
        for (gradus::index_t w = 0; w < shape.w; ++w) {
          visit(n, c, h, w);
        }
      }
    }
  }
}

inline const std::vector<gradus::image_extents>& image_shapes() {
  static const std::vector<gradus::image_extents> shapes{{1, 1, 1, 1}, {2, 3, 5, 7},   {1, 17, 3, 1},
                                                         {3, 1, 4, 9}, {2, 5, 66, 65}, {0, 3, 2, 2}};
  return shapes;
}

}  // namespace tensor_tests

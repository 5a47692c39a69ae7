// SPDX-License-Identifier: BSL-1.0
//
// Strided copies on CUDA.
#pragma once

#include <algorithm>  // std::swap
#include <cstdint>    // std::uint32_t

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/kernels/cuda/detail/launch/launch.cuh"
#include "gradus/kernels/strided_copy.hpp"

namespace gradus::kernels {

namespace detail {

/// A copy on the device. The slowest axis of the destination is apart, the others count from the slowest to the
/// fastest.
struct device_copy {
  copy_axis outer;
  std::uint32_t extents[5] = {1, 1, 1, 1, 1};
  index_t from[5] = {};
  index_t to[5] = {};

  /// Neighboring threads write neighboring elements.
  explicit device_copy(const strided_copy_shape& shape) {
    copy_axis sorted[6];
    int count = 0;
    for (const copy_axis& each : shape.axes) {
      if (each.extent == 1) {
        continue;
      }
      sorted[count] = each;
      for (int k = count++; k > 0 && sorted[k].to > sorted[k - 1].to; --k) {
        std::swap(sorted[k - 1], sorted[k]);
      }
    }
    outer = count > 0 ? sorted[0] : copy_axis{};
    for (int k = 1; k < count; ++k) {
      extents[k - 1] = static_cast<std::uint32_t>(sorted[k].extent);
      from[k - 1] = sorted[k].from;
      to[k - 1] = sorted[k].to;
    }
  }
};

template <class Element>
__global__ void strided_copy_kernel(device_copy copy, std::uint32_t count, const Element* from, Element* to,
                                    bool accumulate) {
  for_each_in_images(copy.outer.extent, count, [&](index_t n, std::uint32_t i) {
    index_t source = n * copy.outer.from;
    index_t target = n * copy.outer.to;
#pragma unroll
    for (int k = 4; k >= 0; --k) {
      const std::uint32_t at = i % copy.extents[k];
      i /= copy.extents[k];
      source += at * copy.from[k];
      target += at * copy.to[k];
    }
    to[target] = accumulate ? narrow<Element>(widen(to[target]) + widen(from[source])) : from[source];
  });
}

}  // namespace detail

/// Implements has_strided_copy on a GPU.
/// @throws shape_error when an image has 2^31 elements or more
template <network_element Element>
void strided_copy(cuda& device, const strided_copy_shape& shape, const Element* from, Element* to, bool accumulate) {
  if (shape.size() == 0) {
    return;
  }
  const detail::device_copy copy{shape};
  const std::uint32_t count = detail::elements_in_32_bits(shape.size() / copy.outer.extent);
  launch(device, "strided_copy", detail::image_grid(copy.outer.extent, count), detail::block_threads,
         &detail::strided_copy_kernel<Element>, copy, count, from, to, accumulate);
}

}  // namespace gradus::kernels

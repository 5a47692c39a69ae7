// SPDX-License-Identifier: BSL-1.0
//
// Common parts of the CUDA kernels: conversion of elements, packets of 16 bytes, launches, images on a grid.
#pragma once

#include <cuda_bf16.h>  // __bfloat162float, __float2bfloat16_rn
#include <cuda_fp16.h>  // __float2half_rn, __half2float

#include <algorithm>    // std::clamp
#include <concepts>     // std::same_as
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t, std::uint16_t, std::uint32_t, std::uintptr_t
#include <limits>       // std::numeric_limits
#include <type_traits>  // std::conditional_t, std::is_same_v, std::type_identity_t

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cuda_launch.cuh"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cuda/detail/launch/activation.cuh"
#include "gradus/layout/layout_policy.hpp"

namespace gradus {

class float16;

namespace kernels::detail {

/// Conversion instructions for a type that is stored in 16 bits.
template <class Element>
struct device_conversion;
template <>
struct device_conversion<bfloat16> {
  static __device__ float widen(std::uint16_t bits) { return __bfloat162float(__ushort_as_bfloat16(bits)); }
  static __device__ std::uint16_t narrow(float value) { return __bfloat16_as_ushort(__float2bfloat16_rn(value)); }
};
template <>
struct device_conversion<float16> {
  static __device__ float widen(std::uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
  static __device__ std::uint16_t narrow(float value) { return __half_as_ushort(__float2half_rn(value)); }
};

/// The type in which a kernel computes elements of type Element.
template <class Element>
using device_real = std::conditional_t<std::is_same_v<Element, double>, double, float>;

template <class Element>
__device__ inline device_real<Element> widen(Element value) {
  if constexpr (storage_element<Element>) {
    return device_conversion<Element>::widen(value.bits());
  } else {
    return static_cast<device_real<Element>>(value);
  }
}

template <class Element>
__device__ inline Element narrow(std::type_identity_t<device_real<Element>> value) {
  if constexpr (storage_element<Element>) {
    return Element::from_bits(device_conversion<Element>::narrow(value));
  } else {
    return static_cast<Element>(value);
  }
}

/// Elements that one instruction loads or stores.
template <class Element, int Width>
struct alignas(sizeof(Element) * Width) device_packet {
  Element values[Width];
};

/// The number of elements in 16 bytes.
template <class Element>
inline constexpr int packet_width = 16 / static_cast<int>(sizeof(Element));

template <int Width, class Element>
__device__ inline device_packet<Element, Width> load_packet(const Element* from) {
  return *reinterpret_cast<const device_packet<Element, Width>*>(from);
}
template <int Width, class Element>
__device__ inline void store_packet(Element* to, const device_packet<Element, Width>& packet) {
  *reinterpret_cast<device_packet<Element, Width>*>(to) = packet;
}

/// True if packets may begin at these addresses; null pointers are allowed.
template <class... Element>
[[nodiscard]] bool on_packets(const Element*... pointers) noexcept {
  return (... && (reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0));
}

inline constexpr unsigned block_threads = 256;

/// The number of blocks for `count` threads, within limits; kernels loop over the rest.
[[nodiscard]] inline unsigned blocks_for(index_t count, index_t per_block = block_threads) noexcept {
  return static_cast<unsigned>(std::clamp<index_t>((count + per_block - 1) / per_block, 1, index_t{1} << 20U));
}

using gradus::launch;

__device__ inline index_t thread_index() {
  return static_cast<index_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline index_t thread_count() {
  return static_cast<index_t>(gridDim.x) * blockDim.x;
}

/// Layouts whose slowest axis is n.
template <class Layout>
concept images_apart = Layout::order[0] == axis::n;

/// Coordinates inside an image.
struct image_position {
  std::uint32_t c;
  std::uint32_t h;
  std::uint32_t w;
};

/// The images of a batch in a layout. Coordinates and offsets inside an image are 32-bit, so divisions are fast.
template <class Layout>
struct device_images {
  static_assert(images_apart<Layout>, "gradus: kernels of CUDA take layouts whose slowest axis is n");

  std::uint32_t channels = 0;
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  index_t examples = 0;

  /// @throws shape_error when an image is too large
  static device_images of(const image_extents& shape) {
    if (image_extents{1, shape.c, shape.h, shape.w}.size() >= std::numeric_limits<std::int32_t>::max()) {
      gradus::raise<shape_error>("a kernel of cuda", "images of less than 2147483647 elements", to_string(shape));
    }
    return {static_cast<std::uint32_t>(shape.c), static_cast<std::uint32_t>(shape.h),
            static_cast<std::uint32_t>(shape.w), shape.n};
  }

  __host__ __device__ std::uint32_t image_size() const { return channels * height * width; }

  __device__ std::uint32_t extent(axis a) const { return a == axis::c ? channels : a == axis::h ? height : width; }

  /// The offset inside an image, in elements.
  __device__ std::uint32_t offset(std::uint32_t c, std::uint32_t h, std::uint32_t w) const {
    std::uint32_t result = 0;
#pragma unroll
    for (int k = 1; k < 4; ++k) {
      constexpr auto order = Layout::order;
      const axis a = order[k];
      result = result * extent(a) + (a == axis::c ? c : a == axis::h ? h : w);
    }
    return result;
  }

  __device__ image_position position(std::uint32_t inside) const {
    image_position result{};
#pragma unroll
    for (int k = 3; k > 0; --k) {
      constexpr auto order = Layout::order;
      const axis a = order[k];
      const std::uint32_t size = extent(a);
      const std::uint32_t at = k == 1 ? inside : inside % size;
      inside = k == 1 ? 0 : inside / size;
      (a == axis::c ? result.c : a == axis::h ? result.h : result.w) = at;
    }
    return result;
  }
};

/// The number of elements of an image as 32 bits, so divisions are fast.
/// @throws shape_error when they are too many
[[nodiscard]] inline std::uint32_t elements_in_32_bits(index_t count) {
  if (count >= std::numeric_limits<std::int32_t>::max()) {
    gradus::raise<shape_error>("a kernel of cuda", "images of less than 2147483647 elements", {count});
  }
  return static_cast<std::uint32_t>(count);
}

/// A grid of `per_image` threads for each of `examples` images; images are along y.
[[nodiscard]] inline dim3 image_grid(index_t examples, index_t per_image) noexcept {
  return {blocks_for(per_image), static_cast<unsigned>(std::clamp<index_t>(examples, 1, 65535)), 1};
}

/// Calls body(n, i) for the threads of an image_grid.
template <class Body>
__device__ inline void for_each_in_images(index_t examples, std::uint32_t per_image, const Body& body) {
  for (index_t n = blockIdx.y; n < examples; n += gridDim.y) {
    for (std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < per_image; i += gridDim.x * blockDim.x) {
      body(n, i);
    }
  }
}

template <class Element>
struct device_epilogue {
  const Element* relu_output = nullptr;
  bool accumulate = false;
  device_derivative<device_real<Element>> derivative = {};

  device_epilogue() = default;
  explicit device_epilogue(const backward_epilogue<Element>& epilogue)
      : relu_output{epilogue.relu_output}, accumulate{epilogue.accumulate}, derivative{epilogue.mask} {}

  /// The value to store at dx[i] for a gradient; see backward_epilogue.
  __device__ Element apply(device_real<Element> gradient, const Element* dx, index_t i) const {
    if (accumulate) {
      gradient += widen(dx[i]);
    }
    if (relu_output != nullptr) {
      gradient = derivative.times(widen(relu_output[i]), gradient);
    }
    return narrow<Element>(gradient);
  }
};

}  // namespace kernels::detail
}  // namespace gradus

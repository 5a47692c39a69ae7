// SPDX-License-Identifier: BSL-1.0
//
// Channel copies on CUDA.
#pragma once

#include <cstddef>  // std::size_t
#include <cstdint>  // std::uint32_t

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/kernels/concat.hpp"
#include "gradus/kernels/cuda/detail/launch/launch.cuh"
#include "gradus/layout/layout_policy.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

namespace detail {

/// Adds `length` elements of each of `blocks` blocks; from_block and to_block are the distances of blocks, in elements.
template <class Element>
__global__ void add_runs_kernel(index_t blocks, std::uint32_t length, const Element* from, index_t from_block,
                                Element* to, index_t to_block) {
  for_each_in_images(blocks, length, [&](index_t block, std::uint32_t i) {
    Element& target = to[block * to_block + i];
    target = narrow<Element>(widen(target) + widen(from[block * from_block + i]));
  });
}

}  // namespace detail

/// Implements has_copy_channels on a GPU.
template <network_element Element, layout_policy Layout>
void copy_channels(cuda& device, image_view<const Element, Layout, cuda> source, index_t first_source_channel,
                   image_view<Element, Layout, cuda> destination, index_t first_destination_channel, index_t channels,
                   bool accumulate) {
  // The axes slower than the channels count blocks. With the faster axes, each channel is a run of elements.
  index_t blocks = 1;
  index_t run = 1;
  bool before = true;
  for (const axis a : Layout::order) {
    if (a == axis::c) {
      before = false;
    } else {
      (before ? blocks : run) *= source.extent(a);
    }
  }
  const index_t length = channels * run;
  if (length == 0 || blocks == 0) {
    return;
  }
  const index_t source_block = source.extent(axis::c) * run;
  const index_t destination_block = destination.extent(axis::c) * run;
  const Element* const from = source.data() + first_source_channel * run;
  Element* const to = destination.data() + first_destination_channel * run;
  if (accumulate) {
    detail::device_images<Layout>::of(source.extents());  // throws if an image is too large for 32 bits
    launch(device, "copy_channels", detail::image_grid(blocks, length), detail::block_threads,
           &detail::add_runs_kernel<Element>, blocks, static_cast<std::uint32_t>(length), from, source_block, to,
           destination_block);
  } else {
    constexpr auto bytes = static_cast<index_t>(sizeof(Element));
    check_cuda(
        cudaMemcpy2DAsync(to, static_cast<std::size_t>(destination_block * bytes), from,
                          static_cast<std::size_t>(source_block * bytes), static_cast<std::size_t>(length * bytes),
                          static_cast<std::size_t>(blocks), cudaMemcpyDeviceToDevice, device.stream()),
        "cudaMemcpy2DAsync");
  }
}

}  // namespace gradus::kernels

// SPDX-License-Identifier: BSL-1.0
//
// Channel copies on the CPU.
#pragma once

#include <algorithm>  // std::copy_n, std::max

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/concat.hpp"
#include "gradus/kernels/cpu/elementwise.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

/// Implements has_copy_channels on the CPU.
template <network_element Element, layout_policy Layout>
void copy_channels(cpu& device, image_view<const Element, Layout, cpu> source, index_t first_source_channel,
                   image_view<Element, Layout, cpu> destination, index_t first_destination_channel, index_t channels,
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
  if (length == 0) {
    return;
  }
  const index_t source_block = source.extent(axis::c) * run;
  const index_t destination_block = destination.extent(axis::c) * run;
  const Element* const from = source.data() + first_source_channel * run;
  Element* const to = destination.data() + first_destination_channel * run;
  const index_t grain = std::max<index_t>(1, 16384 / length);  // enough blocks for a task
  device.parallel_for(blocks, grain, [&](index_t begin, index_t end) {
    for (index_t block = begin; block < end; ++block) {
      const Element* const s = from + block * source_block;
      Element* const d = to + block * destination_block;
      if (accumulate) {
        detail::add_elements(length, s, d);
      } else {
        std::copy_n(s, length, d);
      }
    }
  });
}

}  // namespace gradus::kernels

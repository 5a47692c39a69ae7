// SPDX-License-Identifier: BSL-1.0
//
// The contract of channel copies, which join and split image batches.
#pragma once

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

/// A device that copies channels; nn::concat and nn::pad_channels ask for it. copy_channels computes
///
///   destination(n, first_destination_channel + c, h, w) (+)= source(n, first_source_channel + c, h, w)
///
/// for c in [0, channels), where (+)= is += if `accumulate`, else =. The other channels of destination keep their
/// values. @pre source and destination have the same batch, height and width, and do not overlap
template <class Device, class Element, class Layout>
concept has_copy_channels = requires(Device& device, image_view<const Element, Layout, Device> source,
                                     index_t first_source_channel, image_view<Element, Layout, Device> destination,
                                     index_t first_destination_channel, index_t channels, bool accumulate) {
  copy_channels(device, source, first_source_channel, destination, first_destination_channel, channels, accumulate);
};

/// Says which overload of `has_copy_channels` the device misses. Always true when it compiles.
template <class Device, class Element, class Layout>
consteval bool explain_copy_channels() {
  static_assert(has_copy_channels<Device, Element, Layout>,
                "gradus: the device lacks a kernel of the network: overload void copy_channels(Device&, source, "
                "index_t first_source_channel, destination, index_t first_destination_channel, index_t channels, bool "
                "accumulate); for gradus::cuda include gradus/kernels/cuda.cuh");
  return true;
}

}  // namespace gradus::kernels

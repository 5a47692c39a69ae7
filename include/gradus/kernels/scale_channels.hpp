// SPDX-License-Identifier: BSL-1.0
//
// The contract of kernels that multiply each channel of each image by a number.
#pragma once

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"

namespace gradus::kernels {

/// Images x with a factor for each channel of each image.
struct scale_channels_shape {
  index_t examples = 0;        ///< images
  index_t channels = 1;        ///< factors of an image
  index_t pixels = 1;          ///< elements of a channel
  bool channels_last = false;  ///< x is (examples, pixels, channels) instead of (examples, channels, pixels)
};

/// The gradients of scale_channels_backward. Null pointers are not needed.
template <class Element>
struct scale_channels_gradients {
  Element* dx = nullptr;             ///< of x
  bool accumulate_dx = false;        ///< adds to dx what it contains
  Element* dfactors = nullptr;       ///< of the factors
  bool accumulate_dfactors = false;  ///< adds to dfactors what they contain
};

/// A requirement of `has_scale_channels`: scale_channels_forward computes y(n, c, p) = factors(n, c) * x(n, c, p).
template <class Device, class Element>
concept has_scale_channels_forward = requires(Device& device, const scale_channels_shape& shape, const Element* x,
                                              const Element* factors, Element* y) {
  scale_channels_forward(device, shape, x, factors, y);
};

/// A requirement of `has_scale_channels`: scale_channels_backward computes
///
///   dx(n, c, p) (+)= factors(n, c) * dy(n, c, p)
///   dfactors(n, c) (+)= sum over p of x(n, c, p) * dy(n, c, p)
template <class Device, class Element>
concept has_scale_channels_backward = requires(Device& device, const scale_channels_shape& shape, const Element* x,
                                               const Element* factors, const Element* dy,
                                               const scale_channels_gradients<Element>& gradients) {
  scale_channels_backward(device, shape, x, factors, dy, gradients);
};

/// A device that multiplies channels; nn::multiply asks for it. With one pixel a channel it is an element-wise product:
/// x and factors may then be the same, and dx and dfactors too if dfactors are added. Results are bitwise the same for
/// any number of threads.
template <class Device, class Element>
concept has_scale_channels =
    has_scale_channels_forward<Device, Element> && has_scale_channels_backward<Device, Element>;

/// Says which overload of `has_scale_channels` the device misses. Always true when it compiles.
template <class Device, class Element>
consteval bool explain_scale_channels() {
  static_assert(has_scale_channels_forward<Device, Element>,
                "gradus: the device lacks a kernel of the network: overload void scale_channels_forward(Device&, const "
                "scale_channels_shape&, const Element* x, const Element* factors, Element* y); for gradus::cuda "
                "include gradus/kernels/cuda/shaping.cuh");
  static_assert(has_scale_channels_backward<Device, Element>,
                "gradus: the device lacks a kernel of the network: overload void scale_channels_backward(Device&, "
                "const scale_channels_shape&, const Element* x, const Element* factors, const Element* dy, const "
                "scale_channels_gradients<Element>&); for gradus::cuda include gradus/kernels/cuda/shaping.cuh");
  return true;
}

}  // namespace gradus::kernels

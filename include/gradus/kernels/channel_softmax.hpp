// SPDX-License-Identifier: BSL-1.0
//
// The contract of softmax over the channels of images.
#pragma once

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"

namespace gradus::kernels {

/// The elements of a batch in memory order, as (outer, channels, inner): (n, c, h * w) for nchw, (n * h * w, c, 1) for
/// nhwc.
struct channel_softmax_shape {
  index_t outer = 0;       ///< blocks of channels
  index_t channels = 1;    ///< terms of a softmax
  index_t inner = 1;       ///< adjacent elements of one channel
  bool logarithm = false;  ///< the logarithm of softmax
};

/// A requirement of `has_channel_softmax`: channel_softmax_forward computes, for each pixel,
///
///   y(c) = exp(x(c) - m) / s,  or with `logarithm` y(c) = x(c) - m - log(s)
///
/// with the largest channel m and s = sum of exp(x(c) - m) over c. y may be x. A channel may be minus infinity: its
/// softmax is 0. If a channel is NaN or infinity, or all are minus infinity, the pixel is NaN.
template <class Device, class Element>
concept has_channel_softmax_forward = requires(Device& device, const channel_softmax_shape& shape, const Element* x,
                                               Element* y) {
  channel_softmax_forward(device, shape, x, y);
};

/// A requirement of `has_channel_softmax`: channel_softmax_backward computes the gradient of x from the output y,
///
///   dx(c) (+)= y(c) * (dy(c) - sum of y(j) * dy(j) over j),  or with `logarithm`
///   dx(c) (+)= dy(c) - exp(y(c)) * sum of dy(j) over j
///
/// where (+)= is += if `accumulate`, else =.
template <class Device, class Element>
concept has_channel_softmax_backward = requires(Device& device, const channel_softmax_shape& shape, const Element* y,
                                                const Element* dy, Element* dx, bool accumulate) {
  channel_softmax_backward(device, shape, y, dy, dx, accumulate);
};

/// A device that computes softmax over channels; nn::softmax and nn::log_softmax ask for it. Results are bitwise the
/// same for any number of threads.
template <class Device, class Element>
concept has_channel_softmax =
    has_channel_softmax_forward<Device, Element> && has_channel_softmax_backward<Device, Element>;

/// Says which overload of `has_channel_softmax` the device misses. Always true when it compiles.
template <class Device, class Element>
consteval bool explain_channel_softmax() {
  static_assert(has_channel_softmax_forward<Device, Element>,
                "gradus: the device lacks a kernel of the network: overload void channel_softmax_forward(Device&, "
                "const channel_softmax_shape&, const Element* x, Element* y); for gradus::cuda include "
                "gradus/kernels/cuda/shaping.cuh");
  static_assert(has_channel_softmax_backward<Device, Element>,
                "gradus: the device lacks a kernel of the network: overload void channel_softmax_backward(Device&, "
                "const channel_softmax_shape&, const Element* y, const Element* dy, Element* dx, bool accumulate); for "
                "gradus::cuda include gradus/kernels/cuda/shaping.cuh");
  return true;
}

}  // namespace gradus::kernels

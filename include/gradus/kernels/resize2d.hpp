// SPDX-License-Identifier: BSL-1.0
//
// The contract of kernels that resize images, and which pixels an output reads.
#pragma once

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"

namespace gradus::kernels {

/// How the pixels between those of an image are computed.
enum class interpolation : unsigned char {
  nearest,  ///< copies the pixel at or before the position
  bilinear  ///< the mean of the four pixels around the position, weighted by nearness
};

/// The extents of images before and after resizing. A pixel is a run of `run` adjacent elements: its channels in nhwc,
/// one element in nchw, where each channel is a plane.
struct resize2d_geometry {
  index_t planes = 0;                           ///< images of the batch, times the channels in nchw
  index_t run = 1;                              ///< adjacent elements of a pixel
  index_t in_height = 1;                        ///< rows of x
  index_t in_width = 1;                         ///< columns of x
  index_t out_height = 1;                       ///< rows of y
  index_t out_width = 1;                        ///< columns of y
  interpolation mode = interpolation::nearest;  ///< which pixels an output reads
  bool align_corners = false;  ///< bilinear: the centers of the corner pixels of x and y are in the same positions
};

/// Two pixels of x, in one direction, of which an output is the weighted sum.
template <class Real>
struct resize_tap {
  index_t low = 0;   ///< the pixel at or before the position
  index_t high = 0;  ///< the next pixel; `low` at the end of the image
  Real weight = 0;   ///< that of `high`; `low` has 1 - weight
};

/// One direction of a resizing: output o is at the position max(0, o * step + start) / unit between the pixels of x.
/// Positions are fractions of integers, so no rounding moves them.
///
///   nearest                   position = o * in / out
///   bilinear                  position = (o + 1/2) * in / out - 1/2
///   bilinear, align_corners   position = o * (in - 1) / (out - 1), or 0 for one output
///
/// as torch.nn.functional.interpolate. Integer is index_t, or a shorter type that holds 4 * in * out.
template <class Integer>
class resize_axis {
 public:
  /// @pre in > 0, out > 0
  GRADUS_HOST_DEVICE constexpr resize_axis(index_t in, index_t out, interpolation mode, bool align_corners) noexcept
      : in_{static_cast<Integer>(in)}, out_{static_cast<Integer>(out)}, bilinear_{mode == interpolation::bilinear} {
    if (!bilinear_) {
      step_ = in_;
      unit_ = out_;
    } else if (align_corners) {
      step_ = in_ - 1;
      unit_ = out_ > 1 ? out_ - 1 : 1;
    } else {
      step_ = 2 * in_;
      start_ = in_ - out_;
      unit_ = 2 * out_;
    }
  }

  /// What output o reads.
  template <class Real>
  [[nodiscard]] GRADUS_HOST_DEVICE constexpr resize_tap<Real> tap(index_t o) const noexcept {
    const Integer position = static_cast<Integer>(o) * step_ + start_;
    if (position <= 0) {
      return {0, bilinear_ && in_ > 1 ? 1 : 0, Real{0}};
    }
    const Integer low = position / unit_;
    if (!bilinear_) {
      return {low, low, Real{0}};
    }
    return {low, low + 1 < in_ ? low + 1 : low, static_cast<Real>(position - low * unit_) / static_cast<Real>(unit_)};
  }

  /// The weight of pixel i of x in output o.
  template <class Real>
  [[nodiscard]] GRADUS_HOST_DEVICE constexpr Real weight(index_t o, index_t i) const noexcept {
    const resize_tap<Real> read = tap<Real>(o);
    return (read.low == i ? Real{1} - read.weight : Real{0}) + (read.high == i ? read.weight : Real{0});
  }

  /// The first output that may read pixel i of x. Those that read it are in [first_reader(i), end_of_readers(i)).
  [[nodiscard]] GRADUS_HOST_DEVICE constexpr index_t first_reader(index_t i) const noexcept {
    return from_pixel(bilinear_ ? i - 1 : i);
  }
  /// One behind the last output that may read pixel i of x.
  [[nodiscard]] GRADUS_HOST_DEVICE constexpr index_t end_of_readers(index_t i) const noexcept {
    return from_pixel(i + 1);
  }

 private:
  /// The first output whose position is at pixel i or behind it.
  [[nodiscard]] GRADUS_HOST_DEVICE constexpr index_t from_pixel(index_t i) const noexcept {
    if (i <= 0) {
      return 0;
    }
    if (i >= in_) {
      return out_;
    }
    const Integer distance = static_cast<Integer>(i) * unit_ - start_;
    if (distance <= 0) {
      return 0;
    }
    const Integer first = (distance + step_ - 1) / step_;
    return first < out_ ? first : out_;
  }

  Integer in_;
  Integer out_;
  Integer step_ = 0;
  Integer start_ = 0;
  Integer unit_ = 1;
  bool bilinear_;
};

/// A requirement of `has_resize2d`: resize2d_forward overwrites y (planes, out_height, out_width, run) with the pixels
/// of x (planes, in_height, in_width, run) at the positions of resize_axis.
template <class Device, class Element>
concept has_resize2d_forward = requires(Device& device, const resize2d_geometry& geometry, const Element* x,
                                        Element* y) {
  resize2d_forward(device, geometry, x, y);
};

/// A requirement of `has_resize2d`: resize2d_backward computes dx, the gradient of x, from dy: the sum of dy times the
/// weight of the pixel over the outputs that read it. It applies the epilogue, and overwrites dx unless
/// `epilogue.accumulate`.
template <class Device, class Element>
concept has_resize2d_backward = requires(Device& device, const resize2d_geometry& geometry, const Element* dy,
                                         Element* dx, const backward_epilogue<Element>& epilogue) {
  resize2d_backward(device, geometry, dy, dx, epilogue);
};

/// A device that resizes images; nn::upsample2d asks for it. Inputs and outputs do not overlap. Results are bitwise the
/// same for any number of threads.
template <class Device, class Element>
concept has_resize2d = has_resize2d_forward<Device, Element> && has_resize2d_backward<Device, Element>;

/// Says which overload of `has_resize2d` the device misses. Always true when it compiles.
template <class Device, class Element>
consteval bool explain_resize2d() {
  static_assert(has_resize2d_forward<Device, Element>,
                "gradus: the device lacks a kernel of the network: overload void resize2d_forward(Device&, const "
                "resize2d_geometry&, const Element* x, Element* y); for gradus::cuda include "
                "gradus/kernels/cuda/shaping.cuh");
  static_assert(has_resize2d_backward<Device, Element>,
                "gradus: the device lacks a kernel of the network: overload void resize2d_backward(Device&, const "
                "resize2d_geometry&, const Element* dy, Element* dx, const backward_epilogue<Element>&); for "
                "gradus::cuda include gradus/kernels/cuda/shaping.cuh");
  return true;
}

}  // namespace gradus::kernels

// SPDX-License-Identifier: BSL-1.0
//
// The geometry of a 2-D convolution. Include gradus/kernels/conv2d.hpp, which has the code that a dilation refers to.
#pragma once

#include <cstddef>  // std::byte, std::size_t
#include <span>     // std::span

#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/activation.hpp"

namespace gradus {
class cpu;
}

namespace gradus::kernels {

struct conv2d_geometry;

/// How a convolution is computed. The choice depends on the shape and on nothing else, so that all ranks compute alike.
enum class convolution_algorithm : unsigned char {
  /// The fastest algorithm of the device for the shape.
  ///
  /// The CPU runs convolutions of float by Winograd's algorithm for kernels of 3x3, 5x5, 1x3, 3x1, 1x7 and 7x1 with
  /// stride 1, on at least 32 channels in multiples of 16. It needs 2 to 6 times fewer multiplications. An infinity in
  /// x makes results near it NaN. Root mean square errors relative to `direct`, as the median (maximum) over some
  /// hundred shapes:
  ///
  ///   kernel size                    3x3        5x5       1x3 and 3x1  1x7 and 7x1
  ///   results and gradients of x     1.9 (2.6)  5 (8.4)   1.4 (1.6)    5 (6.6)
  ///   gradients of weights           1.9 (3.4)  8.6 (20)  1.2 (1.6)    6.6 (10.3)
  ///
  /// Errors of weight gradients are largest where they sum few pixels. CUDA runs the fastest algorithm of cuDNN
  /// (cuda_options::benchmark).
  automatic,
  direct  ///< adds up the terms of every result: neither Winograd nor a Fourier transform
};

/// The passes of a layer with weights.
enum class pass : unsigned char {
  forward,          ///< computes y from x and the weights
  backward_data,    ///< computes dx, the gradient of x, from dy and the weights
  backward_weights  ///< computes the gradients of weights and bias from x and dy
};

namespace detail {

/// A result that is stored, without its type: c = derivative(mask) * act(sums + bias + residual, or what c contains).
struct erased_output {
  void* c = nullptr;
  const void* residual = nullptr;
  const void* mask = nullptr;
  const void* bias = nullptr;
  bool accumulate = false;
  activation act = activation::identity;
  activation derivative = activation::relu;  // of which `mask` is the output
};

/// What the CPU computes for one element type and layout, without their types: convolutions without dilation, and what
/// dilated convolutions need besides.
struct erased_convolution {
  index_t element_bytes;    ///< of images
  index_t parameter_bytes;  ///< of weights
  bool channels_last;       ///< nhwc
  std::size_t (*workspace_bytes)(cpu& device, const conv2d_geometry& g, index_t batch, pass which);
  void (*correlate)(cpu& device, const conv2d_geometry& g, pass which, index_t batch, const void* x, const void* w,
                    const erased_output& output, std::span<std::byte> workspace);
  void (*differentiate_weights)(cpu& device, const conv2d_geometry& g, index_t batch, const void* x, const void* dy,
                                void* dw, void* dbias, std::span<std::byte> workspace);
  /// Stores sums that are zero as row `row` of dx of an image.
  void (*store_zeros)(const conv2d_geometry& g, bool channels_last, index_t image, index_t row,
                      const erased_output& output);
  /// Copies `count` runs of adjacent elements to runs that are `step` elements apart, times the derivative of the
  /// activation whose output is the mask, which is where the results are.
  void (*copy_masked)(index_t count, index_t run, index_t step, const void* from, const void* mask,
                      const activation& derivative, void* to);
};

/// The passes of dilated convolutions on the CPU, for all element types and layouts.
struct dilated_passes {
  std::size_t (*workspace_bytes)(const erased_convolution& parts, cpu& device, const conv2d_geometry& g, index_t batch,
                                 pass which);
  void (*correlate)(const erased_convolution& parts, cpu& device, const conv2d_geometry& g, pass which, index_t batch,
                    const void* x, const void* w, const erased_output& output, std::span<std::byte> workspace);
  void (*differentiate_weights)(const erased_convolution& parts, cpu& device, const conv2d_geometry& g, index_t batch,
                                const void* x, const void* dy, void* dw, void* dbias, std::span<std::byte> workspace);

  /// Defined in kernels/cpu/detail/conv2d/dilated.hpp.
  static const dilated_passes on_cpu;
};

}  // namespace detail

/// The distance of adjacent taps of a kernel along one axis, in elements of x: a number of at least 1. It converts from
/// and to a number. A program that sets one compiles the code for dilated convolutions; other programs do not.
class dilation {
 public:
  /// 1: the taps are adjacent.
  constexpr dilation() noexcept = default;
  /// `distance` elements from one tap to the next.
  constexpr dilation(index_t distance) noexcept : distance_{distance}, passes_{&detail::dilated_passes::on_cpu} {}
  /// The number of elements from one tap to the next.
  constexpr operator index_t() const noexcept { return distance_; }

  /// How the CPU computes a dilated convolution; null if no number was set.
  [[nodiscard]] constexpr const detail::dilated_passes* passes() const noexcept { return passes_; }

 private:
  index_t distance_ = 1;
  const detail::dilated_passes* passes_ = nullptr;
};

/// The geometry of a 2-D convolution (cross-correlation, as in all frameworks) of one image:
///
///   y(n, o, p, q) = bias(o) + sum over i, r, s of
///                   x(n, i, p * stride_height - pad_top + r * dilation_height,
///                           q * stride_width - pad_left + s * dilation_width) * w(o, i, r, s)
///
/// with zeros outside x. Padding at the bottom and on the right follows from the output extents. Padding may exceed the
/// kernel. All sizes are in elements.
struct conv2d_geometry {
  index_t in_channels = 0;    ///< channels of x, of all groups together
  index_t in_height = 0;      ///< rows of an image of x, without padding
  index_t in_width = 0;       ///< columns of an image of x, without padding
  index_t out_channels = 0;   ///< channels of y, of all groups together
  index_t out_height = 0;     ///< rows of an image of y
  index_t out_width = 0;      ///< columns of an image of y
  index_t kernel_height = 1;  ///< rows of the weights of one pair of channels
  index_t kernel_width = 1;   ///< columns of the weights of one pair of channels
  index_t stride_height = 1;  ///< rows of x from one row of y to the next; at least 1
  index_t stride_width = 1;   ///< columns of x from one column of y to the next; at least 1
  index_t pad_top = 0;        ///< rows of zeros above x; at least 0
  index_t pad_left = 0;       ///< columns of zeros to the left of x; at least 0
  index_t groups = 1;  ///< divides in_channels and out_channels; weights are (out_channels, in_channels / groups, r, s)
  dilation dilation_height = {};  ///< rows of x from one row of the weights to the next; at least 1
  dilation dilation_width = {};   ///< columns of x from one column of the weights to the next; at least 1
  /// The algorithm of all three passes.
  convolution_algorithm algorithm = convolution_algorithm::automatic;

  /// Rows of x from the first to the last row of the weights, both included.
  [[nodiscard]] constexpr index_t reach_height() const noexcept { return (kernel_height - 1) * dilation_height + 1; }
  /// Columns of x from the first to the last column of the weights, both included.
  [[nodiscard]] constexpr index_t reach_width() const noexcept { return (kernel_width - 1) * dilation_width + 1; }

  /// The shape of x: (n, in_channels, in_height, in_width).
  [[nodiscard]] constexpr image_extents input(index_t n) const noexcept {
    return {n, in_channels, in_height, in_width};
  }
  /// The shape of y: (n, out_channels, out_height, out_width).
  [[nodiscard]] constexpr image_extents output(index_t n) const noexcept {
    return {n, out_channels, out_height, out_width};
  }
  /// The shape of the weights: (out_channels, in_channels / groups, kernel_height, kernel_width).
  [[nodiscard]] constexpr image_extents weights() const noexcept {
    return {out_channels, in_channels / groups, kernel_height, kernel_width};
  }
  /// Multiply-adds of one pass over one image, including those with padding; the largest number if they are more.
  [[nodiscard]] constexpr index_t multiply_adds() const noexcept {
    index_t product = 1;
    for (const index_t each :
         {out_channels, out_height, out_width, in_channels / groups, kernel_height, kernel_width}) {
      product = gradus::detail::bounded_product(product, each);
    }
    return product;
  }

  /// Equal in all fields.
  friend constexpr bool operator==(const conv2d_geometry&, const conv2d_geometry&) noexcept = default;
};

namespace detail {

/// True if the taps of a kernel are not adjacent.
[[nodiscard]] constexpr bool is_dilated(const conv2d_geometry& g) noexcept {
  return (g.dilation_height > 1 && g.kernel_height > 1) || (g.dilation_width > 1 && g.kernel_width > 1);
}

/// How the CPU computes a dilated convolution; null for a convolution without dilation.
[[nodiscard]] constexpr const dilated_passes* passes_of(const conv2d_geometry& g) noexcept {
  return !is_dilated(g) ? nullptr : g.dilation_height > 1 ? g.dilation_height.passes() : g.dilation_width.passes();
}

}  // namespace detail
}  // namespace gradus::kernels

// SPDX-License-Identifier: BSL-1.0
//
// The geometry of pooling along one axis: the inputs of an output, and the outputs of an input.
#pragma once

#include <algorithm>  // std::clamp, std::max, std::min
#include <cstddef>    // std::size_t

#include "gradus/core/index.hpp"
#include "gradus/kernels/pool2d.hpp"

namespace gradus::kernels::detail {

/// The range [begin, end).
struct pool_range {
  index_t begin;
  index_t end;

  [[nodiscard]] constexpr index_t size() const noexcept { return end - begin; }
  [[nodiscard]] constexpr bool holds(index_t i) const noexcept {
    return static_cast<std::size_t>(i - begin) < static_cast<std::size_t>(end - begin);
  }
};

/// The rows or the columns of a pooling.
struct pool_axis {
  index_t kernel;
  index_t stride;
  index_t pad;
  index_t inputs;
  index_t outputs;
  index_t dilation = 1;
  index_t padded = 0;  ///< inputs and padding that a mean counts; 0: no end
  bool adaptive = false;

  /// All windows have the extent of the kernel, without gaps, as far as they are inside the image.
  [[nodiscard]] constexpr bool regular() const noexcept { return dilation == 1 && !adaptive; }
  /// The inputs from the first under the kernel to the last, dilation or not.
  [[nodiscard]] constexpr index_t reach() const noexcept { return (kernel - 1) * dilation + 1; }
  /// The inputs that the kernel of an output reaches over. They grow with the output.
  /// @tparam Regular  the axis is
  template <bool Regular = false>
  [[nodiscard]] constexpr pool_range window(index_t output) const noexcept {
    if (!Regular && adaptive) {
      return {output * inputs / outputs, ((output + 1) * inputs + outputs - 1) / outputs};
    }
    const index_t start = output * stride - pad;
    return {std::max(index_t{0}, start), std::min(inputs, start + (Regular ? kernel : reach()))};
  }
  /// The entries of the kernel of an output that are inside the image.
  [[nodiscard]] constexpr pool_range entries(index_t output) const noexcept {
    const pool_range in = window(output);
    if (adaptive) {
      return {0, in.size()};
    }
    const index_t start = output * stride - pad;
    return {(in.begin - start + dilation - 1) / dilation, (in.end - start + dilation - 1) / dilation};
  }
  /// The input under an entry of the kernel of `output`.
  [[nodiscard]] constexpr index_t input(index_t entry, index_t output) const noexcept {
    return adaptive ? window(output).begin + entry : output * stride - pad + entry * dilation;
  }
  /// The index of the input under the kernel of `output`; -1 between two of its entries.
  /// @tparam Regular  the axis is
  template <bool Regular>
  [[nodiscard]] constexpr index_t entry(index_t input, index_t output) const noexcept {
    if (!Regular && adaptive) {
      return input - output * inputs / outputs;
    }
    const index_t distance = input + pad - output * stride;
    if constexpr (Regular) {
      return distance;
    } else {
      return distance % dilation == 0 ? distance / dilation : -1;
    }
  }
  /// What a mean of an output is divided by along this axis.
  /// @tparam Regular  the axis is
  template <bool Regular = false>
  [[nodiscard]] constexpr index_t divisor(index_t output, bool count_padding) const noexcept {
    if (!count_padding) {
      return window<Regular>(output).size();  // means have no dilation
    }
    return padded == 0 ? kernel : std::min(kernel, padded - output * stride);
  }
  /// The outputs whose kernels cover an input.
  [[nodiscard]] constexpr pool_range windows_with(index_t input) const noexcept {
    if (adaptive) {
      return {input * outputs / inputs, ((input + 1) * outputs + inputs - 1) / inputs};
    }
    return {std::min(outputs, windows_that_end_by(input)), std::min(outputs, (input + pad) / stride + 1)};
  }
  /// At most as many outputs as have kernels that cover one of `count` adjacent inputs need at most this many inputs.
  [[nodiscard]] constexpr index_t inputs_of_windows(index_t count) const noexcept {
    if (adaptive) {
      return (count - 1) / ((outputs + inputs - 1) / inputs);
    }
    return (count - 1) * stride - reach() + 2;
  }
  /// The outputs whose kernels are inside the image and have the same extents.
  [[nodiscard]] constexpr pool_range whole_windows() const noexcept {
    if (adaptive) {
      return {0, 0};
    }
    const index_t begin = std::min(outputs, (pad + stride - 1) / stride);
    return {begin, std::clamp(windows_that_end_by(inputs), begin, outputs)};
  }
  /// The outputs whose means are divided by the whole kernel.
  [[nodiscard]] constexpr pool_range whole_divisors(bool count_padding) const noexcept {
    if (!count_padding) {
      return whole_windows();
    }
    return {0,
            padded == 0 ? outputs : std::min(outputs, padded < kernel ? index_t{0} : (padded - kernel) / stride + 1)};
  }

 private:
  /// The number of outputs whose kernels end at or before `input`.
  [[nodiscard]] constexpr index_t windows_that_end_by(index_t input) const noexcept {
    const index_t start = input + pad - reach();
    return start < 0 ? 0 : start / stride + 1;
  }
};

[[nodiscard]] constexpr pool_axis pool_rows(const pool2d_geometry& g) noexcept {
  return {g.kernel_height, g.stride_height,   g.pad_top,       g.in_height,
          g.out_height,    g.dilation_height, g.padded_height, g.adaptive};
}
[[nodiscard]] constexpr pool_axis pool_columns(const pool2d_geometry& g) noexcept {
  return {g.kernel_width, g.stride_width,   g.pad_left,     g.in_width,
          g.out_width,    g.dilation_width, g.padded_width, g.adaptive};
}

}  // namespace gradus::kernels::detail

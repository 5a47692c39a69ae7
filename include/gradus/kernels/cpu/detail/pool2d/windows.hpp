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

  /// The inputs under the kernel of an output.
  [[nodiscard]] constexpr pool_range window(index_t output) const noexcept {
    const index_t start = output * stride - pad;
    return {std::max(index_t{0}, start), std::min(inputs, start + kernel)};
  }
  /// The index of the input under the kernel of `output`.
  [[nodiscard]] constexpr index_t entry(index_t input, index_t output) const noexcept {
    return input + pad - output * stride;
  }
  /// The outputs whose kernels cover an input.
  [[nodiscard]] constexpr pool_range windows_with(index_t input) const noexcept {
    return {std::min(outputs, windows_that_end_by(input)), std::min(outputs, (input + pad) / stride + 1)};
  }
  /// The outputs whose kernels are inside the image.
  [[nodiscard]] constexpr pool_range whole_windows() const noexcept {
    const index_t begin = std::min(outputs, (pad + stride - 1) / stride);
    return {begin, std::clamp(windows_that_end_by(inputs), begin, outputs)};
  }

 private:
  /// The number of outputs whose kernels end at or before `input`.
  [[nodiscard]] constexpr index_t windows_that_end_by(index_t input) const noexcept {
    const index_t start = input + pad - kernel;
    return start < 0 ? 0 : start / stride + 1;
  }
};

[[nodiscard]] constexpr pool_axis pool_rows(const pool2d_geometry& g) noexcept {
  return {g.kernel_height, g.stride_height, g.pad_top, g.in_height, g.out_height};
}
[[nodiscard]] constexpr pool_axis pool_columns(const pool2d_geometry& g) noexcept {
  return {g.kernel_width, g.stride_width, g.pad_left, g.in_width, g.out_width};
}

}  // namespace gradus::kernels::detail

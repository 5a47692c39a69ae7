// SPDX-License-Identifier: BSL-1.0
//
// What a pooling computes, and the functions for its runs, compiled for every instruction set.
#pragma once

#include <algorithm>    // std::max, std::min
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t
#include <type_traits>  // std::integral_constant
#include <utility>      // std::integer_sequence, std::make_integer_sequence

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/pool2d/runs.hpp"
#include "gradus/kernels/cpu/detail/pool2d/windows.hpp"
#include "gradus/kernels/cpu/detail/simd/packets.hpp"
#include "gradus/kernels/pool2d.hpp"
#include "gradus/layout/mapping.hpp"

namespace gradus::kernels::detail {

/// Strides of a tensor in elements.
struct pool_strides {
  template <class Layout>
  explicit pool_strides(const dense_mapping<Layout>& at) noexcept
      : n{at.stride(axis::n)}, c{at.stride(axis::c)}, h{at.stride(axis::h)}, w{at.stride(axis::w)} {}

  index_t n;
  index_t c;
  index_t h;
  index_t w;
};

/// A pooling of images in some layout. If channels are adjacent, they are the SIMD lanes. Otherwise bands of rows of a
/// few channels are transposed into buffers with adjacent channels. Rows too long for the buffers use one SIMD lane.
struct pool_plan {
  // Buffers are on the stack so that a training step allocates nothing.
  static constexpr index_t band_pixels = 2048;
  static constexpr index_t row_pixels = 1024;

  template <class Layout>
  GRADUS_COLD pool_plan(const pool2d_geometry& g, index_t batch, bool with_padding, Layout /*layout*/)
      : rows{pool_rows(g)},
        columns{pool_columns(g)},
        in{dense_mapping<Layout>{g.input(batch)}},
        out{dense_mapping<Layout>{g.output(batch)}},
        images{batch},
        channels{g.channels},
        count_padding{with_padding} {}

  [[nodiscard]] bool regular() const noexcept { return rows.regular() && columns.regular(); }

  pool_axis rows;
  pool_axis columns;
  pool_strides in;
  pool_strides out;
  index_t images;
  index_t channels;
  bool count_padding;
};

/// A forward pass: the function for runs of outputs, and the tensors.
template <class Element>
struct pool_forward {
  void (*run)(const window_run<Element>& run, Element* y, std::uint8_t* choice);
  const Element* x;
  Element* y;
  std::uint8_t* choice;  ///< null: not needed
  bool average;          ///< else: max pooling
};

/// A backward pass: the function for a row of inputs, and the tensors.
template <class Element>
struct pool_backward {
  void (*row)(const pool_plan& plan, const pool_backward& call, const input_row& row, index_t h);
  const Element* dy;
  const std::uint8_t* choice;  ///< null: average pooling
  gradient_target<Element> target;
};

}  // namespace gradus::kernels::detail

#define GRADUS_TARGET_BODY "gradus/kernels/cpu/detail/pool2d/runs_body.hpp"
#include "gradus/simd/for_each_target.hpp"

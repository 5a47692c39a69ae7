// SPDX-License-Identifier: BSL-1.0
//
// The matrix product on the CPU.
// Module: kernels. Depends on: tensor.
#pragma once

#include <algorithm>  // std::min, std::fill_n
#include <array>      // std::array
#include <cstddef>    // std::byte, std::size_t
#include <span>       // std::span

#include "gradus/core/element.hpp"    // real_element
#include "gradus/core/index.hpp"      // index_t
#include "gradus/device/cpu.hpp"      // cpu
#include "gradus/kernels/matmul.hpp"  // matmul_shape, matmul_epilogue

namespace gradus::kernels {

/// See kernels/matmul.hpp.
template <real_element Element>
[[nodiscard]] std::size_t matmul_workspace_bytes(cpu&, const matmul_shape& shape) {
  return shape.transpose_b ? static_cast<std::size_t>(shape.k * shape.n) * sizeof(Element) : 0;
}

/// See kernels/matmul.hpp.
template <real_element Element>
void matmul(cpu& device, const matmul_shape& shape, const Element* a, const Element* b, Element* c,
            const matmul_epilogue<Element>& epilogue, std::span<std::byte> workspace) {
  constexpr index_t rows = 4;
  constexpr index_t columns = 16;
  const index_t m = shape.m;
  const index_t n = shape.n;
  const index_t k = shape.k;
  if (shape.transpose_b) {
    auto* const packed = reinterpret_cast<Element*>(workspace.data());
    device.parallel_for(k, 64, [&](index_t begin, index_t end) {
      for (index_t j = 0; j < n; ++j) {
        for (index_t t = begin; t < end; ++t) {
          packed[t * n + j] = b[j * k + t];
        }
      }
    });
    b = packed;
  }
  const index_t a_row = shape.transpose_a ? 1 : k;
  const index_t a_term = shape.transpose_a ? m : 1;
  const index_t column_blocks = (n + columns - 1) / columns;
  const index_t row_blocks = (m + rows - 1) / rows;
  device.parallel_for(column_blocks * row_blocks, 8, [&](index_t begin, index_t end) {
    for (index_t block = begin; block < end; ++block) {
      const index_t i0 = block % row_blocks * rows;
      const index_t j0 = block / row_blocks * columns;
      const index_t height = std::min(rows, m - i0);
      const index_t width = std::min(columns, n - j0);
      std::array<std::array<Element, columns>, rows> sums{};
      for (index_t t = 0; t < k; ++t) {
        const Element* const b_row = b + t * n + j0;
        std::array<Element, columns> line{};
        if (width == columns) {
          std::copy_n(b_row, columns, line.begin());
        } else {
          std::copy_n(b_row, width, line.begin());
        }
        for (index_t i = 0; i < height; ++i) {
          const Element factor = a[(i0 + i) * a_row + t * a_term];
          auto& sum = sums[static_cast<std::size_t>(i)];
          for (std::size_t j = 0; j < columns; ++j) {
            sum[j] += factor * line[j];
          }
        }
      }
      for (index_t i = 0; i < height; ++i) {
        for (index_t j = 0; j < width; ++j) {
          const index_t at = (i0 + i) * n + j0 + j;
          Element value = sums[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)];
          if (epilogue.bias != nullptr) {
            value += epilogue.bias[j0 + j];
          }
          if (epilogue.accumulate) {
            value += c[at];
          }
          if (epilogue.act == activation::relu && value < 0) {
            value = 0;
          }
          if (epilogue.relu_output != nullptr && !(epilogue.relu_output[at] > 0)) {
            value = 0;
          }
          c[at] = value;
        }
      }
    }
  });
}

/// See kernels/matmul.hpp.
template <real_element Element>
void column_sums(cpu& device, index_t rows, index_t columns, const Element* a, Element* sums) {
  device.parallel_for(columns, 64, [&](index_t begin, index_t end) {
    std::fill_n(sums + begin, end - begin, Element{});
    for (index_t i = 0; i < rows; ++i) {
      for (index_t j = begin; j < end; ++j) {
        sums[j] += a[i * columns + j];
      }
    }
  });
}

}  // namespace gradus::kernels

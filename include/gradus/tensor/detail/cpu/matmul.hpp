// SPDX-License-Identifier: BSL-1.0
//
// Matrix products, and copies to another memory order, on the CPU.
#pragma once

#include <Eigen/Core>  // Eigen::Map

#include <algorithm>  // std::max, std::min
#include <array>      // std::array
#include <cstddef>    // std::size_t

#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/tensor/expression.hpp"

namespace gradus::detail {

/// A stored matrix, read as it is or as its transpose.
template <class Element>
struct matrix_reference {
  const Element* data;
  index_t rows;  // as stored, row-major
  index_t columns;
  bool transposed;
};

/// out (rows, columns) = left * right, in blocks of rows that do not depend on the number of threads.
template <class Element>
void multiply_matrices(cpu& device, Element* out, const matrix_reference<Element>& left,
                       const matrix_reference<Element>& right) {
  using matrix = Eigen::Matrix<Element, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using map = Eigen::Map<const matrix>;
  const index_t rows = left.transposed ? left.columns : left.rows;
  const index_t inner = left.transposed ? left.rows : left.columns;
  const index_t columns = right.transposed ? right.rows : right.columns;
  if (rows * columns == 0) {
    return;
  }
  constexpr index_t task_products = index_t{1} << 21U;  // about 100 microseconds: much longer than the start of a task
  const index_t grain = std::max(index_t{16}, task_products / std::max(index_t{1}, inner * columns));
  const map a{left.data, left.rows, left.columns};
  const map b{right.data, right.rows, right.columns};
  device.parallel_for(rows, grain, [&](index_t begin, index_t end) {
    Eigen::Map<matrix> c{out + begin * columns, end - begin, columns};
    if (left.transposed) {
      if (right.transposed) {
        c.noalias() = a.middleCols(begin, end - begin).transpose() * b.transpose();
      } else {
        c.noalias() = a.middleCols(begin, end - begin).transpose() * b;
      }
    } else if (right.transposed) {
      c.noalias() = a.middleRows(begin, end - begin) * b.transpose();
    } else {
      c.noalias() = a.middleRows(begin, end - begin) * b;
    }
  });
}

/// Copies a dense tensor into the memory order of the destination. Extents and source strides are in that order,
/// slowest axis first.
template <class Element, std::size_t Rank>
void copy_reordered(cpu& device, Element* out, const Element* from, const std::array<index_t, Rank>& shape,
                    const std::array<index_t, Rank>& strides) {
  static_assert(Rank >= 2);
  const index_t length = shape[Rank - 1];
  const index_t lines = shape[Rank - 2];
  const index_t step = strides[Rank - 1];
  const index_t line_step = strides[Rank - 2];
  index_t planes = 1;
  for (std::size_t axis = 0; axis + 2 < Rank; ++axis) {
    planes *= shape[axis];
  }
  if (planes * lines * length == 0) {
    return;
  }
  // Tiles use whole cache lines of the source.
  constexpr index_t tile = 16;
  const index_t tile_rows = (lines + tile - 1) / tile;
  const index_t grain = std::max(index_t{1}, 16384 / (tile * length));
  device.parallel_for(planes * tile_rows, grain, [&](index_t begin, index_t end) {
    for (index_t task = begin; task < end; ++task) {
      index_t plane = task / tile_rows;
      const Element* source = from;
      Element* const target = out + plane * lines * length;
      for (std::size_t axis = Rank - 2; axis-- > 0;) {
        source += plane % shape[axis] * strides[axis];
        plane /= shape[axis];
      }
      const index_t first = task % tile_rows * tile;
      const index_t last = std::min(lines, first + tile);
      for (index_t column = 0; column < length; column += tile) {
        const index_t columns_end = std::min(length, column + tile);
        for (index_t line = first; line < last; ++line) {
          for (index_t j = column; j < columns_end; ++j) {
            target[line * length + j] = source[line * line_step + j * step];
          }
        }
      }
    }
  });
}

}  // namespace gradus::detail

// SPDX-License-Identifier: BSL-1.0
//
// The matrix product on the CPU.
// Module: kernels. Depends on: tensor.
#pragma once

#include <algorithm>    // std::clamp, std::min
#include <cstddef>      // std::byte, std::size_t
#include <span>         // std::span
#include <type_traits>  // std::type_identity_t

#include "gradus/core/element.hpp"      // real_element
#include "gradus/core/index.hpp"        // index_t
#include "gradus/device/cpu.hpp"        // cpu
#include "gradus/kernels/cpu/gemm.hpp"  // gemm
#include "gradus/kernels/matmul.hpp"    // matmul_shape, matmul_epilogue

namespace gradus::kernels {

namespace detail {

/// Columns of C that one task computes: a multiple of a tile, some tasks for each of many threads.
template <class Element>
[[nodiscard]] constexpr index_t matmul_task_columns(const matmul_shape& shape) {
  constexpr index_t tile = gemm_columns<Element>;
  const index_t tiles = (shape.n + tile - 1) / tile;
  return std::clamp<index_t>(tiles / 32, 1, 8) * tile;
}

}  // namespace detail

/// See kernels/matmul.hpp.
template <real_element Element>
[[nodiscard]] std::size_t matmul_workspace_bytes(cpu&, const matmul_shape& shape) {
  const index_t columns = detail::matmul_task_columns<Element>(shape);
  const index_t tasks = (shape.n + columns - 1) / columns;
  return static_cast<std::size_t>(tasks * ((detail::gemm_scratch<Element> + 15) / 16 * 16)) * sizeof(Element);
}

/// See kernels/matmul.hpp.
template <real_element Element>
void matmul(cpu& device, const matmul_shape& shape, const Element* a, const std::type_identity_t<Element>* b,
            std::type_identity_t<Element>* c, const matmul_epilogue<std::type_identity_t<Element>>& epilogue,
            std::span<std::byte> workspace) {
  if (shape.m == 0 || shape.n == 0) {
    return;
  }
  const detail::strided_matrix<Element> left{a, shape.transpose_a ? 1 : shape.k, shape.transpose_a ? shape.m : 1};
  const detail::strided_matrix<Element> right{b, shape.transpose_b ? 1 : shape.n, shape.transpose_b ? shape.k : 1};
  const index_t columns = detail::matmul_task_columns<Element>(shape);
  const index_t tasks = (shape.n + columns - 1) / columns;
  auto* const memory = reinterpret_cast<Element*>(workspace.data());
  device.parallel_tasks(tasks, [&](index_t task) {
    const index_t j0 = task * columns;
    const index_t count = std::min(columns, shape.n - j0);
    detail::gemm<Element>(
        shape.m, count, shape.k, left, {right.data + j0 * right.column_stride, right.row_stride, right.column_stride},
        c + j0, shape.n, epilogue.accumulate, memory + task * ((detail::gemm_scratch<Element> + 15) / 16 * 16));
    if (epilogue.bias == nullptr && epilogue.act == activation::identity && epilogue.relu_output == nullptr) {
      return;
    }
    for (index_t i = 0; i < shape.m; ++i) {
      for (index_t j = j0; j < j0 + count; ++j) {
        const index_t k = i * shape.n + j;
        Element value = c[k] + (epilogue.bias != nullptr ? epilogue.bias[j] : Element{});
        value = epilogue.act == activation::relu && value < Element{} ? Element{} : value;
        c[k] = epilogue.relu_output == nullptr || epilogue.relu_output[k] > Element{} ? value : Element{};
      }
    }
  });
}

/// See kernels/matmul.hpp.
template <real_element Element>
void column_sums(cpu& device, index_t rows, index_t columns, const Element* a, std::type_identity_t<Element>* sums) {
  device.parallel_for(columns, 256, [&](index_t begin, index_t end) {
    std::fill(sums + begin, sums + end, Element{});
    for (index_t i = 0; i < rows; ++i) {
      for (index_t j = begin; j < end; ++j) {
        sums[j] += a[i * columns + j];
      }
    }
  });
}

}  // namespace gradus::kernels

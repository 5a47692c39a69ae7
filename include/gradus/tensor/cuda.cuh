// SPDX-License-Identifier: BSL-1.0
//
// Expressions on a GPU. Files that nvcc compiles include it together with gradus/tensor/expressions.hpp.
#pragma once

#if !defined(__CUDACC__)
#error "gradus: expressions on a GPU are compiled by nvcc: name the file .cu"
#endif
#if !defined(EIGEN_NO_CUDA)
#error "gradus: compile with -DEIGEN_NO_CUDA, as the CMake target gradus::cuda does: Eigen then is the same everywhere"
#endif

#include <thrust/system/cuda/execution_policy.h>  // thrust::cuda::par_nosync

#include <algorithm>    // std::max
#include <cstddef>      // std::size_t
#include <limits>       // std::numeric_limits
#include <type_traits>  // std::is_same_v

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cublas.cuh"
#include "gradus/device/cuda.cuh"
#include "gradus/tensor/copy.hpp"
#include "gradus/tensor/detail/cpu/matmul.hpp"
#include "gradus/tensor/detail/thrust/evaluate.cuh"
#include "gradus/tensor/detail/thrust/reduce.cuh"
#include "gradus/tensor/expressions.hpp"

namespace gradus {

/// Thrust's execution policy for the device's stream; calls do not wait.
[[nodiscard]] inline auto thrust_policy(const cuda& device) {
  device.activate();
  return thrust::cuda::par_nosync.on(device.stream());
}

}  // namespace gradus

namespace gradus::detail {

/// out (rows, columns) = left * right, with cuBLAS.
template <class Element>
void multiply_matrices(cuda& device, Element* out, const matrix_reference<Element>& left,
                       const matrix_reference<Element>& right) {
  const index_t rows = left.transposed ? left.columns : left.rows;
  const index_t inner = left.transposed ? left.rows : left.columns;
  const index_t columns = right.transposed ? right.rows : right.columns;
  if (rows == 0 || columns == 0) {
    return;
  }
  if (inner == 0) {
    device.fill_zero(out, static_cast<std::size_t>(rows * columns) * sizeof(Element));
    return;
  }
  const index_t largest = std::max({rows, inner, columns});
  if (largest > std::numeric_limits<int>::max()) {
    raise<shape_error>("matmul", "matrices of at most 2147483647 rows and columns on a GPU", {largest});
  }
  // cuBLAS expects column-major matrices. It reads ours as transposed, so we compute out^T = right^T * left^T.
  const auto multiply = [&](auto gemm, const char* call) {
    const Element one{1};
    const Element zero{0};
    device.activate();
    check_cublas(gemm(device.context<cublas>().get(), right.transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                      left.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, static_cast<int>(columns), static_cast<int>(rows),
                      static_cast<int>(inner), &one, right.data, static_cast<int>(right.columns), left.data,
                      static_cast<int>(left.columns), &zero, out, static_cast<int>(columns)),
                 call);
  };
  if constexpr (std::is_same_v<Element, float>) {
    multiply(cublasSgemm, "cublasSgemm");
  } else {
    multiply(cublasDgemm, "cublasDgemm");
  }
}

}  // namespace gradus::detail

// SPDX-License-Identifier: BSL-1.0
//
// Matrix products on CUDA with cuBLAS.
#pragma once

#include <cublas_v2.h>  // cublasGemmEx

#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::uint32_t
#include <limits>       // std::numeric_limits
#include <span>         // std::span
#include <type_traits>  // std::is_same_v

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cublas.cuh"
#include "gradus/device/cuda.cuh"
#include "gradus/kernels/cuda/detail/launch/launch.cuh"
#include "gradus/kernels/cuda/detail/norm/channel_sums.cuh"
#include "gradus/kernels/cuda/elementwise.cuh"
#include "gradus/kernels/matmul.hpp"

namespace gradus::kernels {

namespace detail {

template <class Element>
inline constexpr cudaDataType_t cuda_type = std::is_same_v<Element, double>     ? CUDA_R_64F
                                            : std::is_same_v<Element, float>    ? CUDA_R_32F
                                            : std::is_same_v<Element, bfloat16> ? CUDA_R_16BF
                                                                                : CUDA_R_16F;

/// Applies the rest of an epilogue after the product and the sum: bias, activation, mask. y is (rows, columns) or an
/// image batch; the channel of an element is index / inner % channels.
template <class Element, class Parameter>
__global__ void epilogue_kernel(index_t count, index_t channels, index_t inner, const Parameter* bias,
                                const Element* residual, device_activation<Parameter> act, const Element* relu_output,
                                device_derivative<Parameter> derivative, Element* y) {
  for (index_t i = thread_index(); i < count; i += thread_count()) {
    Parameter value = widen(y[i]);
    if (bias != nullptr) {
      const index_t channel =
          count <= std::numeric_limits<std::uint32_t>::max()
              ? static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(inner) % static_cast<std::uint32_t>(channels)
              : i / inner % channels;
      value += bias[channel];
    }
    if (residual != nullptr) {
      value += widen(residual[i]);
    }
    value = act(value);
    if (relu_output != nullptr) {
      value = derivative.times(widen(relu_output[i]), value);
    }
    y[i] = narrow<Element>(value);
  }
}

/// @param inner  elements between channels: 1 for the columns of a matrix
template <class Element, class Parameter>
void apply_epilogue(cuda& device, index_t count, index_t channels, index_t inner, const Parameter* bias,
                    const Element* residual, const activation& act, const Element* relu_output, Element* y,
                    const activation& mask = activation::relu) {
  const bool activated = act != activation::identity;
  if (count != 0 && (bias != nullptr || residual != nullptr || activated || relu_output != nullptr)) {
    launch(device, "epilogue", blocks_for(count), block_threads, &epilogue_kernel<Element, Parameter>, count, channels,
           inner, bias, residual, device_activation<Parameter>{act}, relu_output, device_derivative<Parameter>{mask},
           y);
  }
}

[[nodiscard]] inline int blas_int(index_t value) {
  if (value > std::numeric_limits<int>::max()) {
    gradus::raise<shape_error>("matmul", "at most 2147483647 rows and columns", {value});
  }
  return static_cast<int>(value);
}

/// C = op(A) op(B), or C += op(A) op(B). cuBLAS is column-major, so it computes the transposed product.
template <class In, class Out>
void gemm(cuda& device, const matmul_shape& shape, const In* a, const In* b, Out* c, bool accumulate) {
  if (shape.m == 0 || shape.n == 0) {
    return;
  }
  if (shape.k == 0) {
    if (!accumulate) {
      device.fill_zero(c, static_cast<std::size_t>(shape.m * shape.n) * sizeof(Out));
    }
    return;
  }
  device.activate();
  using scalar = device_real<Out>;
  const scalar one = 1;
  const scalar old = accumulate ? 1 : 0;
  constexpr cublasComputeType_t compute = std::is_same_v<Out, double> ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
  check_cublas(cublasGemmEx(device.context<cublas>().get(), shape.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                            shape.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, blas_int(shape.n), blas_int(shape.m),
                            blas_int(shape.k), &one, b, cuda_type<In>, blas_int(shape.transpose_b ? shape.k : shape.n),
                            a, cuda_type<In>, blas_int(shape.transpose_a ? shape.m : shape.k), &old, c, cuda_type<Out>,
                            blas_int(shape.n), compute, CUBLAS_GEMM_DEFAULT),
               "cublasGemmEx");
}

template <class In, class Out>
void gemm_with_epilogue(cuda& device, const matmul_shape& shape, const In* a, const In* b, Out* c,
                        const matmul_epilogue<Out>& epilogue) {
  gemm(device, shape, a, b, c, epilogue.accumulate);
  apply_epilogue<Out, parameter_element_t<Out>>(device, shape.m * shape.n, shape.n, 1, epilogue.bias, nullptr,
                                                epilogue.act, epilogue.relu_output, c, epilogue.mask);
}

}  // namespace detail

/// See has_matmul_workspace_bytes. Bytes of B rounded to a storage element.
template <network_element Element>
[[nodiscard]] std::size_t matmul_workspace_bytes(cuda& /*device*/, const matmul_shape& shape) {
  return storage_element<Element> ? static_cast<std::size_t>(shape.k * shape.n) * sizeof(Element) : 0;
}

/// Implements has_matmul on a GPU.
template <real_element Element>
void matmul(cuda& device, const matmul_shape& shape, const Element* a, const Element* b, Element* c,
            const matmul_epilogue<Element>& epilogue, std::span<std::byte> /*workspace*/) {
  detail::gemm_with_epilogue(device, shape, a, b, c, epilogue);
}

/// Implements has_matmul_of_parameters on a GPU.
template <storage_element Element>
void matmul(cuda& device, const matmul_shape& shape, const Element* a, const parameter_element_t<Element>* b,
            Element* c, const matmul_epilogue<Element>& epilogue, std::span<std::byte> workspace) {
  auto* const rounded = reinterpret_cast<Element*>(workspace.data());
  detail::convert(device, shape.k * shape.n, b, rounded);
  detail::gemm_with_epilogue(device, shape, a, static_cast<const Element*>(rounded), c, epilogue);
}

/// Implements has_matmul_to_parameters on a GPU.
template <storage_element Element>
void matmul(cuda& device, const matmul_shape& shape, const Element* a, const Element* b,
            parameter_element_t<Element>* c, const matmul_epilogue<parameter_element_t<Element>>& epilogue,
            std::span<std::byte> /*workspace*/) {
  detail::gemm_with_epilogue(device, shape, a, b, c, epilogue);
}

namespace detail {

/// One thread for each column adds the rows in order; for batches of vectors, which have few rows.
template <class Element, class Parameter>
__global__ void column_sums_kernel(index_t rows, index_t columns, const Element* a, Parameter* sums) {
  for (index_t column = thread_index(); column < columns; column += thread_count()) {
    double sum = 0;
#pragma unroll 8
    for (index_t row = 0; row < rows; ++row) {
      sum += static_cast<double>(widen(a[row * columns + column]));
    }
    sums[column] = static_cast<Parameter>(sum);
  }
}

}  // namespace detail

/// Implements has_column_sums on a GPU.
template <network_element Element>
void column_sums(cuda& device, index_t rows, index_t columns, const Element* a, parameter_element_t<Element>* sums) {
  if (columns != 0) {
    launch(device, "column_sums", detail::blocks_for(columns, 64), 64,
           &detail::column_sums_kernel<Element, parameter_element_t<Element>>, rows, columns, a, sums);
  }
}

}  // namespace gradus::kernels
